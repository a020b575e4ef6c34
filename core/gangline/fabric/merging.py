"""What a topology changes in a fleet: paths, domains, and nodes the fleet does not name yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.fabric.pooling import PoolChoice, Pools
from gangline.fabric.topology import Finding, Place, Topology
from gangline.model.fleet import DeclaredNode, Fleet, Pool

MOST_NAMED = 5  # how many nodes a finding names


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A fleet with a topology in it, and how it came from the fleet before.

    `changed` pairs nodes before and after, `grown` pools. `unknown` are nodes of the fleet that the
    source does not tell of: they stay as they are. `replaced` are nodes that a pool made up because it
    declared none. `left_out` are nodes without GPUs that no pool wants.
    """

    fleet: Fleet
    added: tuple[DeclaredNode, ...] = ()
    changed: tuple[tuple[DeclaredNode, DeclaredNode], ...] = ()
    unknown: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = ()
    grown: tuple[tuple[Pool, Pool], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the fleet is another one now."""
        return bool(self.added or self.changed or self.pools or self.grown)


def merge(fleet: Fleet | None, topology: Topology, choice: PoolChoice, source: str) -> Merge:
    """The fleet (None: there is none yet) with what a topology from `source` tells of its nodes.

    Raises:
        Rejected: it cannot be known to which pool a new node belongs, or the fleet would not be valid.
    """
    work = _Work(() if fleet is None else fleet.pools, () if fleet is None else fleet.nodes,
                 () if fleet is None else fleet.all_nodes(), choice, topology.format)
    for place in topology.places:
        work.take(place)
    return work.finish(fleet, topology, source)


@dataclass(slots=True)
class _Work:
    """The fleet as it grows. A pool that declares no node has `made` ones, whose names the source may use."""

    _pools: Iterable[Pool]
    declared: Iterable[DeclaredNode]
    every: Iterable[DeclaredNode]
    choice: PoolChoice
    format: str
    pools: Pools = field(init=False)
    nodes: dict[str, DeclaredNode] = field(init=False)
    made: dict[str, DeclaredNode] = field(init=False)
    added: dict[str, DeclaredNode] = field(init=False, default_factory=dict)
    changed: dict[str, tuple[DeclaredNode, DeclaredNode]] = field(init=False, default_factory=dict)
    left_out: list[str] = field(init=False, default_factory=list)
    told: dict[str, Place] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pools = Pools(self._pools, self.choice, self.format)
        self.nodes = {node.name: node for node in self.declared}
        self.made = {node.name: node for node in self.every if node.name not in self.nodes}

    def take(self, place: Place) -> None:
        if place.node in self.made:
            # Its pool declares its nodes from now on, so that the others of it do not vanish.
            for node in [node for node in self.made.values() if node.pool == self.made[place.node].pool]:
                self.added[node.name] = self.nodes[node.name] = self.made.pop(node.name)
        known = self.nodes.get(place.node)
        if known is None:
            pool = self.pools.of(place)
            if pool is None:
                self.left_out.append(place.node)
                return
            known = self.added[place.node] = self.nodes[place.node] = DeclaredNode(name=place.node, pool=pool)
        self.told[place.node] = place
        node = known.model_copy(update={"path": place.path or known.path, "domain": place.domain or known.domain})
        if node != known:
            self.nodes[node.name] = node
            if node.name in self.added:
                self.added[node.name] = node
            else:
                self.changed[node.name] = (known, node)

    def finish(self, fleet: Fleet | None, topology: Topology, source: str) -> Merge:
        counts = Counter(node.pool for node in self.nodes.values())
        pools, grown = self.pools.sized(counts)
        findings = [*topology.findings, *self._doubts(pools, source)]
        whole = Fleet.parse({**({} if fleet is None else fleet.wire()), "pools": [pool.wire() for pool in pools],
                             "nodes": [node.wire() for node in self.nodes.values()]})
        before = () if fleet is None else fleet.pools
        return Merge(
            fleet=whole, added=tuple(self.added.values()), changed=tuple(self.changed.values()),
            unknown=tuple(node for node in self.nodes if node not in self.told),
            replaced=tuple(node.name for node in self.made.values() if counts[node.pool]),
            left_out=tuple(self.left_out), pools=tuple(pools[len(before):]), grown=grown, findings=tuple(findings))

    def _doubts(self, pools: Iterable[Pool], source: str) -> Iterable[Finding]:
        """Where the source and the pools do not agree."""
        by_pool: dict[str, list[Place]] = defaultdict(list)
        for name, place in self.told.items():
            by_pool[self.nodes[name].pool].append(place)
        for pool in pools:
            for text in _doubts_of(pool, by_pool[pool.name]):
                yield Finding(where=source, text=text)


def _doubts_of(pool: Pool, places: list[Place]) -> Iterable[str]:
    other = [f"{place.node}: {place.gpu}" for place in places if place.gpu not in (None, pool.gpu)]
    if other:
        yield f"pool {pool.name} has {pool.gpu} per node, but not on {_some(other)}"
    other = [f"{place.node}: {place.zone}" for place in places if place.zone not in (None, pool.zone)]
    if other:
        yield f"pool {pool.name} is in zone {pool.zone}, but not {_some(other)}"
    roots = sorted({place.path[0] for place in places if place.path})
    if len(roots) > 1 and pool.fabric is not None:
        yield (f"nodes of pool {pool.name} hang on {len(roots)} roots ({_some(roots)}), and it is one fabric; "
               "if nothing joins them, make a pool for each")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

