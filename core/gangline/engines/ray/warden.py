"""The actor that stands on each node of a job and holds its supervisor.

Sent to Ray by value, so that Ray's own Python on the nodes needs no Gangline: this module uses the standard
library alone.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import subprocess
import threading
from typing import Any

LOG_BYTES = 64 * 1024
_RAYS_OWN = ("PYTHONBREAKPOINT", "OMP_NUM_THREADS", "SPT_NOENV")  # what Ray sets for its workers beside RAY_*


class Warden:
    """Starts the supervisor when it is created and answers for it until it is killed itself.

    `argv` is the leash's; `token` reaches the supervisor in the variable `token_name` of its environment.
    """

    def __init__(self, argv: list[str], token_name: str, token: str) -> None:
        self._ended: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._log = bytearray()
        env = {name: value for name, value in os.environ.items()
               if not name.startswith("RAY_") and name not in _RAYS_OWN}
        try:
            self._leash = subprocess.Popen(argv, env={**env, token_name: token}, cwd="/", start_new_session=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            self._log += f"cannot start {argv[0]}: {error.strerror}; name a Python with gangline as the pool's " \
                         f"`python`\n".encode()
            self._ended.set_result(127)
        else:
            threading.Thread(target=self._listen, daemon=True).start()

    async def ended(self) -> dict[str, Any]:
        """Answers when nothing of the supervisor is left: its status and its last words."""
        # Shielded: Ray cancels the calls of a caller that has died, and the next one asks again.
        code = await asyncio.shield(asyncio.wrap_future(self._ended))
        return {"code": code, "log": await self.tail()}

    async def tail(self) -> str:
        """What was said so far, the last of it."""
        return self._log.decode(errors="replace")

    async def leave(self, grace_s: float) -> None:
        """Ask the supervisor to leave; all that is left after the grace is killed."""
        if not self._ended.done():
            with contextlib.suppress(OSError):
                os.write(self._leash.stdin.fileno(), f"leave {grace_s}\n".encode())  # type: ignore[union-attr]

    def _listen(self) -> None:
        while piece := os.read(self._leash.stdout.fileno(), 65536):  # type: ignore[union-attr]
            self._log += piece
            del self._log[:-LOG_BYTES]
        self._ended.set_result(self._leash.wait())
