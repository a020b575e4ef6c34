"""The envoy's side of Ray: jobs as placement groups with a warden on each bundle.

A job is a detached placement group of its name, strictly spread, each bundle pinned to one raylet by its id, and
one detached actor per bundle that is never restarted. Ray would re-place a lost bundle elsewhere and leave the
rest as it is; a gang is all or nothing, so the loss of any part ends the whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any

from gangline.engines.base import parse_job_name
from gangline.engines.ray import warden
from gangline.engines.ray.endings import Ending, Endings
from gangline.engines.ray.guarded import BREAK_GRACE_S, Guarded
from gangline.engines.ray.tables import ID_LABEL, Group, Tables, unready_actors
from gangline.engines.ray.wire import BundleAsk, JobAsk, JobFacts, Look, NodeFacts
from gangline.engines.supervision import TOKEN_ENV
from gangline.model.errors import Rejected, Unavailable

_REGISTERED_WITHIN_S = 10.0
_TAIL_WITHIN_S = 5.0
_HELD = "held by Ray until all of its nodes have what it asks for"


class Cluster:
    """Jobs of one fleet on the Ray cluster that this process is connected to."""

    def __init__(self, fleet: str, endings: Endings) -> None:
        import ray

        self._fleet = fleet
        self._endings = endings
        self._jobs: dict[str, Guarded] = {}
        ray.cloudpickle.register_pickle_by_value(warden)
        self._warden = ray.remote(warden.Warden)

    def look(self) -> Look:
        """Nodes, and every job of this fleet that Ray has or remembers."""
        tables = self._read()
        return Look(nodes=tables.nodes(set(self._ours(tables))), jobs=self._facts(tables))

    def poll(self, names: list[str]) -> list[JobFacts]:
        """Those of the jobs that Ray has, or whose end is remembered here."""
        known = {facts["name"]: facts for facts in self._facts(self._read())}
        return [facts for name in names if (facts := known.get(name) or self._remembered(name)) is not None]

    def launch(self, ask: JobAsk, token: str) -> str:
        """Ask for the whole job, or complete what a crash left of asking; the id of its placement group."""
        name, tables = ask["name"], Tables()
        if (over := self._over(name, tables)) is not None:
            return over
        nodes = _planned(tables, ask)
        group = self._group(ask, nodes)
        for index, bundle in enumerate(ask["bundles"]):
            self._place(ask, index, bundle, nodes[bundle["node"]], group, token)
        _wait_registered({f"{name}.{index}" for index in range(len(ask["bundles"]))})
        self._adopt(name, group.id.hex(), [bundle["node"] for bundle in ask["bundles"]])
        return str(group.id.hex())

    def stop(self, name: str, grace_s: float) -> None:
        """Have its supervisors leave; a job that waits is given up at once."""
        tables = self._read()
        job = self._jobs.get(name)
        if job is None:
            return
        if tables.groups[job.id].waiting:
            self._finish(job, "it was stopped before it began")
        else:
            job.end(grace_s, "it was stopped")

    def logs(self, name: str) -> str:
        """What its supervisors said, node by node."""
        self._read()
        if name in self._jobs:
            return self._jobs[name].log(_TAIL_WITHIN_S, warden.LOG_BYTES)
        ending = self._endings.get(name)
        return "" if ending is None else ending["log"]

    def request(self, bundles: list[dict[str, float]], selectors: list[dict[str, str]]) -> None:
        """The size that Ray's autoscaler is to keep the cluster at, at least; replaces the request before."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=bundles, bundle_label_selectors=selectors)

    def tend(self) -> bool:
        """See to jobs whose supervisors have ended, or that are broken; whether one is over now."""
        finished = False
        for job in list(self._jobs.values()):
            job.heed()
            if job.broken and not job.ending:
                job.end(BREAK_GRACE_S, job.broken)
            if job.over:
                self._finish(job, job.verdict)
                finished = True
        return finished

    @property
    def guarding(self) -> bool:
        """Whether there is anything to tend."""
        return bool(self._jobs)

    # -- jobs ----------------------------------------------------------------------------------------

    def _ours(self, tables: Tables) -> dict[str, Group]:
        return {id_: group for id_, group in tables.groups.items()
                if (parts := parse_job_name(group.name)) is not None and parts[0] == self._fleet}

    def _read(self) -> Tables:
        """The tables, once every job in them is guarded and has been tended."""
        tables = Tables()
        active = set()
        for group in self._ours(tables).values():
            if not group.removed and not self._half_removed(group):
                active.add(group.name)
                self._guard(group, tables)
        for name in self._jobs.keys() - active:  # another server has seen to them
            del self._jobs[name]
        if self.tend():
            tables = Tables()
        return tables

    def _guard(self, group: Group, tables: Tables) -> None:
        """Know the job, and end it when one of its nodes is lost: Ray would go on with the rest."""
        job = self._adopt(group.name, group.id, tables.places(group))
        for index in tables.lost(group):
            job.lose(index, "its node is gone")
        if job.broken and group.waiting:
            self._finish(job, job.broken)

    def _over(self, name: str, tables: Tables) -> str | None:
        """The id of a job that has ended or is being ended: its name is not used again."""
        if (job := self._jobs.get(name)) is not None and job.ending:
            return job.id
        if (ending := self._endings.get(name)) is not None:
            return ending["id"]
        return next((group.id for group in self._ours(tables).values() if group.name == name and group.removed), None)

    def _half_removed(self, group: Group) -> bool:
        """Whether its end was written down already: then what Ray still has of it is taken away again."""
        ending = None if group.name in self._jobs else self._endings.get(group.name)
        if ending is None or ending["id"] != group.id:
            return False
        Guarded(group.name, group.id, self.namespace, []).remove()
        return True

    def _adopt(self, name: str, id_: str, nodes: list[str]) -> Guarded:
        job = self._jobs.get(name)
        if job is None or job.id != id_:
            job = self._jobs[name] = Guarded(name, id_, self.namespace, nodes)
        job.settle()
        return job

    def _facts(self, tables: Tables) -> list[JobFacts]:
        found = {}
        for group in self._ours(tables).values():
            job = self._jobs.get(group.name)
            if job is not None and job.id == group.id:
                found[group.name] = JobFacts(name=job.name, id=job.id, state=group.state, nodes=job.nodes,
                                             text=_HELD if group.waiting else job.text)
            elif group.name not in found:
                found[group.name] = self._remembered(group.name) or JobFacts(
                    name=group.name, id=group.id, state="REMOVED", nodes=tables.places(group),
                    text="its placement group was removed")
        return list(found.values())

    def _remembered(self, name: str) -> JobFacts | None:
        ending = self._endings.get(name)
        return None if ending is None else JobFacts(
            name=name, id=ending["id"], state="REMOVED", nodes=ending["nodes"], text=ending["text"])

    def _finish(self, job: Guarded, text: str) -> None:
        """Its end is written down before anything that tells of it is taken away; who was first knows best."""
        written = self._endings.get(job.name)
        if written is None or written["id"] != job.id:
            self._endings.put(job.name, Ending(id=job.id, nodes=job.nodes, text=text,
                                               log=job.log(0.0, warden.LOG_BYTES)))
        job.remove()
        del self._jobs[job.name]

    # -- launching -----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        """Ray's namespace of this fleet's actors and groups."""
        return f"gangline-{self._fleet}"

    def _group(self, ask: JobAsk, nodes: Mapping[str, NodeFacts]) -> Any:
        import ray
        from ray.util.placement_group import get_placement_group, placement_group

        for found in (False, True):
            with contextlib.suppress(ValueError):  # there is none of that name
                return get_placement_group(ask["name"])
            try:
                return placement_group(
                    [bundle_of(bundle, nodes[bundle["node"]]["total"]) for bundle in ask["bundles"]],
                    strategy="STRICT_SPREAD", name=ask["name"], lifetime="detached",
                    bundle_label_selector=[{ID_LABEL: nodes[bundle["node"]]["id"]} for bundle in ask["bundles"]])
            except ray.exceptions.RaySystemError as error:  # another server was quicker
                if found or "already exists" not in str(error):
                    raise
        raise Unavailable(f"placement group {ask['name']} comes and goes")

    def _place(self, ask: JobAsk, index: int, bundle: BundleAsk, node: NodeFacts, group: Any, token: str) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        argv = [*ask["argv"], "--node", node["name"], "--address", node["address"]]
        asked = bundle_of(bundle, node["total"])
        self._warden.options(
            name=f"{ask['name']}.{index}", namespace=self.namespace, lifetime="detached", get_if_exists=True,
            max_restarts=0, max_task_retries=0, num_cpus=0, num_gpus=asked.get("GPU", 0), resources=bundle["extra"],
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote(leashed(argv), TOKEN_ENV, token)


def leashed(argv: list[str]) -> list[str]:
    """The supervisor's command line, held by the leash, which the same Python runs."""
    return [argv[0], "-P", "-m", "gangline.engines.ray.leash", *argv]


def bundle_of(ask: BundleAsk, total: Mapping[str, float]) -> dict[str, float]:
    """What Ray is asked for on a node; processors go along with GPUs in proportion.

    Whole nodes ask for all that others could be given, so that nobody else gets in.

    Raises:
        Rejected: the node never has that much.
    """
    unit, have = ask["unit"], total.get(ask["unit"], 0.0)
    if ask["counted"] > have:
        raise Rejected(f"node {ask['node']} has {have:g} {unit}, not {ask['counted']}")
    asked = {unit: float(ask["counted"])}
    if ask["whole"]:
        asked = {name: total[name] for name in ("GPU", "CPU") if total.get(name)}
    elif unit == "GPU":
        asked["CPU"] = float(total.get("CPU", 0.0) * ask["counted"] // have)
    for name, count in ask["extra"].items():
        if count > total.get(name, 0.0):
            raise Rejected(f"node {ask['node']} has {total.get(name, 0.0):g} {name}, not {count:g}",
                           fix="see the pool's custom_resources")
    return {name: count for name, count in {**asked, **ask["extra"]}.items() if count}


def _planned(tables: Tables, ask: JobAsk) -> dict[str, NodeFacts]:
    alive = tables.alive()
    for bundle in ask["bundles"]:
        if bundle["node"] not in alive:
            raise Unavailable(f"node {bundle['node']} is not in the Ray cluster now")
    return alive


def _wait_registered(names: Collection[str]) -> None:
    """Until Ray would go on with these actors though this process died."""
    deadline_s = time.monotonic() + _REGISTERED_WITHIN_S
    while unready := unready_actors() & set(names):
        if time.monotonic() > deadline_s:
            raise Unavailable(f"Ray has not taken {', '.join(sorted(unready))} within {_REGISTERED_WITHIN_S:g} s")
        time.sleep(0.01)
