"""`python -m gangline.server --home H [--fleet F] [--listen HOST:PORT] [--idle-s N]`: serve a home."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gangline.model.errors import GanglineError, Unavailable


def main(argv: list[str]) -> int:
    """Serve until stopped; the exit code. A failure to start is one line on stderr."""
    options = _options(argv)
    if options.detach and os.fork():
        # Nobody's child: whoever started this must not have to wait for the server or collect it.
        os._exit(0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        _serve(options)
    except GanglineError as exc:
        sys.stderr.write(f"gangline: {exc}\n")
        return exc.exit_code
    except OSError as exc:
        sys.stderr.write(f"gangline: cannot serve {options.home}: {exc}\n")
        return Unavailable.exit_code
    return 0


def _serve(options: argparse.Namespace) -> None:
    # Imported after the fork, which is cheap and safe only before there is anything to copy.
    from gangline.client.address import read_token, token_of
    from gangline.server.engines import make_loop
    from gangline.server.run import Settings, serve

    token = read_token(options.token_file, field="token-file") if options.token_file else token_of(os.environ)
    serve(Settings(home=options.home, fleet=options.fleet, listen=options.listen, token=token,
                   hosts=tuple(options.allow_host), idle_s=options.idle_s,
                   on_ready=_announcer(options.ready_fd)), make_loop)


def _announcer(ready_fd: int | None) -> Callable[[], None]:
    """Tells the starter at the other end of a pipe. Nodes must not inherit it: its end means death."""
    if ready_fd is None:
        return lambda: None
    os.set_inheritable(ready_fd, False)

    def announce() -> None:
        try:
            os.write(ready_fd, b"1")
        except BrokenPipeError:
            pass  # the starter gave up waiting; others will find the server
        finally:
            os.close(ready_fd)

    return announce


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gangline serve", allow_abbrev=False,
                                     description="Serve a home: schedule its gangs on its fleet.")
    default = os.environ.get("GANGLINE_HOME") or os.path.expanduser("~/.gangline")
    parser.add_argument("--home", type=Path, default=Path(default),
                        help="default: GANGLINE_HOME or ~/.gangline")
    parser.add_argument("--fleet", type=Path, help="default: fleet.yaml in the home, else this machine")
    parser.add_argument("--listen", metavar="HOST:PORT", help="also serve HTTP there")
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[],
                        help="a name by which clients reach --listen; may be repeated")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token that --listen asks for")
    parser.add_argument("--idle-s", type=float, default=1800.0, help="stop after so long without work (1800)")
    parser.add_argument("--detach", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
