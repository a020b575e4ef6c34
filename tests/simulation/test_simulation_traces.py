"""Readers of traces: what each format says, and one clear line for what is wrong with a file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gangline.model.errors import NotFound, Rejected
from gangline.simulation.formats import Shape, detect, load
from gangline.simulation.generator import Recipe, generate, read_sizes
from gangline.simulation.trace import Job, Trace

KALOS = """job_id,arrival_time,num_iteration,iteration_computing_time,ps,gpu_workers,gpu_per_worker
0,10.0,208,0.5,0,8,8.0
1,313.5,156,0.5,0,1,2.0
"""
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:00,66.0,1,66.0,11cb48
2017-10-09 07:00:00,100.5,20,1320.0,6214e9
"""
SWF = """; Version: 2.2
; MaxNodes: 240
1 0 308434 31405 30 31405 -1 30 37980 -1 1 1 1 -1 -1 1 -1 -1
2 8 308426 -1 30 31039 -1 30 37980 -1 1 1 1 -1 -1 1 -1 -1

3 12 308483 30978 -1 30978 -1 7 -1 -1 1 1 1 -1 -1 1 -1 -1
"""
GANG = """submit_s,nodes,gpus_per_node,gpu,duration_s,limit_s,tenant,rdma,priority
0,4,8,H100,3600,7200,research,true,100
1.5,,,,60,,,,
2,,,,60,,,,low
"""
SPOT = """job_name,organization,gpu_model,gpu_request,worker_num,submit_time,duration,job_type
a,org-1,A100,8,4,100,3600,HP
b,org-2,A10,0.5,1,40,60,Spot
c,org-2,,0,1,50,60,Spot
"""


def job(submit_ms: int, duration_ms: int, nodes: int, **other: object) -> Job:
    return Job(submit_ms=submit_ms, duration_ms=duration_ms, nodes=nodes, **other)  # type: ignore[arg-type]


CASES = [
    ("kalos", KALOS, 0, (job(0, 104_000, 8, gpus=8), job(303_500, 78_000, 1, gpus=2))),
    ("philly", PHILLY, 0, (job(0, 100_500, 3, gpus=8, tenant="6214e9"),
                           job(60_000, 66_000, 1, gpus=1, tenant="11cb48"))),
    ("swf", SWF, 1, (job(0, 31_405_000, 15, limit_ms=37_980_000), job(12_000, 30_978_000, 4))),
    ("gang-csv", GANG, 0, (job(0, 3_600_000, 4, gpus=8, gpu="H100", limit_ms=7_200_000, tenant="research", rdma=True,
                               priority=100), job(1_500, 60_000, 1), job(2_000, 60_000, 1, priority=-100))),
    ("spot", SPOT, 1, (job(0, 60_000, 1, gpus=1, gpu="A10", tenant="org-2", priority=-100),
                       job(60_000, 3_600_000, 4, gpus=8, gpu="A100", tenant="org-1"))),
]
SHAPE = Shape(gpus_per_node=8, procs_per_node=2)


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(("name", "text", "skipped", "jobs"), CASES, ids=[case[0] for case in CASES])
def test_each_format_is_known_by_its_first_line(tmp_path: Path, name: str, text: str, skipped: int,
                                                jobs: tuple[Job, ...]) -> None:
    path = written(tmp_path, text)
    assert detect(path) == name
    assert load(path, None, SHAPE) == Trace(name="trace", jobs=jobs, skipped=skipped)
    assert load(written(tmp_path, text, "trace.gz"), name, SHAPE).jobs == jobs


@pytest.mark.parametrize(("name", "text", "message"), [
    ("kalos", KALOS.replace("313.5", "soon"), "line 3: arrival_time is 'soon', not a number"),
    ("kalos", KALOS.replace(",8.0", ",0.5"), "line 2: gpu_per_worker is '0.5', not a whole number of at least 1"),
    ("kalos", KALOS + "2,3\n", "line 4: has 2 cells under a header of 7"),
    ("philly", PHILLY.replace("66.0,1,", "-1,1,"), "line 2: duration is '-1', which is no number of seconds"),
    ("philly", PHILLY.replace("2017-10-09 07:00:00", "9 Oct"), "line 3: timestamp is '9 Oct', neither seconds nor"),
    ("philly", "timestamp,duration\n", "line 1: has no column num_gpus, cluster"),
    ("swf", SWF + "4 0 1 2\n", "line 7: has 4 fields, not 18"),
    ("swf", SWF.replace("12 308483", "x 308483"), "line 6: 2 is 'x', not a number"),
    ("gang-csv", GANG.replace("true", "maybe"), "line 2: rdma is 'maybe' (write true or false)"),
    ("gang-csv", GANG.replace("low", "urgent"), "line 4: priority is 'urgent' (write low, normal, high or a number)"),
    ("gang-csv", GANG.replace("priority", "prio"), "line 1: column 'prio' is not known"),
    ("gang-csv", GANG.replace("1.5", "nan"), "line 3: submit_s is 'nan', not a number"),
    ("gang-csv", "submit_s,duration_s\n", "holds no job that ran"),
    ("spot", SPOT.replace(",4,100", ",0,100"), "line 2: worker_num is '0', not a whole number"),
    (None, "a,b\n1,2\n", "line 1: is the start of no format known here"),
    (None, "", "line 1: is the start of no format known here"),
])
def test_a_wrong_row_is_named(tmp_path: Path, name: str | None, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Rejected) as caught:
        load(path, name, SHAPE)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        load(tmp_path / "absent.csv", None, SHAPE)
    with pytest.raises(Rejected, match="cannot read"):
        load(tmp_path, None, SHAPE)
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(Rejected, match="cannot read"):
        load(broken, None, SHAPE)
    broken.write_bytes(gzip.compress(KALOS.encode())[:-9])
    with pytest.raises(Rejected, match="cannot read"):
        load(broken, "kalos", SHAPE)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Rejected, match="is not text"):
        load(binary, None, SHAPE)


def test_jobs_come_in_order_and_closer_together(tmp_path: Path) -> None:
    trace = load(written(tmp_path, KALOS), None, SHAPE)
    assert [each.submit_ms for each in trace.compressed(0.1).jobs] == [0, 30_350]
    assert [each.rdma for each in trace.asking_rdma().jobs] == [True, False]


def test_a_generated_trace_repeats_itself_and_offers_its_load() -> None:
    recipe = Recipe.parse("jobs=2000,load=0.7,least=2,most=40,median=20m,rdma=true")
    one, again, other = (generate(recipe, 64, seed) for seed in (1, 1, 2))
    assert one == again != other
    work = sum(each.nodes * each.duration_ms for each in one.jobs)
    assert work / (64 * one.window_ms) == pytest.approx(0.7, rel=1e-6)
    assert {each.nodes for each in one.jobs} <= set(range(2, 41))
    assert all(each.rdma for each in one.jobs)
    twos = sum(each.nodes == 2 for each in one.jobs) / len(one.jobs)
    assert twos == pytest.approx(13_142 / 38_700, abs=0.05)  # its share of the jobs of 2 to 40 nodes


def test_sizes_may_come_from_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "worker_num,jobs\n1,3\n4,1\n", "sizes.csv")
    assert read_sizes(path) == ((1, 1, 3), (4, 4, 1))
    made = generate(Recipe.parse(f"jobs=400,sizes={path}"), 8, 0)
    assert sum(each.nodes == 4 for each in made.jobs) == pytest.approx(100, abs=30)
    with pytest.raises(Rejected, match="no size from 5 to 8 nodes occurs"):
        generate(Recipe.parse(f"least=5,sizes={path}"), 8, 0)


@pytest.mark.parametrize("text", ["jobs=none", "jobs=0", "load=-1", "load=nan", "median=soon", "rdma=1", "colour=red",
                                  "jobs"])
def test_a_recipe_that_is_none(text: str) -> None:
    with pytest.raises(Rejected, match="--generate"):
        Recipe.parse(text)
