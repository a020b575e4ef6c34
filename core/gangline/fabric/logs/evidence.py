"""What has been heard of one process so far: bounded counters and firsts, whatever it prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.fabric.logs.causes import CAUSES
from gangline.fabric.logs.values import (
    Address,
    Channel,
    Comm,
    Counts,
    Devices,
    Failed,
    Failure,
    Kind,
    Network,
    OnNode,
    Provider,
    Setting,
    Shape,
    Told,
    Version,
)

MAX_NETS, MAX_INDICES, MAX_CODES, MAX_NAMES = 8, 256, 16, 64


@dataclass(slots=True)
class Traffic:
    """Channels over one network: with GPUDirect, staged through the host, and those whose line was cut."""

    gdr: int = 0
    staged: int = 0
    cut: int = 0
    indices: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.gdr + self.staged + self.cut


@dataclass(slots=True)
class Evidence:
    """All that one process, or one rank, said of the fabric."""

    host: str | None = None
    source: str = ""
    networks: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    on_node: int = 0
    comm: Comm | None = None
    own: int | None = None
    highest: int = -1
    nodes: int = 0
    mnnvl: bool = False
    hcas: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    provider: str | None = None
    counts: Counts | None = None
    version: str | None = None
    addresses: set[str] = field(default_factory=set)
    why: dict[str, None] = field(default_factory=dict)  # codes in the order heard
    failures: dict[str, Failure] = field(default_factory=dict)  # the first of each code
    heard: int = 0

    def take(self, told: Told) -> None:
        """Count in what one line tells; failures come by `fail`."""
        self.heard += 1
        match told:
            case Channel():
                self._channel(told)
            case OnNode():
                self.on_node += 1
            case Network(name):
                _count(self.networks, name)
            case Comm(size=size):
                if self.comm is None or size > self.comm.size:
                    self.comm = told
            case Shape(nodes, mnnvl):
                self.nodes, self.mnnvl = max(self.nodes, nodes or 0), self.mnnvl or mnnvl
            case Failed(code):
                self.why.setdefault(code)
            case _:
                self._setup(told)

    def _setup(self, told: Devices | Setting | Provider | Counts | Version | Address) -> None:
        match told:
            case Devices(names, address):
                self.hcas = (*self.hcas, *(name for name in names if name not in self.hcas))[:MAX_NAMES]
                if not names:
                    self.why.setdefault("empty-list")
                self._at(address)
            case Setting(name, value):
                self.settings[name] = value
            case Provider(name):
                self.provider = name
            case Counts():
                self.counts = told
            case Version(text):
                self.version = text
            case Address(text):
                self._at(text)

    def _at(self, address: str | None) -> None:
        if address is not None and len(self.addresses) < MAX_NAMES:
            self.addresses.add(address.strip("[]"))

    def fail(self, failure: Failure) -> None:
        """Keep the first failure of each kind."""
        self.heard += 1
        if CAUSES[failure.told.code].kind is Kind.WHY:
            self.why.setdefault(failure.told.code)
        elif len(self.failures) < MAX_CODES:
            self.failures.setdefault(failure.told.code, failure)

    def _channel(self, told: Channel) -> None:
        if told.net not in self.traffic and len(self.traffic) >= MAX_NETS:
            return
        traffic = self.traffic.setdefault(told.net, Traffic())
        traffic.gdr += told.gdr is True
        traffic.staged += told.gdr is False
        traffic.cut += told.gdr is None
        if len(traffic.indices) < MAX_INDICES:
            traffic.indices.add(told.index)
        self.own = told.own if self.own is None else self.own
        self.highest = max(self.highest, told.own, told.peer)

    def joined(self, other: Evidence) -> Evidence:
        """Both together, as of one rank: this one's words count first."""
        both = Evidence(host=self.host or other.host, source=self.source or other.source, on_node=self.on_node
                        + other.on_node, own=self.own if self.own is not None else other.own,
                        highest=max(self.highest, other.highest), nodes=max(self.nodes, other.nodes),
                        mnnvl=self.mnnvl or other.mnnvl, provider=self.provider or other.provider,
                        counts=self.counts or other.counts, version=self.version or other.version,
                        hcas=tuple(dict.fromkeys((*self.hcas, *other.hcas))), heard=self.heard + other.heard,
                        settings=other.settings | self.settings, addresses=self.addresses | other.addresses,
                        why={**self.why, **other.why})
        both.comm = max((comm for comm in (self.comm, other.comm) if comm), key=lambda comm: comm.size, default=None)
        for one in (self, other):
            for name, count in one.networks.items():
                both.networks[name] = both.networks.get(name, 0) + count
            for net, traffic in one.traffic.items():
                sum_ = both.traffic.setdefault(net, Traffic())
                sum_.gdr, sum_.staged, sum_.cut = (sum_.gdr + traffic.gdr, sum_.staged + traffic.staged,
                                                   sum_.cut + traffic.cut)
                sum_.indices |= traffic.indices
            for code, failure in one.failures.items():
                kept = both.failures.get(code)
                if kept is None or failure.seq < kept.seq:
                    both.failures[code] = failure
        return both


def _count(counts: dict[str, int], name: str) -> None:
    if name in counts or len(counts) < MAX_NETS:
        counts[name] = counts.get(name, 0) + 1
