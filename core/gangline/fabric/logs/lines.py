"""Bytes cut into lines with bounded memory, and the few lines worth reading found without reading the rest."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.fabric.logs.wrapping import plain

MAX_LINE = 65_536  # bytes; what a line has beyond them is not read

# A slice without any of these says nothing about the fabric. Every line of NCCL's has its name in it.
_FIRST = (b"NCCL", b"UCX", b"Xid (", b"Error: ", b"out of memory", b"OutOfMemory", b"Out of memory", b"oom-kill",
          b"CUDA error", b"ncclSystemError", b"unhandled system", b"libibverbs", b"Timed out waiting", b"ChildFailed",
          b"SignalException")
# In a slice where NCCL speaks, a line of its with none of these says nothing either.
_OF_NCCL = (b"NET/", b"NET\\/", b"NCCL WARN", b"NCCL ERROR", b"via P2P", b"via SHM", b"via direct", b"Using network ",
            b" nranks ", b" nNodes ", b"MNNVL 1 ", b"Local Net device", b"NCCL version", b"Bootstrap", b"NCCL error",
            b" set by environment ", b"GPU Direct RDMA Disabled", b"NCCL Error", b"Watchdog caught",
            b"DistBackendError")
_NEEDLES = tuple(needle for needle in _FIRST if needle != b"NCCL") + _OF_NCCL


class LineCutter:
    """Lines out of pieces of any size; the same lines whatever the pieces. Holds at most MAX_LINE bytes."""

    __slots__ = ("_held", "_over")

    def __init__(self) -> None:
        self._held = bytearray()
        self._over = False  # the line held is longer than MAX_LINE

    def cut(self, data: bytes | memoryview) -> Iterator[tuple[bytes, bool]]:
        """Candidates as (line, whole), in order, of what `data` completes."""
        view = memoryview(data)
        for start in range(0, len(view), MAX_LINE):
            yield from self._slice(bytes(view[start:start + MAX_LINE]))

    def end(self) -> Iterator[tuple[bytes, bool]]:
        """The line that has no end; it may be cut off."""
        line, self._held, self._over = bytes(self._held), bytearray(), False
        if line:
            yield from ((one, False) for one, _ in candidates(line))

    def _slice(self, piece: bytes) -> Iterator[tuple[bytes, bool]]:
        if b"\r" in piece:  # progress bars: what they overwrite was a line too
            piece = piece.replace(b"\r", b"\n")
        first = piece.find(b"\n")
        if first < 0:
            self._hold(piece)
            return
        self._hold(piece[:first])
        line, whole = bytes(self._held), not self._over
        last = piece.rfind(b"\n")
        self._held, self._over = bytearray(piece[last + 1:]), False
        yield from ((one, whole) for one, _ in candidates(line))
        if last > first:
            yield from candidates(piece[first + 1:last])

    def _hold(self, piece: bytes) -> None:
        room = MAX_LINE - len(self._held)
        self._held += piece[:room]
        self._over = self._over or len(piece) > room


def candidates(block: bytes) -> Iterator[tuple[bytes, bool]]:
    """The lines of a block of whole lines that may tell something, in order."""
    block = plain(block)
    if not any(needle in block for needle in _FIRST):
        return
    ends: set[int] = set()
    for needle in _NEEDLES:
        at = block.find(needle)
        while at >= 0:
            end = block.find(b"\n", at)
            ends.add(len(block) if end < 0 else end)
            if end < 0:
                break
            at = block.find(needle, end + 1)
    for end in sorted(ends):
        line = block[block.rfind(b"\n", 0, end) + 1:end]
        if b"NCCL" in line or any(needle in line for needle in _FIRST):  # so that neighbours do not decide
            yield line, True
