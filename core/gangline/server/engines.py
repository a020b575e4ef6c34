"""The engines of a server, by its fleet file: the one composition root that knows them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangline.engines.base import JobEngine
from gangline.engines.local import LocalEngine
from gangline.engines.supervision import Supervision
from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet, Pool
from gangline.node.sweep import is_swept, sweep
from gangline.node.template import end as end_template
from gangline.scheduler.crew import Crew
from gangline.scheduler.loop import Loop
from gangline.server.nodekeys import NodeKeys, fleet_id
from gangline.server.state import SchedulerLoop, now_ms, volumes_root
from gangline.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How supervisors reach the server: those of this machine by `url`, all others by `node_url`, if they can."""

    url: str
    node_url: str | None = None


def make_loop(store: Store, fleet: Fleet, home: Path, reach: Reach, keys: NodeKeys) -> SchedulerLoop:
    """The scheduler over all engines of the fleet.

    Raises:
        Rejected: a pool needs what the server does not have.
    """
    template = Path(reach.url.removeprefix("unix:")).with_name("t.sock")  # beside a path that is known to fit
    local = LocalEngine(home=home, server_url=reach.url, sweep=sweep, is_swept=is_swept,
                        template_socket=template, end_template=end_template)
    name = fleet_id(home)

    def crews(wanted: Fleet) -> tuple[Crew, ...]:
        return tuple(Crew(engine=engine, pools=pools, token_of=keys.issue, now_ms=now_ms)
                     for engine, pools in hosted_engines(wanted, home, name, reach))

    return Loop(store=store, fleet=fleet, engines={"local": local}, volumes_root=volumes_root(home, fleet),
                now_ms=now_ms, fleet_id=name, make_crews=crews)


def hosted_engines(fleet: Fleet, home: Path, fleet_id: str, reach: Reach) -> list[tuple[JobEngine, tuple[Pool, ...]]]:
    """The engines behind the hosted pools, each with its pools: those of one cluster share one.

    Raises:
        Rejected: nodes of other machines could not reach the server, or an engine is not to be had here.
    """
    clusters: dict[tuple[object, ...], list[Pool]] = {}
    for pool in fleet.pools:
        if pool.mode == "delegated":
            raise Rejected("pools whose engine chooses the nodes are not available yet",
                           field=f"pools.{pool.name}.mode", fix="leave it out, and Gangline chooses")
        if pool.hosted:
            clusters.setdefault(_cluster(pool), []).append(pool)
    if not clusters:
        return []
    url = fleet.node_url or reach.node_url
    if url is None:
        first = next(pool for pool in fleet.pools if pool.hosted)
        raise Rejected(f"the nodes of pool {first.name} must reach this server over the network", field="node_url",
                       fix="start it with: gangline serve --listen HOST:PORT --token-file FILE, "
                           "and name that address as node_url in the fleet file")
    supervision = Supervision(server_url=url)
    return [(_MAKERS[pools[0].engine](tuple(pools), supervision, home, fleet_id), tuple(pools))
            for pools in clusters.values()]


def _cluster(pool: Pool) -> tuple[object, ...]:
    if pool.slurm is not None:
        return "slurm", pool.slurm.conf, pool.slurm.bin
    if pool.ray is not None:
        return "ray", pool.ray.address, pool.ray.token_file
    assert pool.kubernetes is not None
    return "kubernetes", pool.kubernetes.kubeconfig, pool.kubernetes.context, pool.kubernetes.namespace


def _slurm(pools: tuple[Pool, ...], supervision: Supervision, home: Path, fleet_id: str) -> JobEngine:
    from gangline.engines.slurm.engine import SlurmEngine

    return SlurmEngine(pools, supervision, home, fleet_id)


def _ray(pools: tuple[Pool, ...], supervision: Supervision, home: Path, fleet_id: str) -> JobEngine:
    from gangline.engines.ray.engine import RayEngine

    return RayEngine(pools, supervision, home, fleet_id)


def _kubernetes(pools: tuple[Pool, ...], supervision: Supervision, home: Path, fleet_id: str) -> JobEngine:
    from gangline.engines.kubernetes.engine import KubernetesEngine

    return KubernetesEngine(pools, supervision, home, fleet_id)


_MAKERS: dict[str, Callable[[tuple[Pool, ...], Supervision, Path, str], JobEngine]] = {
    "slurm": _slurm, "ray": _ray, "kubernetes": _kubernetes}
