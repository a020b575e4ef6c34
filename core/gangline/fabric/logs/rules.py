"""From what was heard to a verdict: of one rank, and of the gang. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gangline.fabric.logs.causes import CAUSES
from gangline.fabric.logs.evidence import Evidence, Traffic
from gangline.fabric.logs.values import Cause, RankVerdict, State

SOCKETS = frozenset({"Socket", "FastSocket"})  # names of NCCL's own and Google's TCP transports
_LIBFABRIC = "AWS Libfabric"
_RDMA_PROVIDERS = ("efa", "verbs", "cxi", "opx", "psm2", "psm3")  # of libfabric; the others go over TCP
_WHY_SOCKETS = ("ib-disabled", "net-is-socket", "provider", "empty-list", "no-device", "no-plugin")
_WHY_STAGED = ("gdr-off", "no-peermem", "gdr-level", "plugin-no-gdr")


def rank_verdict(rank: str, heard: Evidence, expected: str | None, *, stray: bool = False) -> RankVerdict:
    """What one rank's lines prove.

    `expected` is the transport it must use, else what NCCL_NET was set to; `stray` says that no line told the rank.
    """
    state, reason = _state(heard, expected or heard.settings.get("NCCL_NET"))
    silent = not (heard.traffic or heard.networks or heard.comm or heard.on_node)
    return RankVerdict(
        rank=rank, stray=stray and silent, state=state, reason=reason, host=heard.host,
        networks=tuple(dict.fromkeys((*heard.traffic, *heard.networks))),
        channels=sum(traffic.count for traffic in heard.traffic.values()),
        gdr_channels=sum(traffic.gdr for traffic in heard.traffic.values()),
        nics=len(set().union(*(traffic.indices for net, traffic in heard.traffic.items() if net not in SOCKETS))),
        hcas=heard.hcas, nccl=heard.version, why=_why(heard, state),
        on_node=heard.on_node > 0 and not heard.traffic and state is State.UNPROVED,
        failures=tuple(sorted(heard.failures.values(), key=lambda failure: failure.seq)))


def _state(heard: Evidence, expected: str | None) -> tuple[State, str]:
    tcp = {net: traffic for net, traffic in heard.traffic.items() if _is_tcp(net, heard)}
    rdma = {net: traffic for net, traffic in heard.traffic.items() if net not in tcp}
    if tcp and rdma:
        return State.MIXED, f"some channels over {_names(rdma)}, some over {_names(tcp)}"
    if tcp:
        return State.FALLBACK, f"{_count(tcp)} channels over {_names(tcp)}"
    if rdma:
        return _rdma(rdma, heard, expected)
    chosen = [name for name in heard.networks if _is_tcp(name, heard)]
    if chosen and heard.nodes != 1:
        return State.FALLBACK, f"NCCL chose {', '.join(chosen)}"
    return State.UNPROVED, _silence(heard)


def _rdma(rdma: Mapping[str, Traffic], heard: Evidence, expected: str | None) -> tuple[State, str]:
    total, gdr, cut = (_count(rdma), sum(t.gdr for t in rdma.values()), sum(t.cut for t in rdma.values()))
    chosen = [name for name in heard.networks if _is_tcp(name, heard)]
    if chosen:
        return State.MIXED, f"channels over {_names(rdma)}, but a communicator chose {', '.join(chosen)}"
    strange = [net for net in rdma if expected is not None and not same_network(net, expected)]
    if strange:
        return State.UNPROVED, f"channels over {', '.join(strange)}, not over {expected} as asked"
    if any(traffic.staged for traffic in rdma.values()):
        return State.NO_GDR, f"{gdr} of {total} channels over {_names(rdma)} with GPUDirect"
    if gdr == 0:
        return State.UNPROVED, f"all {cut} channel lines are cut off before they say whether it is GPUDirect"
    return State.PROVED, f"{total} channels over {_names(rdma)}, all with GPUDirect" + (
        f" ({cut} lines cut off)" if cut else "")


def same_network(name: str, expected: str) -> bool:
    """Whether NCCL_NET=`expected` takes the network `name`; NCCL compares without case."""
    return name.casefold() == expected.casefold()


def _is_tcp(net: str, heard: Evidence) -> bool:
    if net == _LIBFABRIC and heard.provider is not None:
        return not heard.provider.startswith(_RDMA_PROVIDERS)
    return net in SOCKETS


def _silence(heard: Evidence) -> str:
    """Why nothing is proved, of a rank without any channel off its node."""
    if heard.nodes == 1:
        return "one node: nothing goes over the network"
    if heard.mnnvl:
        return "NVLink joins the nodes, so nothing needs the network: that is no fall-back, and no proof of it"
    if heard.on_node:
        return "it talks inside its node only"
    if heard.networks:
        return (f"NCCL chose {', '.join(heard.networks)}, but no channel was seen: since 2.22 they open with the first "
                "collective, and NCCL_DEBUG_SUBSYS must have INIT or NET")
    if heard.heard:
        return "no line tells of the transport: run with NCCL_DEBUG=INFO"
    return "nothing of NCCL in its log: run with NCCL_DEBUG=INFO"


def _why(heard: Evidence, state: State) -> tuple[Cause, ...]:
    """What explains that it is not better, strongest first."""
    match state:
        case State.FALLBACK | State.MIXED:
            codes = [code for code in _WHY_SOCKETS if code in heard.why or _set(code, heard)] or ["fallback"]
        case State.NO_GDR:
            codes = [code for code in _WHY_STAGED if code in heard.why or _set(code, heard)] or ["staged"]
        case State.UNPROVED:
            codes = ["net-env"] if _set("net-env", heard) else []
        case _:
            codes = []
    return tuple(CAUSES[code] for code in codes)


def _set(code: str, heard: Evidence) -> bool:
    """Whether a setting, or the provider, is the explanation."""
    took = heard.settings
    match code:
        case "ib-disabled":
            return took.get("NCCL_IB_DISABLE", "0") not in ("0", "")
        case "net-is-socket":
            return took.get("NCCL_NET", "") in SOCKETS
        case "net-env":
            return "NCCL_NET" in took and not all(same_network(net, took["NCCL_NET"]) for net in heard.traffic)
        case "provider":
            return any(net == _LIBFABRIC and _is_tcp(net, heard) for net in (*heard.traffic, *heard.networks))
        case "gdr-off":
            return (took.get("NCCL_NET_GDR_LEVEL", "") in ("LOC", "0") or took.get("NCCL_IB_CUDA_SUPPORT", "") == "0"
                    or took.get("NCCL_IB_GDR_LEVEL", "") == "0")
        case _:
            return False


def gang_state(ranks: Sequence[RankVerdict], missing: Sequence[int]) -> tuple[State, str]:
    """The gang's state: what all ranks agree on, of those that talk off their node."""
    ranks = [rank for rank in ranks if not rank.stray]
    if not ranks:
        return State.UNPROVED, "nothing of NCCL in these logs: run with NCCL_DEBUG=INFO"
    proved_hosts = {rank.host for rank in ranks if rank.channels and rank.host}
    owing = [rank for rank in ranks if not (rank.on_node and rank.host in proved_hosts)]
    seen = Counter(rank.state for rank in owing)
    known = [state for state in seen if state is not State.UNPROVED]
    if len(known) > 1 or State.MIXED in known:
        return State.MIXED, "; ".join(f"{_ranks(owing, state)}: {state}" for state in seen)
    if known and known[0] is not State.PROVED:
        return known[0], f"{_ranks(owing, known[0])}: {_first(owing, known[0]).reason}"
    if seen[State.UNPROVED]:
        return State.UNPROVED, f"{_ranks(owing, State.UNPROVED)}: {_first(owing, State.UNPROVED).reason}"
    if missing:
        return State.UNPROVED, f"the logs say nothing of {_plural(_numbers(missing), len(missing))}"
    return State.PROVED, f"{_ranks(owing, State.PROVED)}: every channel off the node is RDMA with GPUDirect"


def _first(ranks: Iterable[RankVerdict], state: State) -> RankVerdict:
    return next(rank for rank in ranks if rank.state is state)


def _ranks(ranks: Sequence[RankVerdict], state: State) -> str:
    of = [rank.rank for rank in ranks if rank.state is state]
    if len(of) == len(ranks) > 1:
        return f"all {len(of)} ranks"
    named = _numbers([int(rank) for rank in of]) if all(rank.isdigit() for rank in of) else ", ".join(of[:4]) + (
        f" and {len(of) - 4} more" if len(of) > 4 else "")
    return _plural(named, len(of))


def _plural(named: str, count: int) -> str:
    return f"rank{'s' if count > 1 else ''} {named}"


def _numbers(ranks: Sequence[int]) -> str:
    """Numbers as ranges: 0-3, 7."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def _names(traffic: Mapping[str, Traffic]) -> str:
    return ", ".join(f"NET/{net}" for net in traffic)


def _count(traffic: Mapping[str, Traffic]) -> int:
    return sum(one.count for one in traffic.values())
