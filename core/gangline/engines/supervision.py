"""How a job's supervisors are started, the same on every engine: one program, its arguments, no secret in them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from gangline.engines.base import Job
from gangline.model.fleet import Pool

TOKEN_ENV = "GANGLINE_NODE_TOKEN"  # noqa: S105 - the name of a variable, which `gangline.node` looks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """What the supervisors of one server have in common: the address at which nodes reach it."""

    server_url: str

    def argv(self, pool: Pool, job: Job, *, token_file: str | None = None) -> list[str]:
        """The program and its arguments, but for `--node NAME` (and `--address`, where the engine knows a better
        one than the node finds for itself), which differ from node to node.

        The token is found in the variable `TOKEN_ENV`, or in `token_file` on the node.
        """
        argv = [pool.python or sys.executable, "-P", "-m", "gangline.node", "--server", self.server_url,
                "--job", job.name, "--gang", job.gang, "--attempt", str(job.attempt)]
        if pool.node_home is not None:
            argv += ["--home", pool.node_home]
        if token_file is not None:
            argv += ["--token-file", token_file]
        return argv
