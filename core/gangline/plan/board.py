"""The working state of one pass: what is still free, what is on its way, what is kept for whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter

import numpy as np

from gangline.plan.counter import LEASED, Counter, Gone
from gangline.plan.demand import Demand, Need, demand_of
from gangline.plan.fleet import DOWN_MS, Bools, Ints
from gangline.plan.parts import Parts, Useless
from gangline.plan.policy import Policy
from gangline.plan.snapshot import UNKNOWN_MS, Held, PendingGang, Snapshot
from gangline.plan.topology import LEAF
from gangline.plan.usage import Usage

# A pool may be asked some seconds after the plan that started other gangs: both count as one moment.
ACTING_MS = 10_000
SPARE = ""  # for whom spares are kept: gangs in repair
Variant = tuple[int, ...]


@dataclass(slots=True)
class Claim:
    """Rows are kept for the gang, which is expected to start on them at `at_ms`."""

    gang: str
    at_ms: int


class Board:
    """A snapshot that one pass writes its decisions on, so that no gang is offered what another got.

    `ready` is when a row is whole by what is known of its leases and its boot (DOWN_MS: never); `open`
    says that it is whole, in service and unclaimed now. `claim` is the index of the row's claim or -1.
    Whole rows that were taken are written into the columns when somebody next looks at one. The log tells
    what is derived from the columns which rows of a GPU type changed.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, now_ms: int) -> None:
        self.snapshot, self.policy, self.now_ms = snapshot, policy, now_ms
        state = snapshot.fleet
        self.map, self.state = state.map, state
        self.in_service = state.base == 0
        self.virtual = self.map.virtual.copy()
        self._free = state.free.copy()
        self._whole = self.in_service & (self._free == self.map.count)
        self._open = self._whole.copy()
        self.coming_ms = self._coming()
        self._ready = np.maximum(np.maximum(state.busy_until, self.coming_ms), now_ms)
        self._taken = np.zeros(self.map.size, np.bool_)  # whole, by this pass
        self._unwritten: list[tuple[list[int], int]] = []
        self.claim = np.full(self.map.size, -1, np.int64)
        self.claim_until = np.zeros(self.map.size, np.int64)
        self.claims: list[Claim] = []
        self.claimers: set[str] = set()
        self.horizon_ms = 0  # the latest known instant of any claim
        self.given_back: dict[int, int] = {}  # row -> GPUs that are free from the next pass on
        self._log: dict[str, list[Gone]] = {kind: [] for kind in self.map.types}
        self.usage = Usage(snapshot, fair=policy.fair)
        emulated = bool(self.map.emulated.any())
        self.kinds = (False, True) if emulated and not self.map.emulated.all() else (emulated,)  # real nodes first
        self._leaf_whole: Ints | None = None
        self._counters: dict[tuple[int, bool, Variant, int], tuple[Counter, Bools]] = {}
        self._parts: dict[tuple[int, bool, Variant], tuple[Parts, Bools]] = {}
        self._demands: dict[int, Demand] = {}
        self.useless = Useless(snapshot)
        self._until: dict[int, Ints] = {}
        self._set_spares_aside()

    @cached_property
    def holders(self) -> dict[int, dict[str, int]]:
        """The GPUs that each running gang holds of each row."""
        holders: dict[int, dict[str, int]] = {}
        for run in self.snapshot.running:
            for held in run.holds:
                if held.node in self.map.row:
                    holders.setdefault(self.map.row[held.node], {})[run.gang] = len(held.gpus)
        return holders

    @cached_property
    def least_priority(self) -> int:
        """The lowest priority of any running gang."""
        return min(map(attrgetter("priority"), self.snapshot.running), default=1 << 31)

    def _coming(self) -> Ints:
        """When each row is in service: 0 now, DOWN_MS never, an instant when it boots or could be asked for."""
        coming = self.state.base.copy()
        if self.policy.capacity and self.virtual.any():
            boot_ms = np.asarray([pool.boot_ms for pool in self.map.pools], np.int64)
            coming[self.virtual] = self.now_ms + ACTING_MS + boot_ms[self.map.pool[self.virtual]]
        return coming

    def _set_spares_aside(self) -> None:
        for pool in self.map.pools:
            if pool.spares:
                rows = np.flatnonzero(self.open & (self.map.pool == self.map.pool_index[pool.name]))
                if len(rows):
                    self._claim_rows(rows[-pool.spares:], SPARE, UNKNOWN_MS, UNKNOWN_MS)

    def demand(self, gang: PendingGang, kind: int | None = None) -> Demand:
        """What the gang asks for; `kind` is its number in the queue, when known."""
        found = None if kind is None else self._demands.get(kind)
        if found is None:
            found = demand_of(self.map, gang)
            if kind is not None:
                self._demands[kind] = found
        return found

    @cached_property
    def may_grow(self) -> bool:
        """Whether any node boots or could be asked for."""
        return bool((~self.in_service & (self.coming_ms < UNKNOWN_MS)).any())

    # What is open to whom.

    def variant(self, gang: PendingGang) -> Variant:
        """The claims whose rows the gang may use: its own, and those it surely leaves in time."""
        if not self.claims:
            return ()
        ends_ms = self.now_ms + gang.bound_ms
        if ends_ms > self.horizon_ms and not gang.held and gang.gang not in self.claimers:
            return ()
        return tuple(index for index, claim in enumerate(self.claims)
                     if (claim.at_ms < UNKNOWN_MS and ends_ms <= claim.at_ms) or claim.gang == gang.gang
                     or (gang.held and claim.gang == SPARE))

    def allowed(self, variant: Variant) -> Bools:
        """The rows that are unclaimed or claimed by one of the variant's claims."""
        allowed: Bools = self.claim < 0
        for index in variant:
            allowed |= self.claim == index
        return allowed

    def counter(self, need: Need, emulated: bool, variant: Variant, block: int = 0) -> Counter:
        """Whole open rows that meet the need, counted by subtree. Equal masks of one map are one object."""
        key = (id(need.mask), emulated, variant, block)
        known = self._counters.get(key)
        if known is None:
            rows = self.of_kind(need.mask, emulated) & (self.whole & self.allowed(variant) if variant else self.open)
            # The mask is kept, so that no other gets its id.
            known = self._counters[key] = Counter(self.map, rows, block, self._log[need.ask.type], variant), need.mask
        return known[0]

    def parts(self, need: Need, emulated: bool, variant: Variant) -> Parts:
        """The rows with free GPUs that could give a part and are open, by how well they suit parts."""
        key = (id(need.parts), emulated, variant)
        log = self._log[need.ask.type]
        known = self._parts.get(key)
        if known is None:
            rows = self.of_kind(need.parts, emulated) & self.in_service & (self.free > 0) & self.allowed(variant)
            found = Parts(self.map, rows, self.free, self.leaf_whole, len(log))
            self._parts[key] = found, need.parts
            return found
        found = known[0]
        if found.cursor < len(log):
            found.sync(log, lambda row: self.claim[row] < 0 or int(self.claim[row]) in variant, self.free)
        return found

    def _gone(self, rows: list[int], claim: int) -> Gone:
        return Gone(rows, self.map.lines.split(rows), claim, {self.map.type_of[row] for row in rows})

    def _note(self, gone: Gone) -> None:
        for kind in gone.types:
            self._log[kind].append(gone)

    def of_kind(self, mask: Bools, emulated: bool) -> Bools:
        """The real or the emulated rows of a mask."""
        if len(self.kinds) == 1:
            return mask
        return mask & self.map.emulated if emulated else mask & ~self.map.emulated

    @property
    def leaf_whole(self) -> Ints:
        """For each row, how many rows of its leaf were whole and in service when the pass began."""
        if self._leaf_whole is None:
            whole = self.in_service & (self.state.free == self.map.count)
            ids = self.map.ids[LEAF]
            self._leaf_whole = np.bincount(ids[whole], minlength=len(self.map.keys[LEAF]))[ids]
        return self._leaf_whole

    # Leases.

    def until(self, row: int) -> Ints:
        """When each GPU of the row comes free, this pass' own leases included. Never write into it."""
        found = self._until.get(row)
        return self.state.until[row] if found is None else found

    def touched(self) -> Iterable[tuple[int, Ints]]:
        """The rows whose parts this pass has leased, with `until`."""
        return self._until.items()

    def take_whole(self, rows: list[int], gang: PendingGang, gone: Gone | None = None) -> None:
        """Lease whole rows to the gang; `gone` says the same for the log, if known."""
        self._unwritten.append((rows, self._ends_ms(gang, self.now_ms)))
        self._note(self._gone(rows, LEASED) if gone is None else gone)
        if self.usage.counting:
            self.usage.add(gang.tenant, [(self.map.type_of[row], int(self.map.count[row])) for row in rows])

    def _write(self) -> None:
        taken, self._unwritten = self._unwritten, []
        rows = np.fromiter(chain.from_iterable(mine for mine, _ in taken), np.int64)
        self._free[rows] = 0
        self._taken[rows] = True
        self._whole[rows] = self._open[rows] = False
        self._ready[rows] = np.repeat([ends_ms for _, ends_ms in taken], [len(mine) for mine, _ in taken])

    @property
    def free(self) -> Ints:
        """How many GPUs of each row nobody leases."""
        if self._unwritten:
            self._write()
        return self._free

    @property
    def whole(self) -> Bools:
        """Which rows are in service with nothing leased."""
        if self._unwritten:
            self._write()
        whole: Bools = self._whole
        return whole

    @property
    def open(self) -> Bools:
        """Which rows are whole and unclaimed."""
        if self._unwritten:
            self._write()
        rows: Bools = self._open
        return rows

    @property
    def ready(self) -> Ints:
        """When each row is whole, claimed or not."""
        if self._unwritten:
            self._write()
        return self._ready

    @property
    def taken(self) -> Bools:
        """Which rows this pass has leased whole."""
        if self._unwritten:
            self._write()
        return self._taken

    def take_part(self, row: int, gpus: Sequence[int], gang: PendingGang) -> None:
        """Lease some GPUs of a row to the gang."""
        self._hold_part(row, gpus, self._ends_ms(gang, self.now_ms))
        self.usage.add(gang.tenant, ((self.map.type_of[row], len(gpus)),))

    def retake_part(self, row: int, gpus: Sequence[int], gang: PendingGang) -> None:
        """The gang starts again on the GPUs it holds."""
        self.usage.add(gang.tenant, ((self.map.type_of[row], len(gpus)),))
        self._lease(row, gpus, self._ends_ms(gang, self.now_ms))

    def give_back(self, gang: PendingGang, nodes: Iterable[str]) -> None:
        """The gang's leases on those nodes end: they are free in the next pass, not in this one."""
        wanted = frozenset(nodes)
        for held in gang.held:
            if held.node in wanted and held.node in self.map.row:
                row = self.map.row[held.node]
                self._lease(row, held.gpus, self.now_ms)
                self.given_back[row] = self.given_back.get(row, 0) + len(held.gpus)

    def cut_short(self, held: Held, ends_ms: int) -> None:
        """A running gang leaves the node by then."""
        row = self.map.row.get(held.node)
        if row is not None:
            until = self._until.setdefault(row, self.state.until[row].copy())
            gpus = list(held.gpus)
            until[gpus] = np.minimum(until[gpus], ends_ms)
            self.ready[row] = max(int(until.max()), int(self.coming_ms[row]), self.now_ms)

    def _lease(self, row: int, gpus: Sequence[int], until_ms: int) -> None:
        until = self._until.setdefault(row, self.state.until[row].copy())
        until[list(gpus)] = max(1, until_ms)
        self.ready[row] = max(int(until.max()), int(self.coming_ms[row]), self.now_ms)

    def count_on(self, row: int, count: int, gang: PendingGang, at_ms: int) -> None:
        """Keep GPUs of a row on its way for the gang: as good as leased from its start on."""
        gpus = self.free_gpus(row)[:count]
        self._hold_part(row, gpus, self._ends_ms(gang, at_ms))

    def _hold_part(self, row: int, gpus: Sequence[int], until_ms: int) -> None:
        self._lease(row, gpus, until_ms)
        self.free[row] -= len(gpus)
        self.whole[row] = self.open[row] = False
        self._note(self._gone([row], LEASED))

    def free_gpus(self, row: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.until(row) == 0).tolist())

    def _ends_ms(self, gang: PendingGang, start_ms: int) -> int:
        return min(start_ms + gang.bound_ms, UNKNOWN_MS)

    # Claims.

    def keep(self, rows: Ints, gang: PendingGang, at_ms: int) -> None:
        """Let nobody else take the rows from `at_ms` on. On a row that is claimed it comes after that claim."""
        self._claim_rows(rows, gang.gang, at_ms, self._ends_ms(gang, at_ms))

    def _claim_rows(self, rows: Ints, gang: str, at_ms: int, until_ms: int) -> None:
        new = rows[self.claim[rows] < 0]
        self.claim[new] = len(self.claims)
        self._note(self._gone(new.tolist(), len(self.claims)))
        self.claim_until[rows] = np.maximum(self.claim_until[rows], until_ms)
        self.open[rows] = False
        self.claims.append(Claim(gang, at_ms))
        self.claimers.add(gang)
        if at_ms < UNKNOWN_MS:
            self.horizon_ms = max(self.horizon_ms, at_ms)

    def ask(self, rows: Ints) -> None:
        """Their pools are asked for the virtual rows: from now on they boot."""
        boot_ms = np.asarray([pool.boot_ms for pool in self.map.pools], np.int64)
        self.virtual[rows] = False
        self.coming_ms[rows] = self.now_ms + boot_ms[self.map.pool[rows]]
        self.ready[rows] = np.maximum(self.coming_ms[rows], self.now_ms)

    def available(self) -> Ints:
        """When each row is whole for a gang that has claimed nothing (DOWN_MS: never)."""
        return np.where(self.claim < 0, self.ready, np.maximum(self.ready, self.claim_until))

    def coming(self, rows: Ints) -> Bools:
        """Which rows are not in service yet: they boot, or could be asked for."""
        coming: Bools = ~self.in_service[rows]
        return coming


def is_down(board: Board, rows: Ints) -> Bools:
    """Which rows nothing says anything of: drained, unhealthy."""
    down: Bools = board.coming_ms[rows] >= DOWN_MS
    return down
