"""Why a rank ended, judged from what is known of its end. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gangline.model.states import Cause

_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP"})
_PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
# What gloo, NCCL and torch's store say when the other end of a connection is gone.
_PEER_GONE = re.compile(
    r"connection (closed|reset) by peer|broken pipe|remote process exited|ncclremoteerror|"
    r"socket recv failed|connection was likely closed|failed to recv, got 0 bytes", re.IGNORECASE)
_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a rank ended: exactly one of `code` and `signal`, and what surrounded it."""

    rank: int
    code: int | None
    signal: str | None
    last_lines: tuple[str, ...]
    ended_because: str | None  # why Gangline had told the tree to end before, if it had
    ended_as: Cause  # and as what that counts
    oom_killed: bool  # the kernel killed something for memory since the attempt began
    starting: bool  # shortly after the start and before any progress
    stopped: bool = False  # it had been asked to stop, by SIGTERM
    master_port: int
    peers: bool = False  # the gang has other nodes, whose ranks it talks to


def judge(end: Ending) -> tuple[Cause, str]:
    """The cause that decides about a retry, and one line for people."""
    if end.code == 0:
        return _left(end)
    how = f"ended with exit code {end.code}" if end.signal is None else f"was ended by {end.signal}"
    if end.ended_because is not None:
        return end.ended_as, f"rank {end.rank} {how}: {end.ended_because}"
    if end.signal is None or end.signal in _CRASHES:
        return _of_its_own(end, how)
    if end.signal == "SIGKILL" and end.oom_killed:
        return Cause.OOM, f"rank {end.rank} was killed by the kernel for memory"
    return Cause.LOST, f"rank {end.rank} was killed from outside by {end.signal}"


def lost_its_peers(end: Ending) -> bool:
    """It failed because ranks elsewhere were gone: their node, if any, is to blame, and not its own."""
    failed = end.code not in (0, None) and end.ended_because is None
    return failed and end.peers and _PEER_GONE.search("\n".join(end.last_lines)) is not None


def _left(end: Ending) -> tuple[Cause, str]:
    """Exit code 0 is success, unless the rank was asked to stop: its work may be half done."""
    if not end.stopped:
        return Cause.SUCCESS, ""
    if end.ended_because is None:
        return Cause.LOST, f"rank {end.rank} stopped because of a SIGTERM from outside"
    return end.ended_as, f"rank {end.rank} stopped when asked to: {end.ended_because}"


def _of_its_own(end: Ending, how: str) -> tuple[Cause, str]:
    said = "\n".join(end.last_lines)
    port = re.compile(rf"\b{end.master_port}\b")
    if end.starting and _PORT_TAKEN.search(said) and port.search(said):
        return Cause.LAUNCH, f"rank {end.rank} found port {end.master_port} taken (EADDRINUSE)"
    if lost_its_peers(end):
        return Cause.LOST, f"rank {end.rank} lost contact with its peers"
    last = next((line.strip() for line in reversed(end.last_lines) if line.strip()), "")
    return Cause.USER, f"rank {end.rank} {how}" + (f": {last[:_TEXT_CHARS]}" if last else "")
