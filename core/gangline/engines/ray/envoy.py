"""`python -m gangline.engines.ray.envoy`: a Ray driver on behalf of a server, one per cluster.

Ray's client is meant for one cluster per process, keeps threads and signal handlers of its own, and may hang or
end its process when the cluster goes away. None of that is to happen to a server, so it happens here. The envoy
leaves when its standard input ends, and keeps nothing that the next one would not find again.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from gangline.engines.ray.cluster import Cluster
from gangline.engines.ray.endings import Endings
from gangline.engines.ray.wire import Reply
from gangline.model.errors import GanglineError, Unavailable

_TEND_S = 0.25  # between looks at guarded jobs, each a look into this process's memory
_LEAVE_WITHIN_S = 20.0  # for the call in hand once the server is gone
_CALLS = ("look", "poll", "launch", "stop", "logs", "request")


def main() -> None:
    """Connect, then answer calls until nobody asks any more."""
    parser = argparse.ArgumentParser(prog="python -m gangline.engines.ray.envoy")
    parser.add_argument("--address", required=True, help="host:port of the head's GCS")
    parser.add_argument("--node-address", help="of this machine's raylet, where Ray cannot find it out")
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--folder", required=True, type=Path, help="for what is remembered of jobs")
    asked = parser.parse_args()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever Ray prints is no reply
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    try:
        cluster = _connect(asked.address, asked.node_address, asked.fleet, Endings(asked.folder))
    except Exception as error:  # noqa: BLE001 - Ray raises whatever it likes
        _send(replies, Reply(error=Unavailable(_words(error)).to_wire()))
        os._exit(1)
    _send(replies, Reply(ok=None))
    _serve(cluster, calls, replies)
    os._exit(0)  # Ray's own way out may wait for a cluster that is gone


def _connect(address: str, node_address: str | None, fleet: str, endings: Endings) -> Cluster:
    import ray

    ray.init(address=address, namespace=f"gangline-{fleet}", log_to_driver=False, configure_logging=False,
             **({} if node_address is None else {"_node_ip_address": node_address}))
    return Cluster(fleet, endings)


def _listen(calls: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        calls.put(line)
    calls.put("")
    threading.Event().wait(_LEAVE_WITHIN_S)
    os._exit(1)


def _serve(cluster: Cluster, calls: queue.SimpleQueue[str], replies: TextIO) -> None:
    while True:
        try:
            line = calls.get(timeout=_TEND_S if cluster.guarding else None)
        except queue.Empty:
            if _attempt(cluster.tend).get("ok"):
                _send(replies, Reply(event="changed"))
            continue
        if not line:
            return
        call = json.loads(line)
        if call["call"] not in _CALLS:
            raise ValueError(f"no call {call['call']!r}")
        _send(replies, _attempt(getattr(cluster, call["call"]), **call["args"]))


def _attempt(call: Callable[..., Any], **args: Any) -> Reply:
    try:
        return Reply(ok=call(**args))
    except GanglineError as error:
        return Reply(error=error.to_wire())
    except Exception as error:  # noqa: BLE001 - Ray raises whatever it likes; the server asks again
        return Reply(error=Unavailable(_words(error)).to_wire())


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]


def _send(replies: TextIO, reply: Reply) -> None:
    replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
