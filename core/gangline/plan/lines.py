"""Sets of rows as bits: what is open of a leaf is one number, and taking a gang from it one operation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Bits = tuple[int, int]  # a smallest subtree, and some of its rows
_PLACES = [[place for place in range(8) if byte >> place & 1] for byte in range(256)]  # the bits of each byte


class Lines:
    """The rows of each smallest subtree in the order in which gangs take them: by (GPU count, row).

    Bit n of a subtree's number stands for the n-th of its rows.
    """

    def __init__(self, subtree: NDArray[np.int64], starts: NDArray[np.int64], count: NDArray[np.int64]) -> None:
        order = np.lexsort((count, subtree))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - starts[subtree]
        bytes_each = -(-np.diff(starts) // 8)
        first_byte = np.concatenate(([0], np.cumsum(bytes_each)))
        self._slot = first_byte[subtree] * 8 + place  # the bit of each row when all subtrees are packed
        self._first_byte: list[int] = first_byte.tolist()
        self._row: list[int] = order.tolist()
        self._place: list[int] = place.tolist()
        self._subtree: list[int] = subtree.tolist()
        self._starts: list[int] = starts.tolist()

    def pack(self, rows: NDArray[np.int64]) -> bytes:
        """The rows of all subtrees, for `unpack`."""
        bits = np.zeros(self._first_byte[-1] * 8, np.bool_)
        bits[self._slot[rows]] = True
        return np.packbits(bits, bitorder="little").tobytes()

    def unpack(self, packed: bytes, subtree: int) -> int:
        """The packed rows of one subtree as bits."""
        return int.from_bytes(packed[self._first_byte[subtree]:self._first_byte[subtree + 1]], "little")

    def split(self, rows: Iterable[int]) -> list[Bits]:
        """The rows as bits of their subtrees."""
        found: dict[int, int] = {}
        for row in rows:
            subtree = self._subtree[row]
            found[subtree] = found.get(subtree, 0) | 1 << self._place[row]
        return list(found.items())

    def rows(self, some: Iterable[Bits]) -> list[int]:
        """The rows of the subtrees' bits, each subtree's in its order."""
        row = self._row
        found: list[int] = []
        for subtree, bits in some:
            begin = self._starts[subtree]
            for byte in bits.to_bytes(-(-bits.bit_length() // 8), "little"):
                if byte:
                    found += [row[begin + place] for place in _PLACES[byte]]
                begin += 8
        return found


def first_bits(bits: int, size: int) -> int:
    """The `size` first of the bits, which are no fewer."""
    beyond = bits.bit_count() - size
    if size < beyond:
        rest = bits
        for _ in range(size):
            rest &= rest - 1
        return bits ^ rest
    for _ in range(beyond):
        bits ^= 1 << bits.bit_length() - 1
    return bits
