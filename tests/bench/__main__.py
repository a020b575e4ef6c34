"""The speed table: `python tests/bench [NAME...]` measures and prints it; a missed target fails nothing."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from lab import Lab
from rich.console import Console
from table import Row, print_table

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))  # the worlds that tests build, too
NAMES = ("startup", "rank_death", "checkpoint", "watchers", "planning", "backlog", "replay", "parse")
ROUNDS = 5
LOADED = 0.25  # of all cores, taken by others


def main() -> int:
    names, rounds, as_json = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the fleet is stopped then too
    console = Console(stderr=True)
    machine = _machine()
    console.print(_load_notice(machine), style="yellow" if machine["loaded"] else None, soft_wrap=True)
    began_s = time.monotonic()
    rows: list[Row] = []
    failures: dict[str, str] = {}
    try:
        with Lab(rounds) as lab:
            for name in names:
                try:
                    rows += importlib.import_module(name).run(lab)
                except Exception as exc:  # noqa: BLE001 - the others are worth measuring all the same
                    failures[name] = f"{type(exc).__name__}: {exc}"
                    console.print(f"{name}: not measured: {failures[name]}", style="red", markup=False)
    except KeyboardInterrupt:
        return 130
    took_s = time.monotonic() - began_s
    if as_json:
        print(json.dumps({"machine": machine, "took_s": took_s, "rows": [row.plain() for row in rows],
                          "not_measured": failures}, indent=1))
    else:
        print_table(rows)
        print(f"{_load_notice(machine)}; {rounds} rounds in {took_s:.0f} s")
        for name, why in failures.items():
            print(f"{name} was not measured: {why}")
    return 1 if failures else 0


def _arguments() -> tuple[Sequence[str], int, bool]:
    abouts = "\n".join(f"  {name:<12}{importlib.import_module(name).ABOUT}" for name in NAMES)
    parser = argparse.ArgumentParser(
        prog="python tests/bench", description=__doc__, epilog=f"benchmarks:\n{abouts}",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []], help="only these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is run (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return given.names or NAMES, given.rounds, given.json


def _machine() -> dict[str, Any]:
    """The machine, and how busy others keep it before anything is measured."""
    busy = psutil.cpu_percent(interval=1.0) / 100
    return {"cores": os.cpu_count(), "python": platform.python_version(), "loadavg": os.getloadavg()[0],
            "busy": busy, "loaded": busy > LOADED}


def _load_notice(machine: dict[str, Any]) -> str:
    state = (f"{machine['cores']} cores, load average {machine['loadavg']:.1f}, "
             f"{machine['busy']:.0%} busy before the start")
    return f"{state}: LOADED by others, trust ratios more than times" if machine["loaded"] else state


if __name__ == "__main__":
    sys.exit(main())
