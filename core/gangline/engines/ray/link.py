"""The server's end of an envoy: calls with a time limit, over the pipes of a process that may die at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

from gangline.engines.ray.wire import Reply
from gangline.model.errors import GanglineError, Unavailable

_CONNECT_WITHIN_S = 60.0  # importing Ray and joining a cluster takes 1 to 3 s where all is well
_LEAVE_WITHIN_S = 5.0
_WORDS = 500
_PIPE_BYTES = 1 << 20  # more than the longest call: to write one never blocks
# What a Python needs to run here; nothing else of the server's environment reaches Ray.
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV",
           "LD_LIBRARY_PATH", "SSL_CERT_FILE")


class EnvoyLink:
    """Starts the envoy when it is first needed, and again whenever it has died or been given up.

    `arguments` follow the program; `env` is added to a short list of what the server has. Its log is `log`.
    Calls of several threads take turns.
    """

    def __init__(self, what: str, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self._what = what
        self._argv = [sys.executable, "-P", "-m", "gangline.engines.ray.envoy", *arguments]
        self._env = {**{name: os.environ[name] for name in _PASSED if name in os.environ}, **env}
        if search := self._env.get("PYTHONPATH"):  # it starts in another folder
            self._env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, search.split(os.pathsep)))
        self._log = log
        self._turn = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._callback: Callable[[], None] = lambda: None

    @property
    def pid(self) -> int | None:
        """Of the envoy there is now."""
        return None if self._process is None else self._process.pid

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def call(self, name: str, within_s: float, /, **args: Any) -> Any:
        """The envoy's answer.

        Raises:
            Unavailable: it did not answer in time, or died; the next call starts another.
            GanglineError: what the envoy raised.
        """
        with self._turn:
            process = self._alive()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps({"call": name, "args": args}) + "\n")
                process.stdin.flush()
            except OSError:
                self._give_up(f"ended before it was asked to {name}")
            return self._answer(name, within_s)

    def close(self) -> None:
        """Let it leave; what it asked Ray for stays."""
        with self._turn:
            self._drop(_LEAVE_WITHIN_S)

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._drop(0.0)
            self._replies = queue.SimpleQueue()
            with open(self._log, "w") as log:
                self._process = subprocess.Popen(
                    self._argv, env=self._env, cwd="/", start_new_session=True, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pipesize=_PIPE_BYTES)
            threading.Thread(target=self._listen, args=(self._process.stdout, self._replies), name="ray-envoy",
                             daemon=True).start()
            self._answer("connect", _CONNECT_WITHIN_S)
        return self._process

    def _answer(self, name: str, within_s: float) -> Any:
        try:
            reply = self._replies.get(timeout=within_s)
        except queue.Empty:
            self._give_up(f"did not {name} within {within_s:g} s")
        if reply is None:
            self._give_up(f"ended when asked to {name}")
        if "error" in reply:
            error = GanglineError.from_wire(reply["error"])
            error.message = f"{self._what}: {error.message}"
            raise error
        return reply["ok"]

    def _give_up(self, why: str) -> NoReturn:
        self._drop(0.0)
        with contextlib.suppress(OSError):
            why += ": " + " ".join(self._log.read_text(errors="replace").split())[-_WORDS:]
        raise Unavailable(f"{self._what}: its envoy {why}")

    def _drop(self, patience_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):  # what it did not read is lost with it
            process.stdin.close()  # type: ignore[union-attr]
        deadline_s = time.monotonic() + patience_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline_s - time.monotonic()))
        process.kill()
        process.wait()

    def _listen(self, output: IO[str], replies: queue.SimpleQueue[Reply | None]) -> None:
        with output:
            for line in output:
                reply: Reply = json.loads(line)
                if "event" in reply:
                    self._callback()
                else:
                    replies.put(reply)
        replies.put(None)
