"""What is done to nodes: drains and reboots in our name, and power where Slurm saves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.engines.base import NodeStatus
from gangline.engines.slurm.cluster import Cluster
from gangline.engines.slurm.request import NODE_NAME, printable
from gangline.engines.slurm.states import node_status
from gangline.engines.slurm.table import NodeRow
from gangline.model.errors import NotFound, Rejected

MOST_REASON = 200
_OUT_OF_SERVICE = frozenset({"drain", "drained", "draining", "fail", "failing"})
_ASLEEP = frozenset({"power_down", "powering_down", "powered_down"})


@dataclass(slots=True)
class Upkeep:
    """Changes to nodes. `tag` begins the reason of every drain of ours."""

    cluster: Cluster
    tag: str

    def drain(self, node: str, reason: str) -> None:
        row = self._node(node)
        if not row.words & _OUT_OF_SERVICE:
            self._update(node, "DRAIN", f"{self.tag}: {printable(reason, MOST_REASON)}")

    def resume(self, node: str) -> None:
        row = self._node(node)
        if row.words & _OUT_OF_SERVICE and self._ours(row):
            # Not RESUME: that would call a node up that is down as well.
            self._update(node, "UNDRAIN")

    def reboot(self, node: str) -> None:
        row = self._node(node)
        if row.words & _OUT_OF_SERVICE and not self._ours(row):
            why = printable(row.reason, MOST_REASON)
            raise Rejected(f"others have drained {node} ({why}); a reboot would lift that", field="node",
                           fix="ask them, or reboot it by hand")
        if not self.cluster.setting("RebootProgram"):
            raise Rejected(f"this cluster cannot reboot {node}", field="node",
                           fix="set RebootProgram in slurm.conf")
        self.cluster.programs.run("scontrol", "reboot", "ASAP", "nextstate=RESUME", f"reason={self.tag}: reboot", node)

    def wake(self, nodes: Iterable[str]) -> None:
        """Powers those up that are off."""
        self._power(nodes, "POWER_UP", off=True)

    def sleep(self, nodes: Iterable[str]) -> None:
        """Powers those down that are not off, once what runs there has ended."""
        self._power(nodes, "POWER_DOWN", off=False)

    def _power(self, nodes: Iterable[str], state: str, *, off: bool) -> None:
        if not self.cluster.setting("SuspendProgram"):
            return  # Slurm switches nothing here
        names = {name for name in nodes if NODE_NAME.fullmatch(name)}
        for row in self.cluster.nodes(names):
            if bool(row.words & _ASLEEP) == off and node_status(row.words) is not NodeStatus.BOOTING:
                self._update(row.name, state)

    def _ours(self, row: NodeRow) -> bool:
        return row.reason.startswith(self.tag)

    def _node(self, name: str) -> NodeRow:
        if not NODE_NAME.fullmatch(name):
            raise NotFound(f"{name[:60]!r} is no name of a Slurm node", field="node")
        found = [row for row in self.cluster.nodes({name}) if row.name == name]
        if not found:
            raise NotFound(f"Slurm has no node {name}", field="node", fix="see sinfo -N for those it has")
        return found[0]

    def _update(self, node: str, state: str, reason: str | None = None) -> None:
        why = [] if reason is None else [f"Reason={reason}"]
        self.cluster.programs.run("scontrol", "update", f"NodeName={node}", f"State={state}", *why)
