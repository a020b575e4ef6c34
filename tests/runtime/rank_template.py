"""Runs functions of rank_bodies on freshly forked ranks: the cost of importing torch is paid once.

One JSON request per line on stdin: {"body", "args", "ranks": [environment of each], "results"}; one JSON
reply per line on stdout: {"exits": [exit code or -signal of each rank]}. When a rank is killed its peers
are killed at once, as a supervisor does. Results land in <results>/<rank>.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import rank_bodies

DEADLINE_S = 60


def main() -> None:
    if "torch" in sys.argv:
        import torch
        import torch._dynamo  # the first sharded tensor would import it on every rank
        import torch.distributed.checkpoint
        import torch.distributed.tensor


        torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps({"exits": run(json.loads(line))}), flush=True)


def run(request: dict[str, Any]) -> list[int]:
    pids = [fork(request, rank, env) for rank, env in enumerate(request["ranks"])]
    exits: dict[int, int] = {}
    while len(exits) < len(pids):
        pid, status = os.wait()
        exits[pid] = os.waitstatus_to_exitcode(status)
        if exits[pid] < 0:
            for peer in pids:
                if peer not in exits:
                    os.kill(peer, signal.SIGKILL)
    return [exits[pid] for pid in pids]


def fork(request: dict[str, Any], rank: int, env: dict[str, str]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.dup2(2, 1)
        signal.alarm(DEADLINE_S)
        os.environ.update(env)
        result = getattr(rank_bodies, request["body"])(rank, len(request["ranks"]), **request["args"])
        Path(request["results"], f"{rank}.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(code)


main()
os._exit(0)  # torch takes seconds to tidy up
