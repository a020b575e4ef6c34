"""What supervisors of jobs do, in little: an engine needs no more of them to be tested.

It says hello with its token, obeys its one order, and leaves when its attempt is over or it is told to.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("server", "job", "gang", "attempt", "node", "address", "home", "token-file"):
        parser.add_argument(f"--{name}")
    asked = parser.parse_args()
    token = os.environ.pop("GANGLINE_NODE_TOKEN", "")
    if asked.token_file:
        token = Path(asked.token_file).read_text().strip()
    StandIn(asked, token).run()


class StandIn:
    def __init__(self, asked: argparse.Namespace, token: str) -> None:
        self.asked, self.token = asked, token
        self.mark = f"GANGLINE_TREE={asked.job}/{asked.node}"
        self.started = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.leave())
        self.call("hello", {"node": self.asked.node, "incarnation": str(os.getpid()), "pid": os.getpid(),
                            "start_time": 0.0, "boot_id": "", "address": "127.0.0.1"})
        print(f"{self.asked.node}: welcomed", file=sys.stderr, flush=True)
        seen = ""
        while True:
            answer = self.call("poll", {"incarnation": str(os.getpid()), "seen": seen, "wait_s": 10})
            seen = answer["digest"]
            for order in answer["orders"]:
                self.obey(order)
            if seen == "over":
                return

    def obey(self, order: dict[str, Any]) -> None:
        match order["phase"]:
            case "assemble":
                self.report(order, "ready")
            case "start" if not self.started:
                self.started = True
                key, _, value = self.mark.partition("=")
                env = {**os.environ, **order["task"]["env"], key: value}
                subprocess.Popen(order["task"]["command"], env=env, start_new_session=True)
                self.report(order, "started")
            case "stop":
                self.kill()
                self.report(order, "empty")

    def report(self, order: dict[str, Any], kind: str) -> None:
        about = {key: order[key] for key in ("gang", "attempt", "generation")}
        self.call("reports", {"incarnation": str(os.getpid()), "reports": [{"kind": kind, **about}]})

    def call(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.asked.server}/v1/nodes/{self.asked.node}/{what}",
                                         json.dumps(body).encode(), {"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def leave(self) -> None:
        self.kill()
        os._exit(0)

    def kill(self) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


if __name__ == "__main__":
    main()
