"""The command line: one group, and one way for every failure to end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

import gangline
from gangline.model.errors import GanglineError

if TYPE_CHECKING:
    from gangline.client.http import Client

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130
BROKEN_PIPE = 141
INTERNAL = 70


@dataclass(frozen=True, slots=True)
class Reach:
    """Which server a command talks to."""

    url: str | None
    home: str | None

    def client(self, *, start: bool = True) -> Client:
        """A client of it; the embedded server is started when none runs, unless `start` is False."""
        from gangline.client import connect  # the HTTP library, which --help need not load

        client = connect(self.url, home=self.home, start=start)
        click.get_current_context().call_on_close(client.close)
        return client


def reaches_server(command: F) -> F:
    """Give a command --url and --home, passed to it as `reach`."""

    def wrapped(*args: Any, url: str | None, home: str | None, **kwargs: Any) -> Any:
        return command(*args, reach=Reach(url, home), **kwargs)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__dict__.update(command.__dict__)  # click keeps a command's parameters there
    wrapped = click.option("--home", metavar="DIR", help="Home of the embedded server "
                           "[default: GANGLINE_HOME, else ~/.gangline].")(wrapped)
    return click.option("--url", metavar="URL", help="Address of a server: unix:/path, http://host:port "
                        "[default: GANGLINE_URL].")(wrapped)  # type: ignore[return-value]


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


_MODULE_OF = {
    **dict.fromkeys(("run", "submit"), "runs"),
    **dict.fromkeys(("list", "show", "logs", "explain", "cancel"), "gangs"),
    **dict.fromkeys(("serve", "stop", "status"), "service"),
    "fleet": "fleet", "volume": "volumes", "usage": "usage", "plan": "plan", "simulate": "simulate", "rdma": "rdma",
    "doctor": "doctor",
}


class _Commands(click.Group):
    """Imports a command's module when it is asked for: most need neither planner nor node."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _MODULE_OF:
            import_module(f"gangline.cli.{_MODULE_OF[cmd_name]}")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gangline.__version__, prog_name="gangline")
def cli() -> None:
    """Many GPU nodes at once, from a pipeline step or from here.

    \b
    Examples:
      gangline fleet init --emulated H100:8 --nodes 4     four pretended nodes on this machine
      gangline run train.yaml                             submit, follow, exit with its status
      gangline run train:main --size 4 --gpu H100:8 --arg lr=0.001
      gangline explain sft                                why does it wait?

    Exit status: 0 done, 1 the gang failed, 2 bad request, 3 no server answers, 130 interrupted
    (Ctrl-C), 143 detached (SIGTERM).
    """


def run_cli(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit status. Every failure is one line on stderr."""
    try:
        status = cli.main(args=None if argv is None else list(argv), prog_name="gangline",
                          standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as exc:
        where = f" (see {exc.ctx.command_path} --help)" if exc.ctx else ""
        return _fail(f"{exc.format_message().rstrip('.')}{where}", 2)
    except click.ClickException as exc:
        return _fail(exc.format_message(), 2)
    except GanglineError as exc:
        return _fail(str(exc), exc.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail too
        return BROKEN_PIPE
    except Exception as exc:  # noqa: BLE001 - the last line of defence: a person gets a line, not a trace
        return _fail(f"internal error: {type(exc).__name__}: {exc} (GANGLINE_DEBUG=1 shows where; "
                     "please report it)", INTERNAL)


def _fail(message: str, status: int) -> int:
    if os.environ.get("GANGLINE_DEBUG") == "1":
        traceback.print_exc()
    first, *rest = message.splitlines() or [""]
    sys.stderr.write(f"error: {first}\n" + "".join(f"  {line}\n" for line in rest))
    return status
