"""Sets of rows as bits come back as the rows they were made of, also on leaves of many nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.plan.lines import Lines, first_bits

LEAVES = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=40), min_size=1, max_size=4)


def lines_of(leaves: list[list[int]]) -> Lines:
    """Rows in leaf order; each number is how many GPUs the node has."""
    sizes = [len(leaf) for leaf in leaves]
    subtree = np.repeat(np.arange(len(leaves)), sizes)
    return Lines(subtree, np.cumsum([0, *sizes]), np.asarray([count for leaf in leaves for count in leaf]))


@given(LEAVES, st.data())
def test_rows_come_back(leaves: list[list[int]], data: st.DataObject) -> None:
    lines, many = lines_of(leaves), sum(map(len, leaves))
    rows = sorted(data.draw(st.sets(st.integers(0, many - 1))))
    packed = lines.pack(np.asarray(rows, np.int64))
    inside = [(leaf, bits) for leaf in range(len(leaves)) if (bits := lines.unpack(packed, leaf))]
    assert inside == lines.split(rows)
    assert sorted(lines.rows(inside)) == rows


@given(LEAVES, st.data())
def test_the_first_bits_are_the_smallest_nodes(leaves: list[list[int]], data: st.DataObject) -> None:
    leaf = leaves[0]
    lines = lines_of(leaves)
    rows = data.draw(st.sets(st.integers(0, len(leaf) - 1), min_size=1))
    size = data.draw(st.integers(0, len(rows)))
    (_, bits), = lines.split(rows)
    assert lines.rows([(0, first_bits(bits, size))]) == sorted(rows, key=lambda row: (leaf[row], row))[:size]
