"""What every reader gives: places of nodes, and what was odd about the source."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.model.errors import Rejected
from gangline.model.spec import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something odd that did not stop the reading: where it is and what was made of it."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node hangs. `path` is its switches from the widest to the leaf, empty when not told.

    `grouped` says that the path comes from block sizes alone, so that a switch path is better. `gpu`
    is what the node offers, such as "H100:8" or "cpu"; None when the source does not say.
    """

    node: str
    path: tuple[str, ...] = ()
    domain: str | None = None
    zone: str | None = None
    gpu: str | None = None
    grouped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Every node of a source once, in the source's order."""

    format: str
    places: tuple[Place, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file being read, as its errors name it."""

    name: str

    def at(self, line: int) -> str:
        """The line's name; line 0 stands for the whole file."""
        return f"{self.name} line {line}" if line else self.name

    def refuse(self, text: str, *, line: int = 0, fix: str | None = None) -> Rejected:
        """The error to raise for what cannot be read."""
        return Rejected(text, field=self.at(line), fix=fix)

    def found(self, line: int, text: str) -> Finding:
        return Finding(where=self.at(line), text=text)

    def node_name(self, name: str, line: int) -> str:
        """The name, if a fleet file can hold it."""
        try:
            return check_name(name)
        except ValueError as exc:
            raise self.refuse(f"node {exc}", line=line, fix="correct the node's name") from None
