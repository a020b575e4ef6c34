"""`python -m gangline.node`: the supervisor of one node, or of one job's part on a node."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from gangline.model.errors import Rejected
from gangline.node import jobside
from gangline.node.jobside import OwnJob
from gangline.node.proc import close_descriptors
from gangline.node.supervisor import Supervisor


def main() -> None:
    """Detach from whoever started us, supervise, and exit with the supervisor's status."""
    asked = _arguments()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO,
                        format=f"%(asctime)s {asked.node} %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        supervisor = _supervisor(asked)
    except Rejected as exc:
        sys.stderr.write(f"gangline: {exc}\n")
        sys.exit(exc.exit_code)
    _detach(session=asked.job is None)
    asyncio.run(_supervise(supervisor))


def _supervisor(asked: argparse.Namespace) -> Supervisor:
    token = jobside.take_token(os.environ, asked.token_file)
    address = asked.address or jobside.own_address(asked.server)
    if asked.job is None:
        template = Path(asked.warm_template).absolute() if asked.warm_template else None
        return Supervisor(asked.server, asked.node, asked.home.absolute(), address, template, token=token)
    job = OwnJob(gang=asked.gang, attempt=asked.attempt, devices=jobside.devices_of(os.environ))
    home = jobside.job_home(asked.home, asked.job)
    return Supervisor(asked.server, asked.node, home, address, None, token=token, job=job)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gangline.node")
    parser.add_argument("--server", required=True, metavar="URL", help="unix:/path/s.sock or http(s)://host:port")
    parser.add_argument("--node", required=True, help="the node's name")
    parser.add_argument("--home", type=Path,
                        help="folder for the node's files; with --job, for all jobs [default: /tmp/gangline-UID]")
    parser.add_argument("--address", help="where other nodes reach this one [default: as it reaches the server]")
    parser.add_argument("--warm-template", default="", metavar="SOCKET",
                        help="socket of the machine's template; empty: ranks start cold")
    parser.add_argument("--job", help="serve one attempt only, and leave with it: the name of its job")
    parser.add_argument("--gang", help="with --job: whose attempt")
    parser.add_argument("--attempt", type=int, help="with --job: which one")
    parser.add_argument("--token-file", type=Path, help=f"with the node's token [default: ${jobside.TOKEN_ENV}]")
    asked = parser.parse_args()
    if asked.job is None and asked.home is None:
        parser.error("--home is needed without --job")
    if asked.job is not None and (asked.gang is None or asked.attempt is None):
        parser.error("--job needs --gang and --attempt")
    return asked


async def _supervise(supervisor: Supervisor) -> None:
    status = await supervisor.run()
    logging.shutdown()
    os._exit(status)  # a thread may still be reading a large version, for nobody


def _detach(*, session: bool) -> None:
    """On its own; `session` False: in the session of whoever started it, which ends with the job."""
    if session:
        with contextlib.suppress(PermissionError):
            os.setsid()  # already so when started as a session's leader
    close_descriptors(())
    search = os.environ.get("PYTHONPATH")
    if search:
        # Ranks inherit it and run elsewhere.
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, search.split(os.pathsep)))
    os.chdir("/")


if __name__ == "__main__":
    main()
