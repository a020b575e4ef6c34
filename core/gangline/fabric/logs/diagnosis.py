"""A gang's logs, diagnosed while they arrive: feed pieces in, ask for the verdict at any time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gangline.fabric.logs.causes import CAUSES
from gangline.fabric.logs.evidence import Evidence
from gangline.fabric.logs.failures import FAILURES
from gangline.fabric.logs.firsts import blame, first_failure
from gangline.fabric.logs.lines import LineCutter
from gangline.fabric.logs.rules import gang_state, rank_verdict
from gangline.fabric.logs.tables import TRANSPORT
from gangline.fabric.logs.values import (
    Blame,
    Cause,
    Channel,
    Failed,
    Failure,
    GangVerdict,
    Kind,
    Network,
    RankVerdict,
    Setting,
    Told,
)
from gangline.fabric.logs.wrapping import Said, messages, seconds, usual

MAX_SPEAKERS = 65_536  # processes told apart; ten times the largest gangs there are
_Speaker = tuple[str, int] | int | str  # (host, pid), a rank that was told, or a source


class Diagnosis:
    """What a gang's logs say of its fabric, so far.

    Memory is bounded by the number of streams and ranks, not by what they print: at most 64 KiB of an unfinished
    line per stream and a few kB per rank. The verdict depends on the bytes of each stream and the order between
    streams alone, not on how they are cut into pieces. Any bytes are accepted. `expected` is the network's name
    that NCCL must use; without it what the log says NCCL_NET was set to. `live`: pieces are fed as they are
    printed, so that their order tells what came first where lines have no times. Not safe for several threads.
    """

    def __init__(self, *, expected: str | None = None, live: bool = False) -> None:
        self._expected, self._live = expected, live
        self._cutters: defaultdict[tuple[int | None, str], LineCutter] = defaultdict(LineCutter)
        self._heard: dict[_Speaker, Evidence] = {}
        self._host_of_pid: dict[int, str] = {}
        self._usual: dict[tuple[int | None, str, bytes], Evidence] = {}  # of whom the short way was taken before
        self._seq = 0

    def feed(self, rank: int | None, data: bytes, *, source: str = "") -> None:
        """More of a stream. `rank` None: many ranks may speak in it, told apart by what their lines say."""
        for line, whole in self._cutters[rank, source].cut(data):
            self._line(rank, source, line, whole)

    def end(self, rank: int | None, *, source: str = "") -> None:
        """A stream is over: its last line counts even without an end, for what it does say."""
        for line, whole in self._cutters.pop((rank, source), LineCutter()).end():
            self._line(rank, source, line, whole)
        if rank is not None and rank not in self._heard and len(self._heard) < MAX_SPEAKERS:
            self._heard[rank] = Evidence(source=source)

    def verdict(self) -> GangVerdict:
        """What can be said now; unfinished lines do not count yet."""
        heard = self._by_rank()
        strays = {key or "-" for key in self._heard if isinstance(key, str)}
        ranks = tuple(rank_verdict(rank, one, self._expected, stray=rank in strays) for rank, one in heard.items())
        missing = _missing(heard)
        state, reason = gang_state(ranks, missing)
        found = first_failure(ranks, live=self._live)
        hosts = {address: one.host for one in heard.values() if one.host for address in one.addresses}
        if found is not None:
            first, order = found
            return GangVerdict(state=state, reason=reason, cause=CAUSES[first.told.code], evidence=first,
                               blame=blame(first, ranks, hosts), order=order, ranks=ranks, missing=missing,
                               notes=_notes(heard))
        cause, who = _why(ranks)
        return GangVerdict(state=state, reason=reason, cause=cause, evidence=None, blame=who, order=None, ranks=ranks,
                           missing=missing, notes=_notes(heard))

    def _line(self, rank: int | None, source: str, line: bytes, whole: bool) -> None:
        short = usual(line)
        if short is not None:
            evidence = self._usual.get((rank, source, short[0]))
            told = None if evidence is None else _read_raw(short[1], whole)
            if evidence is not None and (told is None or not isinstance(told, Failed)):
                if told is not None:
                    self._seq += 1
                    evidence.take(told)
                return
        evidence = self._long_way(rank, source, line, whole)
        if short is not None and evidence is not None and len(self._usual) < MAX_SPEAKERS:
            self._usual[rank, source, short[0]] = evidence

    def _long_way(self, rank: int | None, source: str, line: bytes, whole: bool) -> Evidence | None:
        """Take in what a line says, whatever it is wrapped in; the evidence of the last speaker in it."""
        evidence = None
        for said in messages(line, whole=whole):
            told = _read(said.text, said.warns, said.whole)
            if told is None:
                continue
            self._seq += 1
            evidence = self._of(rank, source, said)
            if evidence is None:
                continue
            if isinstance(told, Failed) and CAUSES[told.code].kind is not Kind.WHY:
                evidence.fail(Failure(told=told, host=said.host or evidence.host, at_s=seconds(said), seq=self._seq,
                                      source=source, line=said.text[:400].rstrip()))
            else:
                evidence.take(told)
        return evidence

    def _of(self, rank: int | None, source: str, said: Said) -> Evidence | None:
        host = self._host(said)
        key: _Speaker
        if rank is not None or said.rank is not None:
            key = rank if rank is not None else said.rank or 0
        elif host is not None and said.pid is not None:
            key = (host, said.pid)
        else:
            key = source
        evidence = self._heard.get(key)
        if evidence is None:
            if len(self._heard) >= MAX_SPEAKERS:
                return None
            evidence = self._heard[key] = Evidence(host=host, source=source)
        evidence.host = evidence.host or host
        return evidence

    def _host(self, said: Said) -> str | None:
        """The speaker's host; where a cut line stuck to its name, the name that this process had before."""
        if said.host is None or said.pid is None:
            return said.host
        known = self._host_of_pid.get(said.pid)
        if known is not None and known != said.host and said.host.endswith(known):
            return known
        if len(self._host_of_pid) < MAX_SPEAKERS:
            self._host_of_pid.setdefault(said.pid, said.host)
        return said.host

    def _by_rank(self) -> dict[str, Evidence]:
        """Speakers under their ranks' names, in rank order; what several processes said of one rank is joined."""
        named: dict[str, Evidence] = {}
        for key, evidence in self._heard.items():
            name = _name(key, evidence)
            named[name] = named[name].joined(evidence) if name in named else evidence
        return dict(sorted(named.items(), key=lambda item: (not item[0].isdigit(), len(item[0]) if item[0].isdigit()
                                                            else 0, item[0])))


@lru_cache(maxsize=4096)
def _read_raw(text: bytes, whole: bool) -> Told | None:
    return _read(text.decode("utf-8", "replace"), False, whole)


@lru_cache(maxsize=4096)  # what is printed much is printed often
def _read(text: str, warns: bool, whole: bool) -> Told | None:
    """The first thing the tables find in a message; a table row without a code says that it is harmless."""
    for row in TRANSPORT:
        if row.needle in text and (found := row.regex.search(text)) is not None:
            told = row.tells(found)
            return told if whole else _cut(told)
    for row in FAILURES:
        if row.needle in text and (warns or not row.warns) and (found := row.regex.search(text)) is not None:
            told = row.tells(found)
            return None if isinstance(told, Failed) and not told.code else told
    return None


def _cut(told: Told) -> Told | None:
    """Of a message that was cut off, only what it does say: a name at its end may be half a name."""
    match told:
        case Channel(net, index, False, own, peer):
            return Channel(net, index, None, own, peer)
        case Network() | Setting():
            return None
        case _:
            return told


def _name(key: _Speaker, evidence: Evidence) -> str:
    if isinstance(key, int):
        return str(key)
    if evidence.comm is not None:
        return str(evidence.comm.rank)
    if evidence.own is not None:
        return str(evidence.own)
    if isinstance(key, tuple):
        return f"{key[0]}:{key[1]}"
    return key or "-"


def _missing(heard: dict[str, Evidence]) -> tuple[int, ...]:
    """Ranks that must exist, by the largest communicator and the peers named, and of whom nothing was heard."""
    sizes = [one.comm.size for one in heard.values() if one.comm is not None]
    size = max([*sizes, *(one.highest + 1 for one in heard.values())], default=0)
    have = {int(name) for name in heard if name.isdigit()}
    return tuple(rank for rank in range(min(size, MAX_SPEAKERS)) if rank not in have) if have else ()


def _why(ranks: Sequence[RankVerdict]) -> tuple[Cause | None, Blame]:
    """Without a failure: what explains that the gang is not proved, and of which rank."""
    reasons = [(cause.weight, number, cause) for number, rank in enumerate(ranks) for cause in rank.why]
    if not reasons:
        return None, Blame()
    _, number, cause = min(reasons, key=lambda reason: reason[:2])
    nodes = tuple(dict.fromkeys(rank.host for rank in ranks if rank.host and cause in rank.why))
    rank = ranks[number].rank if sum(cause in one.why for one in ranks) == 1 else None
    return cause, Blame(nodes=nodes, rank=rank)


def _notes(heard: dict[str, Evidence]) -> tuple[str, ...]:
    return tuple(_said(heard))


def _said(heard: dict[str, Evidence]) -> Iterator[str]:
    versions = {one.version for one in heard.values() if one.version}
    if len(versions) > 1:
        yield f"ranks run different NCCL versions: {', '.join(sorted(versions))}"
    for counts in {one.counts for one in heard.values() if one.counts and one.counts.least != one.counts.most}:
        yield f"nodes have different numbers of NICs: {counts.least} to {counts.most}; one lost some"
    if any(one.mnnvl for one in heard.values()):
        yield "NVLink joins nodes here: inside such a domain nothing goes over the network"
