"""`doctor`: what would keep Gangline from working here, and how to mend it."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

import gangline
from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.output import show, show_json
from gangline.cli.render_fleet import Check, check_list
from gangline.cli.yamlfile import read_fleet
from gangline.client.address import home_dir
from gangline.client.record import read_record
from gangline.model.errors import GanglineError, Unavailable
from gangline.node import cgroup

_SOCKET_BYTES = 107
_SQLITE_FIXED = (3, 51, 3)  # the release that ends a corruption with several writers to one WAL


@cli.command()
@as_json
@reaches_server
def doctor(reach: Reach, as_json: bool) -> int:
    """Check this machine and the server; exit 1 when something fails."""
    home = home_dir(reach.home, os.environ)
    checks = [*_machine(), *_home(home), *_server(reach, home), *_fleet(home), *_kill(), *_leftovers()]
    if as_json:
        show_json({"checks": [{"state": c.state, "what": c.what, "fix": c.fix} for c in checks]})
    else:
        show(check_list(checks))
    return 1 if any(c.state == "fail" for c in checks) else 0


def _machine() -> Iterator[Check]:
    python = f"Python {platform.python_version()}, gangline {gangline.__version__}"
    if sys.platform != "linux":
        yield Check("fail", f"{sys.platform}: {python}", "Gangline runs on Linux only")
    else:
        yield Check("ok", python)
    try:
        yield Check("ok", f"torch {version('torch')}")
    except PackageNotFoundError:
        yield Check("warn", "torch is not installed: ranks start without it, checkpoints are plain files",
                    "pip install 'gangline[torch]', if your code trains with it")
    if sqlite3.sqlite_version_info >= _SQLITE_FIXED:
        yield Check("ok", f"SQLite {sqlite3.sqlite_version}")
    else:
        yield Check("ok", f"SQLite {sqlite3.sqlite_version}: safe as used, with one writer; "
                    "do not open gangline.db with other programs while the server runs")


def _home(home: Path) -> Iterator[Check]:
    there = home
    while not there.exists():
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as exc:
        yield Check("fail", f"cannot write {there}: {exc.strerror}",
                    "set GANGLINE_HOME to a directory you can write")
        return
    if there == home and stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield Check("warn", f"home {home} is open to others", f"chmod 700 {home}")
    else:
        yield Check("ok", f"home {home} can be written")
    socket_bytes = len(os.fsencode(home / "s.sock"))
    if socket_bytes <= _SOCKET_BYTES:
        yield Check("ok", f"the socket's path has {socket_bytes} of {_SOCKET_BYTES} bytes")
    else:
        yield Check("ok", f"the socket's path would have {socket_bytes} of {_SOCKET_BYTES} bytes; "
                    f"it lies in /tmp/gangline-{os.getuid()} instead")


def _server(reach: Reach, home: Path) -> Iterator[Check]:
    try:
        status = reach.client(start=False).status()
    except Unavailable as exc:
        if reach.url or os.environ.get("GANGLINE_URL") or _alive(home):
            yield Check("fail", exc.message, exc.fix or "")
        else:
            yield Check("ok", "no server runs; the first command that needs one starts it")
        return
    except GanglineError as exc:
        yield Check("fail", exc.message, exc.fix or "")
        return
    if status.version != gangline.__version__:
        yield Check("fail", f"the server is version {status.version}, this is {gangline.__version__}",
                    "run: gangline stop, then try again")
    else:
        yield Check("ok", f"server {status.version} answers at {status.url} (process {status.pid})")
    idle = [n.node for n in status.nodes if not n.takes_work]
    if idle:
        yield Check("warn", f"{len(idle)} of {len(status.nodes)} nodes take no work: {', '.join(idle[:8])}",
                    "see: gangline fleet show")
    else:
        yield Check("ok", f"{len(status.nodes)} nodes take work")


def _fleet(home: Path) -> Iterator[Check]:
    path = home / "fleet.yaml"
    if not path.exists():
        yield Check("ok", "no fleet file: the fleet is this machine as one node")
        return
    try:
        declared = read_fleet(path)
    except GanglineError as exc:
        yield Check("fail", str(exc), "mend the file, or: gangline fleet init --force --emulated H100:8")
        return
    pools = ", ".join(f"{p.name} ({p.gpu}{', emulated' if p.emulated else ''})" for p in declared.pools)
    yield Check("ok", f"fleet {path}: {pools}")


def _kill() -> Iterator[Check]:
    group = cgroup.create(f"gangline-doctor-{os.getpid()}")
    if group is not None:
        cgroup.remove(group)
        yield Check("ok", "whole process trees are ended by cgroup.kill")
    else:
        yield Check("ok", "no control group to write: process trees are ended by descent and markers")


def _leftovers() -> Iterator[Check]:
    """Supervisors whose home has no living server; one that is restarted soon takes them up again."""
    found = []
    for process in psutil.process_iter():
        try:
            argv = process.cmdline()
            if "gangline.node" not in argv or process.uids().real != os.getuid():
                continue
            home = process.environ().get("GANGLINE_HOME", "")
        except (psutil.Error, OSError):
            continue
        if "--home" in argv[:-1]:
            home = argv[argv.index("--home") + 1]
        if home and not _alive(Path(home)):
            found.append((process.pid, home))
    for pid, home in found:
        yield Check("warn", f"a node's supervisor (process {pid}) of {home} runs without a server",
                    f"GANGLINE_HOME={home} gangline list starts one, which takes it up again")
    if not found:
        yield Check("ok", "no supervisor is left without a server")


def _alive(home: Path) -> bool:
    record = read_record(home)
    return record is not None and record.alive
