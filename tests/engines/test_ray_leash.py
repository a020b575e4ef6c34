"""The leash of a supervisor: whatever happens, nothing of its tree is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from rig import everywhere, until

LEASH = [sys.executable, "-P", "-m", "gangline.engines.ray.leash"]
# A program with a child that left its session and its parent; it says when that one is there.
TREE = """
import os, signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    if not os.fork():
        print("grown", flush=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
sys.exit(3) if "leaves" in sys.argv else time.sleep(1000)
"""


@pytest.fixture
def leash(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    mark = f"leashed-{request.node.name}"
    process = subprocess.Popen([*LEASH, sys.executable, "-S", "-c", TREE, mark, *request.param],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "grown\n"
    process.mark = mark  # type: ignore[attr-defined]
    yield process
    process.kill()
    process.communicate()
    for line in everywhere(mark):
        psutil.Process(int(line.split()[0])).kill()


def left(leash: subprocess.Popen[str]) -> list[str]:
    return everywhere(leash.mark)  # type: ignore[attr-defined]


@pytest.mark.parametrize("leash", [["leaves"]], indirect=True)
def test_a_program_that_ends_takes_its_orphans_along(leash: subprocess.Popen[str]) -> None:
    assert leash.wait(30) == 3
    assert left(leash) == []


@pytest.mark.parametrize("leash", [[]], indirect=True)
def test_it_is_asked_to_leave(leash: subprocess.Popen[str]) -> None:
    assert leash.stdin is not None
    leash.stdin.write("leave 100\n")
    leash.stdin.flush()
    assert leash.wait(30) == 128 + signal.SIGTERM
    assert left(leash) == []


@pytest.mark.parametrize("leash", [["stubborn"]], indirect=True)
def test_one_that_does_not_leave_is_killed_after_its_grace(leash: subprocess.Popen[str]) -> None:
    assert leash.stdin is not None
    leash.stdin.write("leave 100\n")
    leash.stdin.flush()
    leash.stdin.write("leave 0.1\n")
    leash.stdin.flush()
    assert leash.wait(30) == 128 + signal.SIGKILL
    assert left(leash) == []


@pytest.mark.parametrize("leash", [["stubborn"]], indirect=True)
def test_all_is_killed_when_the_holder_is_gone(leash: subprocess.Popen[str]) -> None:
    assert leash.stdin is not None
    leash.stdin.close()
    leash.stdin = None
    until(lambda: not left(leash), "nothing to be left", lambda: left(leash))


@pytest.mark.parametrize("leash", [["stubborn"]], indirect=True)
def test_a_holder_that_kills_its_child_first_leaves_nothing_either(leash: subprocess.Popen[str]) -> None:
    """As a Ray worker does when its raylet dies."""
    leash.kill()
    leash.communicate()
    until(lambda: not left(leash), "nothing to be left", lambda: left(leash))
