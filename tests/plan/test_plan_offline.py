"""`gangline plan` on files: the JSON it gives, what it refuses, and how it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.cli.offline import plan_files, render_plan
from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet, Scheduling
from gangline.plan.declared import policy_of
from gangline.plan.policy import HOUR_MS, POLICIES

FLEET = Fleet.parse({
    "pools": [
        {"name": "b300-z1", "gpu": "B300:8", "zone": "zone-1", "fabric": "ib-1", "min": 4, "max": 4,
         "rdma": {"kind": "infiniband", "gbps": 6400}, "boot": "180s", "price_per_gpu_hour": "7.10"},
        {"name": "h100-z2", "gpu": "H100:8", "zone": "zone-2", "fabric": "ib-2", "min": 1, "max": 8,
         "rdma": {"kind": "infiniband", "gbps": 3200}, "boot": "180s", "price_per_gpu_hour": "3.10"}]})
A = {"name": "A", "size": 4, "gpu": "B300:8", "rdma": True, "command": ["train"]}
B = {"name": "B", "size": 2, "gpu": "H100:8", "rdma": True, "command": ["train"]}


def ticks() -> Any:
    seconds = iter([10.0, 10.0125])
    return lambda: next(seconds)


def test_the_known_pass_as_json() -> None:
    made = plan_files(FLEET, [A, B], timer=ticks())
    assert json.loads(json.dumps(made)) == {
        "placements": [{
            "gang": "A", "attempt": 1, "zone": "zone-1", "fabric": "ib-1",
            "nodes": [{"node": f"b300-z1-{i}", "gpus": list(range(8))} for i in (1, 2, 3, 4)]}],
        "capacity": [{"pool": "h100-z2", "nodes": 1, "for": ["B"]}],
        "preemptions": [],
        "waiting": [{
            "gang": "B", "earliest_start_s": 180.0,
            "reason": {"code": "capacity", "short": 1, "blocked_by": [],
                       "text": "needs 2 x H100:8 on one fabric; 1 is free in fabric ib-2 and kept for it; "
                               "1 node asked of pool h100-z2"}}],
        "reservations": [{"gang": "B", "nodes": ["h100-z2-1"], "at_s": 180.0}],
        "pass_ms": 12.5,
    }


def test_the_order_of_the_file_changes_nothing() -> None:
    one, other = plan_files(FLEET, [A, B], timer=ticks()), plan_files(FLEET, [B, A], timer=ticks())
    assert one == other


def test_running_gangs_hold_their_nodes_until_their_timeout() -> None:
    running = {**A, "name": "old", "timeout": "10m",
               "running": {"nodes": [f"b300-z1-{i}" for i in (1, 2, 3, 4)], "since_s": 60}}
    made = plan_files(FLEET, [{**A, "submitted_s": 120}, running], timer=ticks())
    (wait,) = made["waiting"]
    assert (wait["reason"]["code"], wait["reason"]["blocked_by"]) == ("busy", ["old"])
    assert wait["earliest_start_s"] == 660.0
    assert made["reservations"][0]["at_s"] == 660.0


def test_a_running_single_holds_part_of_its_node() -> None:
    running = {"name": "eval", "gpu": "H100:2", "command": ["e"], "running": {"nodes": ["h100-z2-1"]}}
    made = plan_files(FLEET, [running, {"name": "next", "gpu": "H100:2", "command": ["e"]}], timer=ticks())
    assert made["placements"][0]["nodes"] == [{"node": "h100-z2-1", "gpus": [2, 3]}]


def test_declared_states_decide_what_takes_work() -> None:
    fleet = Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "boot": "60s", "max": 4}], "nodes": [
        {"name": "n1", "pool": "p"}, {"name": "n2", "pool": "p", "state": "draining"},
        {"name": "n3", "pool": "p", "state": "quarantined"},
        {"name": "n4", "pool": "p", "state": "booting"}]})
    made = plan_files(fleet, [{"name": "g", "size": 2, "gpu": "H100:8", "command": ["x"]}], timer=ticks())
    assert made["reservations"] == [{"gang": "g", "nodes": ["n1", "n4"], "at_s": 60.0}]
    assert made["capacity"] == []


KEPT = Fleet.parse({
    "pools": [{"name": "p", "gpu": "H100:8", "min": 4, "idle": "10m", "warm": 1, "spares": 1, "delay": "1m"}],
    "tenants": [{"name": "a", "quota": {"H100": 16}}, {"name": "b", "weight": 2}],
    "nodes": [{"name": f"n{i}", "pool": "p", "path": ["l1"], "domain": f"d{i // 2}"} for i in range(4)],
    "scheduling": {"min_runtime": "1m", "fair": False}})
SMALL = {"gpu": "H100:8", "command": ["x"]}


def test_tenants_domains_spares_and_elastic_sizes_are_read() -> None:
    made = plan_files(KEPT, [{**SMALL, "name": "g", "size": 3, "tenant": "a"},
                             {**SMALL, "name": "h", "size": 2, "domain_size": 2},
                             {**SMALL, "name": "e", "size": "1..4"}], timer=ticks())
    assert [w["reason"]["code"] for w in made["waiting"]] == ["quota"]
    assert {p["gang"]: [n["node"] for n in p["nodes"]] for p in made["placements"]} == {
        "h": ["n0", "n1"], "e": ["n2"]}  # n3 is the spare


def test_the_files_scheduling_is_a_named_policy_and_what_differs_from_it() -> None:
    assert policy_of(KEPT.scheduling) == replace(POLICIES["submit-order"], min_runtime_ms=60_000, fair=False)
    short = Scheduling(policy="short-first", reserve_first=0, protect_after="2h", age_after="1d", preempt=False,
                       cool_down="5m", resize_every="1h")
    assert policy_of(short) == replace(
        POLICIES["short-first"], reserve_first=0, protect_after_ms=2 * HOUR_MS, age_after_ms=24 * HOUR_MS,
        preempt=False, cool_down_ms=300_000, resize_every_ms=HOUR_MS)


def test_preemptions_name_for_whom_and_every_gang_that_waits_has_an_entry() -> None:
    running = {**SMALL, "name": "low", "size": 3, "priority": "low",
               "running": {"nodes": ["n0", "n1", "n2"], "since_s": 0}}
    asked = [{**SMALL, "name": name, "size": 4, "priority": "high", "submitted_s": 120} for name in ("x", "y")]
    fleet = KEPT.model_copy(update={"pools": (KEPT.pools[0].model_copy(update={"spares": 0}),)})
    made = plan_files(fleet, [running, *asked], timer=ticks())
    assert made["preemptions"] == [{"gang": "low", "for": ["x"], "reclaim": False}]
    assert [w["gang"] for w in made["waiting"]] == ["x", "y"]
    assert "makes room" in render_plan(made)


def test_an_elastic_gang_that_runs_grows_when_nothing_waits() -> None:
    fleet = KEPT.model_copy(update={"pools": (KEPT.pools[0].model_copy(update={"spares": 0}),)})
    running = {**SMALL, "name": "e", "size": "1..3", "running": {"nodes": ["n0", "n1"], "since_s": 0}}
    made = plan_files(fleet, [running], now_ms=3_600_000, timer=ticks())
    assert made["resizes"] == [{"gang": "e", "size": 3, "gives_up": [], "for": []}]
    assert "goes on with 3 nodes" in render_plan(made)


def test_names_given_twice_are_told_apart() -> None:
    made = plan_files(FLEET, [{**B, "size": 1}, {**B, "size": 1}], timer=ticks())
    assert [p["gang"] for p in made["placements"]] == ["B"]
    assert [w["gang"] for w in made["waiting"]] == ["B#2"]


@pytest.mark.parametrize(("entry", "message"), [
    ({**A, "running": {"nodes": ["n9", "a", "b", "c"]}},
     "gangs[1].running.nodes: the fleet has no node n9 (use a node of the fleet file)"),
    ({**B, "running": {"nodes": ["h100-z2-1"]}}, "gangs[1].running.nodes: names 1 nodes; the gang has 2"),
    ({**B, "size": 1, "running": {"nodes": ["b300-z1-1"]}},
     "gangs[1].running.nodes: node b300-z1-1 is B300:8, which the gang does not ask for"),
    ({**A, "running": {"nodes": ["b300-z1-1"] * 4}}, "gangs[1].running.nodes: node b300-z1-1 has 0 of the 8 "
     "GPUs free; another gang of the file runs there"),
    ({**A, "running": {}}, "gangs[1].running.nodes: is required (add it)"),
    ({**A, "sizes": 3}, "gangs[1].sizes: unknown field (remove it or check its spelling)"),
    ({**A, "size": "2..3", "running": {"nodes": ["b300-z1-1"]}},
     "gangs[1].running.nodes: names 1 nodes; the gang has 2..3"),
    ({**A, "submitted_s": -1}, "gangs[1].submitted_s: -1 is too small (write 0 or more)"),
    ("A", "gangs[1]: expected a gang: a mapping with name, size, gpu and command"),
])
def test_a_wrong_entry_is_refused_by_its_field(entry: Any, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        plan_files(FLEET, [A, entry], timer=ticks())
    assert str(caught.value) == message


def test_people_read_the_same_plan() -> None:
    single = {"name": "eval", "gpu": "H100:1", "timeout": "2m", "command": ["x"]}
    text = render_plan(plan_files(FLEET, [A, B, single], timer=ticks()), width=200)
    for part in ("starts now", "b300-z1-1[0-7], b300-z1-2[0-7]", "zone-1 / ib-1", "h100-z2-1[0]", "+1",
                 "capacity: needs 2 x H100:8 on one fabric", "at 3m00s", "one pass took 12.5 ms"):
        assert part in text
    assert "\x1b" not in text
    assert "\x1b" in render_plan(plan_files(FLEET, [A], timer=ticks()), colour=True)
    assert "no gang is pending" in render_plan(plan_files(FLEET, [], timer=ticks()))
