"""What Slurm's programs print in several versions, read into rows and into what an engine sees.

Only 22.05 was run; the texts of the others were written after their manual pages and release notes.
"""

from __future__ import annotations

import pytest

from gangline.engines.base import JobStatus, NodeStatus
from gangline.engines.slurm import states, table
from gangline.engines.slurm.programs import _failed
from gangline.engines.slurm.request import printable
from gangline.engines.slurm.sight import loads, seen_jobs, seen_nodes
from gangline.model.errors import Rejected, Unavailable
from gangline.model.fleet import Pool

END = "@1f@"


def pool(gpu: str = "H100:8", **slurm: object) -> Pool:
    return Pool.parse({"name": "train", "engine": "slurm", "gpu": gpu, "slurm": {"partition": "train", **slurm}})


def printed(*rows: tuple[str, ...], end: str = END) -> str:
    """As sinfo and squeue print: each field with its ending, a line a row."""
    return "".join("".join(field + end for field in row) + "\n" for row in rows)


# name, address, state, GRES, GRES used, processors, memory, partition, reason
NODES = {
    "22.05": ("n1", "10.0.0.1", "mixed", "gpu:h100:8(S:0-1)", "gpu:h100:3(IDX:0,2-3)", "24/72/0/96", "32000", "train*",
              "none"),
    "23.02": ("n1", "10.0.0.1", "mixed", "gpu:h100:8(S:0-1),shard:32(S:0-1)", "gpu:h100:3(IDX:0,2-3),shard:0",
              "24/72/0/96", "32000", "train*", "none"),
    "23.11": ("n1", "10.0.0.1", "mixed+planned", "gpu:h100:8(S:0-1)", "gpu:h100:3(IDX:0,2-3)", "24/72/0/96", "32000",
              "train*", "none"),
    "24.05": ("n1", "n1.cluster", "MIXED+DYNAMIC_NORM", "gpu:h100:8", "gpu:h100:3(IDX:0,2-3)", "24/72/0/96", "32000",
              "train", "(null)"),
    "24.11": ("n1", "10.0.0.1", "mixed-", "gres/gpu:h100:8", "gres/gpu:h100:3", "24/72/0/96", "32000", "train*", ""),
    "25.05": ("n1", "fd00::1", "mixed+external", "gpu:h100:8(S:0-1),nic:8", "gpu:h100:3(IDX:0,2-3),nic:0(IDX:N/A)",
              "24/72/0/96", "32000", "train*", "None"),
}


@pytest.mark.parametrize("version", NODES)
def test_a_node_with_jobs_of_others_reads_the_same_in_every_version(version: str) -> None:
    rows = table.node_rows(printed(NODES[version]), END)
    jobs = table.job_rows(printed(("7", "RUNNING", "1000", "n1", "gres:gpu:3", "None", "theirs")), END)
    (seen,) = seen_nodes([pool()], rows, loads(jobs, []), {})
    assert (seen.name, seen.pool, seen.status) == ("n1", "train", NodeStatus.READY)
    assert (seen.gpu_type, seen.gpu_count, seen.foreign_gpus) == ("h100", 8, 3)
    assert seen.foreign == ("theirs (job 7)",)
    assert rows[0].reason == ""
    assert (rows[0].cpus, rows[0].cpus_used, rows[0].memory_mb) == (96, 24, 32000)


def test_a_node_in_two_partitions_is_one_node() -> None:
    row = NODES["22.05"]
    (node,) = table.node_rows(printed(row, (*row[:7], "debug", row[8])), END)
    assert node.partitions == {"train", "debug"}


def test_a_partition_that_no_pool_has_is_not_ours() -> None:
    row = NODES["22.05"]
    rows = table.node_rows(printed((*row[:7], "debug", row[8])), END)
    assert seen_nodes([pool()], rows, {}, {}) == ()


def test_what_users_write_forges_no_row() -> None:
    forged = "x\n" + printed(("9", "RUNNING", "0", "n[1-8]", "gres:gpu:8", "None", "gangline-00c0ffee-a-1"), end="@00@")
    jobs = table.job_rows(printed(("7", "RUNNING", "1000", "n1", "N/A", "None", forged),
                                  ("8", "PENDING", "1000", "", "N/A", "Resources", "b")), END)
    assert [job.id for job in jobs] == [7, 8]
    assert jobs[0].name == forged.strip()


@pytest.mark.parametrize("text", ["sinfo: something\n", f"a{END}b{END}\n", f"a{END}" * 8])
def test_other_texts_are_not_rows(text: str) -> None:
    with pytest.raises(ValueError, match="no rows"):
        table.node_rows(text, END)


def test_an_empty_cluster_has_no_rows() -> None:
    assert table.node_rows("", END) == ()
    assert table.job_rows("\n", END) == ()


@pytest.mark.parametrize(("text", "kind", "count"), [
    ("gpu:8", "", 8), ("gpu", "", 1), ("gpu:h100", "h100", 1), ("gpu:h100:8", "h100", 8), ("gres:gpu:2", "", 2),
    ("gres/gpu:h100=4", "h100", 4), ("gres/gpu=4", "", 4), ("gpu:a100_80gb:4(S:0),gpu:a100_40gb:4", "a100_80gb", 8),
    ("nvme:1,gpu:h100:8(IDX:0-3,5,7-9)", "h100", 8), ("gpu:h100:0(IDX:N/A)", "h100", 0), ("(null)", "", 0),
    ("N/A", "", 0), ("", "", 0), ("gpumem:40", "", 0), ("shard:gpu:4", "", 0),
])
def test_gpus_are_counted(text: str, kind: str, count: int) -> None:
    assert table.gpus_in(text) == table.Gpus(type=kind, count=count)


@pytest.mark.parametrize(("state", "status"), [
    ("idle", "ready"), ("IDLE", "ready"), ("allocated", "ready"), ("mixed+planned", "ready"), ("idle-", "ready"),
    ("allocated+completing", "ready"), ("idle+cloud", "ready"), ("idle+drain", "drained"), ("mixed+drain", "drained"),
    ("idle+maintenance", "drained"), ("idle$", "drained"), ("idle+reserved", "drained"), ("allocated+fail", "drained"),
    ("inval", "drained"), ("idle+invalid_reg+drain", "drained"), ("idle@", "drained"), ("mixed+blocked", "drained"),
    ("idle*", "unknown"), ("mixed+not_responding", "unknown"), ("idle+drain+not_responding", "unknown"),
    ("down", "down"), ("down*", "down"), ("down+drain+not_responding", "down"), ("down+powered_down", "down"),
    ("idle+cloud+powered_down", "asleep"), ("idle~", "asleep"), ("idle+powering_down+not_responding", "asleep"),
    ("idle%", "asleep"), ("idle!", "asleep"), ("idle#", "booting"), ("allocated#*", "booting"),
    ("mixed+cloud+powering_up+not_responding", "booting"), ("idle^", "booting"), ("down^", "down"),
    ("idle+drain+powered_down", "drained"), ("future", "unknown"), ("unknown", "unknown"), ("unknown*", "unknown"),
    ("idle+something_of_2031", "unknown"), ("", "unknown"), ("n/a", "unknown"),
])
def test_states_of_nodes_come_to_ours(state: str, status: str) -> None:
    assert states.node_status(states.node_words(state)) == status


@pytest.mark.parametrize("state", ["idle+reserved", "mixed+maintenance", "idle$", "idle+reserved+planned"])
def test_who_works_in_a_reservation_may_use_its_nodes(state: str) -> None:
    assert states.node_status(states.node_words(state), reserved_for_us=True) is NodeStatus.READY
    row = NODES["22.05"]
    rows = table.node_rows(printed((*row[:2], state, *row[3:])), END)
    assert seen_nodes([pool(reservation="ours")], rows, {}, {})[0].status is NodeStatus.READY
    assert seen_nodes([pool()], rows, {}, {})[0].status is NodeStatus.DRAINED


@pytest.mark.parametrize(("state", "status"), [
    ("PENDING", "waiting"), ("CONFIGURING", "running"), ("RUNNING", "running"), ("COMPLETING", "running"),
    ("SUSPENDED", "running"), ("CANCELLED", "ended"), ("CANCELLED by 1000", "ended"), ("COMPLETED", "ended"),
    ("NODE_FAIL", "ended"), ("PREEMPTED", "ended"), ("OUT_OF_MEMORY", "ended"), ("SOMETHING_OF_2031", "unknown"),
    ("", "unknown"),
])
def test_states_of_jobs_come_to_ours(state: str, status: str) -> None:
    assert states.job_status(state) == status


def job_text(*jobs: tuple[int, str, str]) -> str:
    return printed(*((str(id), state, "0", "n1", "gres/gpu:8", reason, "gangline-00c0ffee-a-1")
                     for id, state, reason in jobs))


@pytest.mark.parametrize(("jobs", "id", "status", "text"), [
    ([(3, "PENDING", "Resources")], "3", JobStatus.WAITING, "Resources"),
    ([(3, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]")], "3", JobStatus.WAITING,
     "ReqNodeNotAvail, UnavailableNodes:n[1-2]"),
    ([(3, "PENDING", "None")], "3", JobStatus.WAITING, "PENDING"),
    ([(3, "RUNNING", "None"), (4, "PENDING", "Dependency")], "3", JobStatus.RUNNING, "RUNNING"),
    ([(4, "PENDING", "Dependency"), (3, "CANCELLED", "None")], "4", JobStatus.WAITING, "Dependency"),
    ([(3, "FAILED", "NonZeroExitCode"), (4, "NODE_FAIL", "None")], "4", JobStatus.ENDED, "NODE_FAIL"),
    ([(3, "FAILED", "NonZeroExitCode")], "3", JobStatus.ENDED, "FAILED NonZeroExitCode"),
])
def test_of_jobs_with_one_name_the_first_that_lives_counts(
        jobs: list[tuple[int, str, str]], id: str, status: JobStatus, text: str) -> None:
    (seen,) = seen_jobs(table.job_rows(job_text(*jobs), END)).values()
    assert (seen.id, seen.status, seen.text) == (id, status, text)


def test_who_holds_every_processor_holds_the_whole_node() -> None:
    row = NODES["22.05"]
    rows = table.node_rows(printed((*row[:4], "gpu:h100:0(IDX:N/A)", "96/0/0/96", *row[6:])), END)
    jobs = table.job_rows(printed(("7", "RUNNING", "1000", "n1", "N/A", "None", "theirs")), END)
    assert seen_nodes([pool()], rows, loads(jobs, []), {})[0].foreign_gpus == 8


def test_a_job_without_gpus_takes_at_least_one_place_and_never_more_than_there_are() -> None:
    jobs = table.job_rows(printed(*((str(id), "COMPLETING", "1000", "n1", "N/A", "None", "theirs") for id in range(40)),
                                  ("50", "PENDING", "1000", "n1", "N/A", "None", "later"),
                                  ("51", "FAILED", "1000", "n1", "N/A", "None", "before")), END)
    row = NODES["22.05"]
    rows = table.node_rows(printed((*row[:4], "gpu:h100:0(IDX:N/A)", *row[5:])), END)
    (seen,) = seen_nodes([pool()], rows, loads(jobs, []), {})
    assert seen.foreign_gpus == 1
    assert len(seen.foreign) < 40
    assert not any("later" in name or "before" in name for name in seen.foreign)


def test_processors_are_counted_where_a_pool_has_no_gpus() -> None:
    row = NODES["22.05"]
    rows = table.node_rows(printed((*row[:3], "(null)", "(null)", *row[5:])), END)
    jobs = table.job_rows(printed(("7", "RUNNING", "1000", "n1", "N/A", "None", "theirs")), END)
    (seen,) = seen_nodes([pool("cpu:96")], rows, loads(jobs, []), {})
    assert (seen.gpu_type, seen.gpu_count, seen.foreign_gpus) == ("cpu", 96, 24)


# What programs of several versions say when they fail, and whether asking again is right.
FOR_NOW = [
    "squeue: error: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
    "sinfo: fatal: Could not establish a configuration source",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    "sbatch: error: Batch job submission failed: Protocol authentication error",
    "",
]
FOR_GOOD = [
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "sbatch: error: invalid partition specified: nowhere",
    "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    "sbatch: error: Batch job submission failed: Invalid node name specified",
    "sbatch: error: Batch job submission failed: Access/permission denied",
]


@pytest.mark.parametrize("words", FOR_NOW)
def test_a_cluster_that_cannot_answer_now_is_unavailable(words: str) -> None:
    assert type(_failed("sbatch", words)) is Unavailable


@pytest.mark.parametrize("words", FOR_GOOD)
def test_what_the_cluster_will_not_do_is_rejected_in_its_words(words: str) -> None:
    error = _failed("sbatch", words)
    assert type(error) is Rejected
    assert words.removeprefix("sbatch: error: ") in str(error)


@pytest.mark.parametrize(("text", "line"), [
    ("a\nb\t c", "a b c"), ("größe ☃", "gr??e ?"), ("\x1b[2J\0x", "?[2J?x"), ("x" * 50, "x" * 17 + "..."), ("", ""),
])
def test_a_comment_is_one_short_line(text: str, line: str) -> None:
    assert printable(text, 20) == line


def test_every_mark_stands_for_a_state_that_is_known() -> None:
    assert set(states.MARKS.values()) <= set(states.NODE_STATES)
