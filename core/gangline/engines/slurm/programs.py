"""Slurm's command line programs: found where the pool says, time-boxed, in an environment of our choosing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangline.model.engine import Slurm
from gangline.model.errors import Rejected, Unavailable

WITHIN_S = 45.0  # Slurm's own tries to reach its controller end before that by default (MessageTimeout 10 s)

# The rest stays here: SLURM_JWT makes every call another user's, SBATCH_* and SQUEUE_* change what is asked.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH",
         "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "SLURM_CONF")

# What the controller says when asking again later is right; other refusals are for good.
_FOR_NOW = re.compile(
    r"contact slurm controller|timed out|connection (refused|failure|reset|timed)|communication|zero bytes|"
    r"temporarily|try again|standby|unexpected message|send/recv|controller not responding|"
    r"too many|queue is full|job limit|configuration source|database|munge|authentication", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one cluster."""

    settings: Slurm
    within_s: float = WITHIN_S

    def run(self, program: str, *args: str, extra: Mapping[str, str] | None = None) -> str:
        """What the program prints. `extra` is added to its environment.

        Raises:
            Unavailable: it is not there, did not end in time, or says that the cluster cannot answer now.
            Rejected: it says that the cluster will not do that.
        """
        path = program if self.settings.bin is None else f"{self.settings.bin}/{program}"
        try:
            done = subprocess.run([path, *args], stdin=subprocess.DEVNULL, capture_output=True, cwd="/",
                                  env={**self.environment(), **(extra or {})}, timeout=self.within_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{program} did not answer within {self.within_s:g} s",
                              fix="see whether slurmctld runs: scontrol ping") from None
        except OSError as exc:
            raise Unavailable(f"{path} cannot be run: {exc.strerror}",
                              fix="install Slurm's client programs, or set `bin` of the pool") from None
        if done.returncode != 0:
            raise _failed(program, done.stderr.decode(errors="replace") or done.stdout.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def environment(self) -> dict[str, str]:
        """What programs, and through sbatch jobs, have of ours."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        if "PYTHONPATH" in kept:  # what is relative here is nothing there
            kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
        return {**kept, "SLURM_CONF": self.settings.conf} if self.settings.conf is not None else kept


def handed_on(environment: Sequence[str]) -> list[str]:
    """The variables of them that jobs get: a node reads its own slurm.conf."""
    return sorted(name for name in environment if name != "SLURM_CONF")


def _failed(program: str, said: str) -> Rejected | Unavailable:
    words = " ".join(re.sub(rf"(?m)^{program}: (error: )?", "", said).split())[:500]
    if _FOR_NOW.search(words) or not words:
        return Unavailable(f"{program}: {words or 'failed and says nothing'}")
    return Rejected(f"{program}: {words}", fix="change the gang, or the `slurm` settings of its pool")
