"""What the cluster says: its nodes, jobs, switches and settings."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from gangline.engines.slurm import table
from gangline.engines.slurm.programs import Programs
from gangline.engines.slurm.table import JobRow, NodeRow
from gangline.fabric.topology import Place, read_topology
from gangline.model.errors import Rejected, Unavailable

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_MOST_NAMES = 500  # put into one argument; more are had by asking for all of ours
_SWITCH_LINE = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes|AggregatedBlock)\s*=")
_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


@dataclass(slots=True)
class Cluster:
    """One cluster, read through its programs. Everything here raises `Unavailable` when it does not answer."""

    programs: Programs
    _settings: dict[str, str] = field(init=False, default_factory=dict)
    _odd: str = field(init=False, default="")

    def nodes(self, names: Collection[str] | None = None) -> tuple[NodeRow, ...]:
        """All nodes, or those of them."""
        if names is not None and not names:
            return ()
        end = _ending()
        only = [] if names is None else [f"--nodes={','.join(sorted(names))}"]
        said = self.programs.run("sinfo", "--noheader", "--Node", "--all", f"--Format={table.node_format(end)}", *only)
        return _read(lambda: table.node_rows(said, end), "sinfo")

    def jobs(self) -> tuple[JobRow, ...]:
        """All jobs of everybody, those remembered after their end too."""
        return self._jobs()

    def own_jobs(self, names: Collection[str]) -> tuple[JobRow, ...]:
        """The jobs of our user that have one of these names."""
        own = [f"--user={os.getuid()}"]
        if len(names) <= _MOST_NAMES:
            own.append(f"--name={','.join(sorted(names))}")
        return tuple(row for row in self._jobs(*own) if row.name in names)

    def _jobs(self, *only: str) -> tuple[JobRow, ...]:
        end = _ending()
        said = self.programs.run("squeue", "--noheader", "--all", "--states=all", f"--format={table.job_format(end)}",
                                 *only)
        return _read(lambda: table.job_rows(said, end), "squeue")

    def places(self) -> dict[str, Place]:
        """Where nodes hang, as far as Slurm was told."""
        try:
            said = self.programs.run("scontrol", "show", "topology")
            lines = [line for line in said.splitlines() if _SWITCH_LINE.match(line)]
            found = read_topology("\n".join(lines), "scontrol show topology").places if lines else ()
        except Rejected as exc:  # no topology plugin, or none that is a tree
            if str(exc) != self._odd:
                _LOG.warning("switches are not known: %s", exc)
            self._odd = str(exc)
            return {}
        return {place.node: place for place in found}

    def setting(self, name: str) -> str:
        """A line of slurm.conf as the controller uses it, "" when it is not set. Asked for once."""
        if not self._settings:
            self._settings = dict(_SETTING.findall(self.programs.run("scontrol", "show", "config")))
        value = self._settings.get(name, "")
        return "" if value == "(null)" else value


def _ending() -> str:
    """The end of a field: no user of the cluster can have written it into a name before it was thought of."""
    return f"@{secrets.token_hex(8)}@"


def _read(read: Callable[[], _T], program: str) -> _T:
    try:
        return read()
    except ValueError as exc:
        raise Unavailable(f"{program} printed what cannot be read: {exc}") from None
