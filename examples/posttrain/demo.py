"""`make demo`: the whole pipeline twice at once, through Dagster and through Airflow, on one pretended fleet.

Everything it makes lies in `.demo/` (or the folder given): the fleet's home with ledger and volumes, the
two orchestrators' homes and logs, the loss curve. Run again, it reuses the base model.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

import gangline
from gangline.model.gang import GangView
from posttrain import demo_report
from posttrain.pipeline import base_model

EXAMPLES = Path(__file__).parents[1]
LOOK_EVERY_S = 0.5
WIDTH = 140  # where there is no terminal to fit into
INTERRUPTED = 130
SEED = 0


def main() -> int:
    """Run the demo; the exit status is 0 when both pipelines succeeded and agree."""
    parser = argparse.ArgumentParser(prog="posttrain.demo", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(".demo"))
    folder = parser.parse_args().folder.absolute()
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    environ = prepare(folder)
    os.environ.update(environ)
    started_ms = int(time.time() * 1000)
    with gangline.connect() as client:
        console.rule("the base model, from plain Python")
        setup = _commands("airflow", ["db", "migrate"], ["dags", "reserialize"])
        getting_ready = _Run(folder / "airflow-setup.log", setup, environ)
        getting_ready.start()
        base_model(client, SEED, console)
        if not getting_ready.wait():
            console.print(f"[red]Airflow could not be set up[/red]: see {getting_ready.log}")
            return 1
        console.rule("the same pipeline from Dagster and from Airflow, at once, on one fleet")
        failed = run_both(client, folder, environ, console)
        if failed:
            for name in failed:
                console.print(f"[red]{name} failed[/red]: see {folder / f'{name}.log'}")
            return 1
        agree = demo_report.show(client, console, folder, since_ms=started_ms)
    console.print(f"The fleet goes on for half an hour; end it with: {stop_command()}")
    return 0 if agree else 1


def stop_command() -> str:
    """What to type to end the demo's fleet, from any directory and without activating an environment."""
    return f"GANGLINE_HOME={os.environ.get('GANGLINE_HOME')} {Path(sys.executable).with_name('gangline')} stop"


def prepare(folder: Path) -> dict[str, str]:
    """Make the folders and say where they are, as environment variables."""
    homes = {"GANGLINE_HOME": folder / "home", "DAGSTER_HOME": folder / "dagster", "AIRFLOW_HOME": folder / "airflow"}
    for home in homes.values():
        home.mkdir(parents=True, exist_ok=True)
    fleet = folder / "home" / "fleet.yaml"
    if not fleet.exists():
        shutil.copy(Path(__file__).with_name("fleet.yaml"), fleet)
    (folder / "dagster" / "dagster.yaml").touch()
    return {
        **{name: str(home) for name, home in homes.items()},
        "PYTHONPATH": str(EXAMPLES),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }


def run_both(client: gangline.Client, folder: Path, environ: Mapping[str, str], console: Console) -> list[str]:
    """Run both pipelines to their ends, telling what happens; the names of those that failed."""
    commands = {
        "dagster": _commands("dagster", ["job", "execute", "-m", "posttrain.dagster_defs", "-j", "posttrain"]),
        "airflow": _commands("airflow", ["dags", "test", "posttrain"], ["dags", "test", "posttrain_promote"]),
    }
    runs = {name: _Run(folder / f"{name}.log", words, environ) for name, words in commands.items()}
    news = _News(console)
    for run in runs.values():
        run.start()
    try:
        while any(run.goes_on for run in runs.values()):
            news.tell(client.list())
            time.sleep(LOOK_EVERY_S)
    except BaseException:
        for run in runs.values():
            run.interrupt()
        raise
    news.tell(client.list())
    return [name for name, run in runs.items() if not run.wait()]


def _commands(program: str, *each: list[str]) -> list[list[str]]:
    """Command lines of a program of this environment."""
    return [[str(Path(sys.executable).with_name(program)), *words] for words in each]


class _Run:
    """Commands of one orchestrator, one after the other in a thread, their output in a log file."""

    def __init__(self, log: Path, commands: list[list[str]], environ: Mapping[str, str]) -> None:
        self.log = log
        self._commands = commands
        self._environ = {**os.environ, **environ}
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=log.stem, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> bool:
        """Whether all commands succeeded, once they are over."""
        self._thread.join()
        return not self._failed

    def interrupt(self) -> None:
        self._failed = True
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _run(self) -> None:
        with self.log.open("wb") as output:
            for command in self._commands:
                self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                                 env=self._environ, cwd="/")
                if self._process.wait() != 0 or self._failed:
                    self._failed = True
                    return


class _News:
    """One line for every change of a gang: its state, why it waits, how far it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._said: dict[str, str] = {}

    def tell(self, gangs: list[GangView]) -> None:
        for view in sorted(gangs, key=lambda view: view.submitted_ms):
            line = demo_report.news(view)
            if line != self._said.get(view.gang):
                self._said[view.gang] = line
                self._console.print(f"[dim]{time.monotonic() - self._started:5.1f}s[/dim] {line}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print(f"interrupted; gangs that run go on: {stop_command()} --force ends them and their fleet",
              file=sys.stderr)
        sys.exit(INTERRUPTED)
