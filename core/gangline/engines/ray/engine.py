"""The Ray engine: supervisors run as detached actors of a Ray cluster that others may use too."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NoReturn

from gangline.engines.base import TAG, Job, NodeStatus, Request, SeenJob, Sight
from gangline.engines.ray.link import EnvoyLink
from gangline.engines.ray.sight import seen_job, seen_node, unit_of
from gangline.engines.ray.wire import BundleAsk, JobAsk
from gangline.engines.supervision import Supervision
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool
from gangline.model.node import NodeView

_LOOK_WITHIN_S = 30.0
_LAUNCH_WITHIN_S = 60.0  # a thousand actors are registered in it
_STOP_WITHIN_S = 30.0
_FOLDER = "ray"


class RayEngine:
    """Nodes and jobs of one Ray cluster, for the pools of one fleet that are on it.

    The server's machine must be a node of the cluster: Ray has no other way in that shows its nodes and takes
    placement groups.
    """

    name = "ray"

    def __init__(self, pools: tuple[Pool, ...], supervision: Supervision, home: Path, fleet: str) -> None:
        settings = pools[0].ray
        assert settings is not None
        loopback = _loopback(settings.address, settings.token_file)
        self._pools = {pool.name: pool for pool in pools}
        self._supervision = supervision
        self._asked: dict[str, str] = {}  # nodes the autoscaler was asked for, by the names they are planned under
        self._counts: Counter[str] = Counter()  # nodes of each pool when it was last asked
        folder = home / _FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        arguments = ["--address", settings.address, "--fleet", fleet, "--folder", str(folder / "jobs")]
        if loopback is not None:  # Ray takes no loopback address for its own unless it is told
            arguments += ["--node-address", loopback]
        env = {"RAY_USAGE_STATS_ENABLED": "0"}
        if settings.token_file is not None:
            env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": settings.token_file}
        self.link = EnvoyLink(f"Ray at {settings.address}", arguments, env, folder / f"envoy-{fleet}.log")

    # -- nodes and jobs ------------------------------------------------------------------------------

    def observe(self) -> Sight:
        look = self.link.call("look", _LOOK_WITHIN_S)
        nodes = (seen_node(facts, self._pools.values()) for facts in look["nodes"])
        return Sight(nodes=tuple(node for node in nodes if node is not None),
                     jobs=tuple(seen_job(facts) for facts in look["jobs"]))

    def prepare(self, job: Job) -> Request:
        pool = self._pools.get(job.pool)
        if pool is None or pool.ray is None:
            raise Rejected(f"job {job.name} is for pool {job.pool!r}, which is not on this Ray cluster")
        names = [part.node for part in job.nodes]
        if not names or len(set(names)) < len(names) or any(part.gpus < 1 for part in job.nodes):
            raise Rejected(f"job {job.name} asks for {names}: name each node once, with at least 1 GPU (or processor)")
        body = JobAsk(name=job.name, argv=self._supervision.argv(pool, job), bundles=[
            BundleAsk(node=part.node, unit=unit_of(pool), counted=part.gpus, whole=part.whole,
                      extra=dict(pool.ray.custom_resources)) for part in job.nodes])
        lines = [f"a placement group {job.name}, strictly spread, and on each node a detached actor that runs",
                 f"  {json.dumps(body['argv'])}"]
        lines += [f"  {part.node}: {'the whole node' if part.whole else f'{part.gpus} {unit_of(pool)}'}"
                  for part in job.nodes]
        return Request(job=job, text="\n".join(lines), body=body)

    def launch(self, request: Request, token: str) -> str:
        return str(self.link.call("launch", _LAUNCH_WITHIN_S, ask=request.body, token=token))

    def poll_many(self, names: Collection[str]) -> Mapping[str, SeenJob]:
        if not names:
            return {}
        known = self.link.call("poll", _LOOK_WITHIN_S, names=list(names))
        return {facts["name"]: seen_job(facts) for facts in known}

    def stop(self, name: str, grace_s: float) -> None:
        self.link.call("stop", _STOP_WITHIN_S, name=name, grace_s=grace_s)

    def logs(self, name: str) -> str:
        return str(self.link.call("logs", _LOOK_WITHIN_S, name=name))

    # -- capacity ------------------------------------------------------------------------------------

    def provision(self, nodes: Collection[NodeView]) -> None:
        self._asked |= {node.node: node.pool for node in nodes}
        self._request(without=set())

    def release(self, nodes: Collection[NodeView]) -> None:
        names = {node.node for node in nodes}
        self._asked = {name: pool for name, pool in self._asked.items() if name not in names}
        self._request(without=names)

    def _request(self, without: set[str]) -> None:
        """Tell the autoscaler how large the cluster is to be: what there is and what was asked for; it takes idle
        nodes beyond that away, after a time of its own and by its own choice."""
        there = {node.name: node.pool for node in self.observe().nodes if node.status is not NodeStatus.DOWN}
        counts = Counter(there.values())
        for pool in self._pools:  # a node that was asked for comes up under a name of Ray's choice
            came = counts[pool] - self._counts.get(pool, counts[pool])
            for name in [name for name, of in self._asked.items() if of == pool][:max(0, came)]:
                del self._asked[name]
        self._counts = counts
        pools = [self._pools[pool] for name, pool in {**self._asked, **there}.items() if name not in without]
        self.link.call(
            "request", _STOP_WITHIN_S, bundles=[{unit_of(pool): float(pool.ask.count)} for pool in pools],
            selectors=[dict(pool.ray.labels) if pool.ray is not None else {} for pool in pools])

    # -- nodes out of service ------------------------------------------------------------------------

    def drain(self, node: str, reason: str) -> None:
        """Always Rejected: what Ray calls a drain ends in the node's death and cannot be lifted."""
        self._cannot(f"take node {node} out of service and put it back later")

    def resume(self, node: str) -> None:
        """Nothing to lift: no drain in Ray is ours."""

    def reboot(self, node: str) -> None:
        self._cannot(f"reboot node {node}")

    def _cannot(self, what: str) -> NoReturn:
        raise Rejected(f"Ray cannot {what}", fix=f"a drain in {TAG} keeps its own gangs away; stop the raylet with "
                                                 "`ray stop` on the node to keep everybody away")

    # -- watching ------------------------------------------------------------------------------------

    def on_change(self, callback: Callable[[], None]) -> None:
        self.link.on_change(callback)

    def close(self) -> None:
        self.link.close()


def _loopback(address: str, token_file: str | None) -> str | None:
    """The head's host, when it is a loopback address.

    Raises:
        Rejected: the address is none, or others can reach it and Ray's token is not named.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or "/" in host:
        raise Rejected(f"{address!r} is no address of a Ray head; write HOST:PORT of its GCS, such as 10.0.0.1:6379",
                       field="ray.address")
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback and token_file is None:
        raise Rejected(f"the Ray head {address} can be reached by others, who could run anything there without a token",
                       field="ray.token_file", fix="start Ray with RAY_AUTH_MODE=token and name the token's file here")
    return host if loopback else None
