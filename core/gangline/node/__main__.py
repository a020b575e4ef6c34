"""`python -m gangline.node`: the supervisor of one node."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from gangline.node.proc import close_descriptors
from gangline.node.supervisor import Supervisor


def main() -> None:
    """Detach from whoever started us, supervise, and exit with the supervisor's status."""
    parser = argparse.ArgumentParser(prog="python -m gangline.node")
    parser.add_argument("--server", required=True, metavar="URL", help="unix:/path/s.sock or http(s)://host:port")
    parser.add_argument("--node", required=True, help="the node's name")
    parser.add_argument("--home", required=True, type=Path, help="folder for the node's files")
    parser.add_argument("--address", default="127.0.0.1", help="where other nodes reach this one")
    parser.add_argument("--warm-template", default="", metavar="SOCKET",
                        help="socket of the machine's template; empty: ranks start cold")
    asked = parser.parse_args()
    home = asked.home.absolute()
    template = Path(asked.warm_template).absolute() if asked.warm_template else None
    _detach()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO,
                        format=f"%(asctime)s {asked.node} %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_supervise(asked.server, asked.node, home, asked.address, template))


async def _supervise(url: str, node: str, home: Path, address: str, template: Path | None) -> None:
    status = await Supervisor(url, node, home, address, template).run()
    logging.shutdown()
    os._exit(status)  # a thread may still be reading a large version, for nobody


def _detach() -> None:
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
