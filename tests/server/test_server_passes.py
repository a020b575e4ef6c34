"""Passes and explanations over HTTP, as the command line asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Running
from gangline.cli.app import run_cli
from gangline.client import Client
from gangline.model.errors import NotFound
from gangline.model.gang import Ensured

Waiting = Callable[..., tuple[Ensured, int]]


def said(capsys: pytest.CaptureFixture[str], server: Running, *argv: str) -> tuple[int, str]:
    status = run_cli([*argv, "--url", server.url])
    return status, capsys.readouterr().out


def test_passes_are_listed_shown_compared_and_made_again(
        client: Client, server: Running, waiting_gang: Waiting, capsys: pytest.CaptureFixture[str]) -> None:
    gang = waiting_gang(client)[0].gang
    passes = client.passes()
    assert [each.id for each in passes] == sorted((each.id for each in passes), reverse=True)
    asked = next(each for each in passes if each.asked)
    assert (asked.asked, asked.pending, asked.replayable, asked.policy) == (1, 1, True, "submit-order")
    assert client.passes(before=asked.id + 1, limit=1) == [asked]
    assert client.get_pass(asked.id).inputs is None
    detail = client.get_pass(asked.id, inputs=True)
    assert detail.inputs is not None
    assert [request["gangs"] for request in detail.plan["capacity"]] == [[gang]]

    status, text = said(capsys, server, "plan", "--list")
    assert (status, "1 nodes asked for" in text) == (0, True)
    status, text = said(capsys, server, "plan", "--show", str(asked.id))
    assert (status, f"pool p is asked for 1 node for {gang}" in text) == (0, True)
    status, text = said(capsys, server, "plan", "--diff", str(asked.id), str(asked.id), "--json")
    assert (status, json.loads(text)["differences"]) == (0, [])
    status, text = said(capsys, server, "plan", "--replay", str(asked.id), "--json")
    replayed = json.loads(text)
    assert (status, replayed["same"], replayed["differences"]) == (0, True, [])
    status, text = said(capsys, server, "plan", "--replay", str(asked.id), "--policy", "fifo", "--json")
    assert (status, json.loads(text)["policy"]) == (0, "fifo")


def test_a_pass_that_is_not_kept_is_not_found(server: Running, client: Client,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match="there is no pass 999"):
        client.get_pass(999)
    assert run_cli(["plan", "--show", "999", "--url", server.url]) == 2
    assert "gangline plan --list" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["plan"], ["plan", "--list", "--show", "1"], ["plan", "--fleet", "f.yaml"]])
def test_one_thing_is_looked_at(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(argv) == 2
    assert "--" in capsys.readouterr().err


def test_explain_says_where_it_was_tried_and_what_would_help(
        client: Client, server: Running, play_node: Any, waiting_gang: Waiting,
        capsys: pytest.CaptureFixture[str]) -> None:
    play_node(server, "p-1")
    play_node(server, "p-2")
    gang = waiting_gang(client, placement={"exclude": ["nobody"]})[0].gang
    found = client.explain(gang)
    assert found.wait is not None
    assert found.tried[0].need == 3
    assert [(each.change, each.fits) for each in found.what_if] == [("with size 2", True)]
    status, text = said(capsys, server, "explain", gang)
    assert (status, "fits now with size 2" in text) == (0, True)
    status, text = said(capsys, server, "explain", gang, "--json")
    assert json.loads(text)["explanation"]["gang"] == gang


def test_of_a_gang_that_does_not_wait_there_is_nothing_to_explain(
        client: Client, server: Running, submission: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gang = client.ensure(submission(size=3)).gang
    client.cancel(gang, None, "enough")
    assert client.explain(gang).tried == ()
    status, text = said(capsys, server, "explain", gang, "--json")
    assert (status, "explanation" in json.loads(text)) == (0, False)
