"""Verbs on leases, the phase intervals that are their meter, and leased ports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, delete, func, insert, or_, select, update

from gangline.model.states import Phase
from gangline.store.schema import attempts, intervals, lease_gpus, leases, nodes, ports
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Interval, Lease

_OF = select(leases).where(leases.c.gang == key("gang")).order_by(leases.c.id)
_OPEN = select(leases).where(leases.c.closed_ms.is_(None)).order_by(leases.c.id)
_OPEN_OF = _OPEN.where(leases.c.gang == key("gang"))
_OPEN_ON = _OPEN.where(leases.c.node == key("node"))
_OPEN_OF_SOME = _OPEN.where(leases.c.gang.in_(key("gangs", many=True)))
_SET = update(leases).where(leases.c.id == key("id"))
_CLOSE = _SET.values(closed_ms=key("closed"))
_FREE_GPUS = delete(lease_gpus).where(lease_gpus.c.lease == key("lease"))
_HELD_GPUS = select(lease_gpus.c.node, lease_gpus.c.gpu, leases.c.gang).join(
    leases, leases.c.id == lease_gpus.c.lease)
_HELD_ON = _HELD_GPUS.where(lease_gpus.c.node.in_(key("nodes", many=True)))
_IDLE = update(nodes).where(nodes.c.name == key("name")).values(idle_ms=key("idle"))
_ADD, _ADD_GPUS, _ADD_INTERVALS = insert(leases), insert(lease_gpus), insert(intervals)
_OPEN_INTERVALS = select(intervals).where(
    intervals.c.lease.in_(bindparam("key_leases", expanding=True)), intervals.c.end_ms.is_(None)).order_by(
    intervals.c.lease)
_END = update(intervals).where(intervals.c.lease == key("lease"), intervals.c.number == key("number"))
_PORTS = select(ports.c.port).where(ports.c.host == key("host"))
_TAKE = insert(ports)
_FREE_PORTS = delete(ports).where(ports.c.gang == key("gang"), ports.c.attempt == key("attempt"))


class Leases:
    """Who holds which GPUs. An open lease has exactly one open interval, a closed one has none."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def next_id(self, count: int) -> int:
        """The first of `count` fresh lease ids."""
        return self._scope.next("lease", count)

    def open_of(self, gang: str) -> tuple[Lease, ...]:
        return self._some(_OPEN_OF, key_gang=gang)

    def open_of_some(self, gangs: Collection[str]) -> dict[str, list[Lease]]:
        """The open leases of those of these gangs that hold any."""
        found: dict[str, list[Lease]] = {}
        for row in self._scope.each(_OPEN_OF_SOME, "gangs", gangs):
            found.setdefault(row.gang, []).append(Lease(**row._mapping))
        return found

    def open_on(self, node: str) -> tuple[Lease, ...]:
        return self._some(_OPEN_ON, key_node=node)

    def all_open(self) -> tuple[Lease, ...]:
        return self._some(_OPEN)

    def of(self, gang: str) -> tuple[Lease, ...]:
        """Every lease a gang ever had."""
        return self._some(_OF, key_gang=gang)

    def open(self, new: Sequence[tuple[Lease, int]]) -> None:
        """Opens leases, each for an attempt, in the assembling phase; Bug when a GPU is leased already."""
        self._scope.run_all(_ADD, [columns(lease) for lease, _ in new])
        self._scope.run_all(_ADD_GPUS, [
            {"node": lease.node, "gpu": gpu, "lease": lease.id} for lease, _ in new for gpu in lease.gpus])
        self._scope.run_all(_ADD_INTERVALS, [
            {"lease": lease.id, "number": 1, "attempt": attempt, "phase": Phase.ASSEMBLING,
             "start_ms": lease.opened_ms, "end_ms": None} for lease, attempt in new])
        for lease, _ in new:
            self._scope.move(gang=lease.gang, node=lease.node)

    def carry_over(self, lease: Lease, generation: int, attempt: int, now_ms: int) -> None:
        """A lease that was kept serves the next attempt."""
        self._scope.run(_SET, key_id=lease.id, generation=generation)
        self.enter([lease], attempt, Phase.ASSEMBLING, now_ms)

    def enter(self, held: Sequence[Lease], attempt: int, phase: Phase, now_ms: int) -> None:
        """Ends the open interval of each lease and begins the next one where it ended.

        A clock that went backwards makes an interval of no length, never a negative one.
        """
        new: list[dict[str, Any]] = []
        if not held:
            return
        for current in self._open_intervals([lease.id for lease in held]):
            if (current.attempt, current.phase) == (attempt, phase):
                continue
            end_ms = max(now_ms, current.start_ms)
            self._end(current, end_ms)
            new.append({"lease": current.lease, "number": current.number + 1, "attempt": attempt,
                        "phase": phase, "start_ms": end_ms, "end_ms": None})
        self._scope.run_all(insert(intervals), new)

    def close(self, held: Sequence[Lease], now_ms: int) -> None:
        """Frees the GPUs and ends the meter, at one instant."""
        if not held:
            return
        ends = {}
        for current in self._open_intervals([lease.id for lease in held]):
            ends[current.lease] = max(now_ms, current.start_ms)
            self._end(current, ends[current.lease])
        self._scope.run_all(_CLOSE, [{"key_id": lease.id, "key_closed": ends[lease.id]} for lease in held])
        self._scope.run_all(_FREE_GPUS, [{"key_lease": lease.id} for lease in held])
        for lease in held:
            self._scope.move(gang=lease.gang, node=lease.node)
        on = {lease.node for lease in held}
        idle = sorted(on - self.busy(on).keys())
        self._scope.run_all(_IDLE, [{"key_name": node, "key_idle": now_ms} for node in idle])

    def busy(self, on: Collection[str] | None = None) -> dict[str, dict[int, str]]:
        """For each node, or each of `on`, which gang holds which GPU; nodes that are free are left out."""
        found: dict[str, dict[int, str]] = {}
        rows = self._scope.rows(_HELD_GPUS) if on is None else self._scope.each(_HELD_ON, "nodes", on)
        for row in rows:
            found.setdefault(row.node, {})[row.gpu] = row.gang
        return found

    def intervals(self, from_ms: int, to_ms: int | None) -> tuple[Interval, ...]:
        """Intervals that reach into [from_ms, to_ms), open ones too."""
        where: list[ColumnElement[bool]] = [or_(intervals.c.end_ms.is_(None), intervals.c.end_ms > from_ms)]
        if to_ms is not None:
            where.append(intervals.c.start_ms < to_ms)
        query = (select(leases, intervals.c.attempt, intervals.c.phase, intervals.c.start_ms,
                        intervals.c.end_ms, attempts.c.end)
                 .join(leases, leases.c.id == intervals.c.lease)
                 .join(attempts, and_(attempts.c.gang == leases.c.gang,
                                      attempts.c.number == intervals.c.attempt))
                 .where(*where).order_by(intervals.c.lease, intervals.c.number))
        return tuple(_interval(row) for row in self._scope.rows(query))

    def _some(self, query: Select[Any], **values: Any) -> tuple[Lease, ...]:
        return tuple(Lease(**row._mapping) for row in self._scope.rows(query, **values))

    def _open_intervals(self, ids: Collection[int]) -> Sequence[Row[Any]]:
        return self._scope.rows(_OPEN_INTERVALS, key_leases=list(ids))

    def _end(self, current: Row[Any], end_ms: int) -> None:
        self._scope.run(_END, key_lease=current.lease, key_number=current.number, end_ms=end_ms)


def _interval(row: Row[Any]) -> Interval:
    values = dict(row._mapping)
    own = {name: values.pop(name) for name in ("attempt", "phase", "start_ms", "end_ms", "end")}
    return Interval(lease=Lease(**values), **own)


class Ports:
    """Rendezvous ports, one user each per host."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def taken(self, host: str) -> set[int]:
        """The ports that somebody holds on the host."""
        return {row.port for row in self._scope.rows(_PORTS, key_host=host)}

    def take(self, taken: Sequence[tuple[str, int, str, int]]) -> None:
        """Holds ports: (host, port, gang, attempt)."""
        self._scope.run_all(_TAKE, [{"host": host, "port": port, "gang": gang, "attempt": attempt}
                                    for host, port, gang, attempt in taken])

    def free(self, gang: str, attempt: int) -> None:
        self._scope.run(_FREE_PORTS, key_gang=gang, key_attempt=attempt)

    def count(self) -> int:
        """How many are held."""
        return int(self._scope.scalar(select(func.count()).select_from(ports)))
