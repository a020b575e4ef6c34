"""Slurm's host lists."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.topology.hostlist import MOST_NAMES, expand


@pytest.mark.parametrize(("text", "names"), [
    ("n1", ["n1"]),
    ("n1,n2", ["n1", "n2"]),
    ("n[001-003,020]", ["n001", "n002", "n003", "n020"]),
    ("n[8-11]", ["n8", "n9", "n10", "n11"]),
    ("n[08-11]", ["n08", "n09", "n10", "n11"]),
    ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ("n[1-2]-ib,login", ["n1-ib", "n2-ib", "login"]),
    ("[1-2]", ["1", "2"]),
])
def test_a_list_stands_for_its_names_in_order(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(("text", "words"), [
    ("", "is empty"),
    ("n1,,n2", "empty name"),
    ("n[1-3", "not closed"),
    ("n1-3]", "not open"),
    ("n[1-[2]]", "inside a bracket"),
    ("n[3-1]", "backwards"),
    ("n[a-c]", "not a number or a range"),
    ("n[]", "not a number or a range"),
    ("n[1-8:2]", "not a number or a range"),
    ("n 1", "not a name"),
    ("n[1-99999999999]", f"more than {MOST_NAMES}"),
    ("r[1-900]n[1-900]", f"more than {MOST_NAMES}"),
])
def test_a_bad_list_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expand(text)


@given(st.text("n1[]-,0 ", max_size=20))
def test_any_text_gives_names_or_a_reason(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert all(expand(text))
