"""A small fleet, hand-written reports and a greedy planner: the service without any process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gangline.model.fleet import Fleet
from gangline.model.gang import Ensured, GangView, Submission
from gangline.model.orders import (
    Empty,
    Hello,
    OpenSave,
    Order,
    OrderPhase,
    RankExit,
    RankSaved,
    Ready,
    Report,
    Reports,
    Started,
)
from gangline.model.spec import GangSpec
from gangline.model.states import Cause
from gangline.model.volume import FileEntry
from gangline.plan.outcome import NodeChoice, Placement, Plan
from gangline.plan.snapshot import Snapshot
from gangline.service import fleet as fleet_service
from gangline.service import life, loop, nodes, saves, submit, views
from gangline.store import Store
from gangline.store.database import fill_memory, open_engine

FLEET = Fleet.parse({"pools": [{"name": "p", "gpu": "H100:2", "min": 4, "emulated": True, "boot": "60s",
                                "max": 6, "fabric": "ib", "zone": "z", "price_per_gpu_hour": "3.60"}]})


_ENGINE = open_engine("sqlite://")


def fresh_store() -> Store:
    """An empty store in memory. One engine serves all of them, so statements are compiled once."""
    fill_memory(_ENGINE)
    return Store(_ENGINE)


def spec(**fields: Any) -> GangSpec:
    return GangSpec.parse({"name": "job", "size": 2, "gpu": "H100:2", "command": ["true"], **fields})


def submission(slot: str = "dag/run/step", epoch: int = 0, *, snapshot: str | None = None,
               **fields: Any) -> Submission:
    return Submission(slot=slot, epoch=epoch, spec=spec(**fields), snapshot=snapshot)


def greedy(snapshot: Snapshot, sizes: Mapping[str, int] = MappingProxyType({})) -> Plan:
    """Places each pending gang in order on what it holds and on any free whole nodes.

    An elastic gang gets the number of nodes that `sizes` says, else as many as there are.
    """
    free = {node.name: node for node in snapshot.nodes if node.usable and node.whole}
    by_name = {node.name: node for node in snapshot.nodes}
    placements = []
    for gang in snapshot.pending:
        held = [h.node for h in gang.held if by_name[h.node].usable]
        most = sizes.get(gang.gang, max(gang.most, gang.nodes))
        names = (held + [n for n in free if n not in gang.exclude])[:most]
        if len(names) < min(gang.nodes, most) or any(len(role.asks) < 1 for role in gang.roles):
            continue
        roles = [(role.name, role.asks[0]) for role in gang.roles
                 for _ in range(len(names) if len(gang.roles) == 1 else role.size)]
        choices = tuple(NodeChoice(node=name, gpus=tuple(range(by_name[name].gpu.count)), ask=ask, role=role)
                        for name, (role, ask) in zip(names, roles, strict=True))
        for name in names:
            free.pop(name, None)
        placements.append(Placement(gang=gang.gang, nodes=choices, zone="z", fabric="ib"))
    return Plan(base=snapshot.version, placements=tuple(placements))


@dataclass
class World:
    """The server's side in one object, with a clock and ids that tests can foresee."""

    store: Store
    root: Path
    fleet: Fleet = FLEET
    now_ms: int = 1_000_000
    made: int = 0
    tokens: dict[str, str] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fleet_service.sync_fleet(self.store, self.fleet, now_ms=self.now_ms)
        for node in views.nodes(self.store):
            self.hello(node.node)

    def later(self, seconds: float) -> int:
        self.now_ms += round(seconds * 1000)
        return self.now_ms

    def new_id(self) -> str:
        self.made += 1
        return f"g-{self.made:012d}"

    def new_token(self) -> str:
        self.made += 1
        return f"token-{self.made}"

    def hello(self, node: str, incarnation: str | None = None) -> str:
        incarnation = incarnation or f"{node}/{self.incarnations.get(node, '').count('+') + 1}" + "+" * (
            self.incarnations.get(node, "").count("+") + 1)
        self.incarnations[node] = incarnation
        nodes.hello(self.store, Hello(node=node, incarnation=incarnation, pid=1, start_time=1.0,
                                      boot_id="b", address=""), now_ms=self.now_ms)
        return incarnation

    def ensure(self, *submissions: Submission, **options: Any) -> list[Ensured]:
        ensured = submit.ensure_many(self.store, submissions, now_ms=self.now_ms, new_id=self.new_id,
                                     new_token=self.new_token, **options)
        self.tokens.update({one.gang: one.token for one in ensured})
        return ensured

    def submit(self, slot: str = "dag/run/step", epoch: int = 0, **fields: Any) -> str:
        return self.ensure(submission(slot, epoch, **fields))[0].gang

    def plan(self, **sizes: int) -> loop.Committed:
        """A greedy pass; `sizes` says how many nodes elastic gangs get, by name."""
        with self.store.transaction() as tx:
            by_id = {gang.id: sizes[gang.name] for gang in tx.gangs.unfinished() if gang.name in sizes}
        seen = loop.snapshot(self.store, self.fleet, now_ms=self.now_ms)
        return loop.commit_plan(self.store, greedy(seen, by_id), now_ms=self.now_ms)

    def preempt(self, gang: str, *for_gangs: str) -> bool:
        with self.store.transaction() as tx:
            return life.preempt(tx, tx.gangs.get(gang), for_gangs, self.now_ms)

    def resize(self, gang: str, size: int, *give_up: str, for_gangs: Sequence[str] = ()) -> bool:
        with self.store.transaction() as tx:
            return life.resize(tx, tx.gangs.get(gang), size, give_up, self.now_ms, for_gangs=for_gangs)

    def leases(self, gang: str) -> dict[str, int]:
        """The ids of the gang's open leases, by node."""
        with self.store.transaction() as tx:
            return {lease.node: lease.id for lease in tx.leases.open_of(gang)}

    def view(self, gang: str) -> GangView:
        return views.observe(self.store, gang, now_ms=self.now_ms)

    def orders(self, node: str) -> tuple[Order, ...]:
        return nodes.orders(self.store, node, self.incarnations[node], now_ms=self.now_ms,
                            volumes_root=self.root).orders

    def order(self, gang: str) -> dict[str, Order]:
        """The gang's order on each node of its attempt that has one."""
        names = [share.node for share in self.view(gang).attempts[-1].nodes]
        return {node: order for node in names for order in self.orders(node) if order.gang == gang}

    def report(self, node: str, *reports: Report) -> int:
        return nodes.reports(self.store, node, Reports(incarnation=self.incarnations[node], reports=reports),
                             now_ms=self.now_ms)

    def about(self, gang: str) -> dict[str, Any]:
        with self.store.transaction() as tx:
            known = tx.gangs.get(gang)
        return {"gang": gang, "attempt": known.attempt, "generation": known.generation}

    def everywhere(self, gang: str, kind: type[Ready] | type[Started] | type[Empty]) -> None:
        about = self.about(gang)
        for share in self.view(gang).attempts[-1].nodes:
            if self.incarnations.get(share.node):
                self.report(share.node, kind(**about))

    def run(self, gang: str, **sizes: int) -> None:
        """From queued to running."""
        assert gang in self.plan(**sizes).accepted
        self.order(gang)
        self.everywhere(gang, Ready)
        self.order(gang)
        self.everywhere(gang, Started)

    def exit(self, gang: str, rank: int, cause: Cause = Cause.SUCCESS, **fields: Any) -> int:
        node = next(r.node for r in self.view(gang).ranks if r.rank == rank)
        fields.setdefault("exit_code", 0 if cause is Cause.SUCCESS else 1)
        return self.report(node, RankExit(**self.about(gang), rank=rank, cause=cause, **fields))

    def exit_all(self, gang: str) -> None:
        for rank in self.view(gang).ranks:
            self.exit(gang, rank.rank, result={"rank": rank.rank})

    def succeed(self, gang: str) -> None:
        self.run(gang)
        self.exit_all(gang)
        self.everywhere(gang, Empty)

    def fail(self, gang: str, cause: Cause = Cause.USER, rank: int = 0) -> None:
        """One rank of a running gang fails and everything ends."""
        self.exit(gang, rank, cause)
        self.everywhere(gang, Empty)

    def open_save(self, gang: str, key: str = "step-1", mount: str = "/ckpt", step: int | None = 1) -> int:
        opened = saves.open_save(self.store, OpenSave(**self.about(gang), mount=mount, key=key, step=step),
                                 now_ms=self.now_ms, volumes_root=self.root)
        with self.store.transaction() as tx:
            volume = tx.saves.get(opened.save).volume
        (self.root / volume / opened.directory).mkdir(parents=True, exist_ok=True)
        return opened.save

    def saved(self, gang: str, save: int, rank: int, **fields: Any) -> RankSaved:
        fields.setdefault("files", (file(f"rank-{rank}"),))
        return RankSaved(**self.about(gang), save=save, rank=rank, format="files", **fields)

    def save(self, gang: str, key: str = "step-1", mount: str = "/ckpt", step: int | None = 1) -> int | None:
        """Every rank of the gang saves; the version that came of it."""
        number = self.open_save(gang, key, mount, step)
        state = None
        for rank in self.view(gang).ranks:
            state = saves.report_save(self.store, self.saved(gang, number, rank.rank), now_ms=self.now_ms,
                                      volumes_root=self.root)
        assert state is not None
        return state.published


def file(path: str, content: bytes = b"x") -> FileEntry:
    return FileEntry(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def kinds(world: World, gang: str) -> list[str]:
    return [event.kind for event in views.events_after(world.store, gang, 0)]


def phases(orders: Sequence[Order]) -> list[OrderPhase]:
    return [order.phase for order in orders]


def check_invariants(store: Store) -> None:
    """What must hold after every transaction, whatever happened."""
    from sqlalchemy import text

    with store.transaction() as tx:
        raw = tx._scope.connection
        def rows(query: str) -> list[Any]:
            return list(raw.execute(text(query)))

        held: set[tuple[str, int]] = set()
        per_gang: dict[str, int] = {}
        for lease in tx.leases.all_open():
            for gpu in lease.gpus:
                assert (lease.node, gpu) not in held, "a GPU is in two open leases"
                held.add((lease.node, gpu))
            per_gang[lease.gang] = per_gang.get(lease.gang, 0) + 1
        assert held == {(n, g) for n, g in rows("SELECT node, gpu FROM lease_gpus")}
        for gang in tx.gangs.unfinished():
            if gang.state != "queued":
                size = len(tx.attempts.members(gang.id, gang.attempt))
                assert gang.spec.nodes <= size <= gang.spec.most
                assert per_gang.get(gang.id, 0) == size, f"{gang.id} is partly leased"
        finals = {row[0] for row in rows("SELECT id FROM gangs WHERE state IN "
                                         "('succeeded','failed','cancelled')")}
        assert not finals & set(per_gang), "a final gang holds leases"
        broken = rows("SELECT l.id FROM leases l LEFT JOIN intervals i "
                      "ON i.lease = l.id AND i.end_ms IS NULL GROUP BY l.id, l.closed_ms "
                      "HAVING COUNT(i.lease) <> (l.closed_ms IS NULL)")
        assert not broken, "an open lease has exactly one open interval, a closed one none"
        gaps = rows("SELECT a.lease FROM intervals a JOIN intervals b ON b.lease = a.lease "
                    "AND b.number = a.number + 1 WHERE a.end_ms IS NULL OR a.end_ms <> b.start_ms")
        assert not gaps, "intervals of a lease touch"
        assert not rows("SELECT 1 FROM intervals WHERE end_ms < start_ms")
        assert not rows("SELECT slot FROM gangs WHERE active GROUP BY slot HAVING COUNT(*) > 1")
        assert not rows("SELECT 1 FROM gangs WHERE active AND state IN ('succeeded','failed','cancelled')")
        ports = rows("SELECT COUNT(*) FROM ports")[0][0]
        assert ports == len(tx.attempts.unfinished())
        seqs = [row[0] for row in rows("SELECT seq FROM events ORDER BY seq")]
        assert seqs == list(range(1, len(seqs) + 1))
        assert not rows("SELECT 1 FROM saves s LEFT JOIN versions v ON v.volume = s.volume AND "
                        "v.version = s.version WHERE s.state = 'published' AND v.version IS NULL")
