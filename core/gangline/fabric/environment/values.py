"""The environment of a node as values: every line with its reason, and what a user's own lines undo."""

from __future__ import annotations

from typing import Literal

from gangline.fabric.finding import Finding
from gangline.model.base import Wire


class Gang(Wire):
    """What the environment depends on besides the host. `user` is what the user (or the image) has set.

    `node` is unique in the gang. `nccl` is the version the ranks load, None when it is not known.
    """

    node: str = ""
    nodes: int = 2
    nccl: tuple[int, ...] | None = None
    user: dict[str, str] = {}
    log_dir: str | None = None


class Line(Wire):
    """One variable: `must` is needed, `tune` is the provider's advice. `by` says whose value it is."""

    name: str
    value: str
    level: Literal["must", "tune"]
    why: str
    source: str = ""
    by: Literal["detected", "profile", "user", "image"] = "profile"


class Override(Wire):
    """A user's (or the image's) own value in place of ours. `undoes` says that rdma is no longer assured."""

    name: str
    value: str
    ours: str | None = None
    by: Literal["user", "image"] = "user"
    undoes: bool = False
    text: str


class Advice(Wire):
    """What may be set in some cases, and is not set here."""

    name: str
    value: str
    when: str
    why: str


class Environment(Wire):
    """What a node's ranks get. `assured` is False when something undoes what rdma promises."""

    profile: str
    lines: tuple[Line, ...] = ()
    overrides: tuple[Override, ...] = ()
    advice: tuple[Advice, ...] = ()
    left: dict[str, str] = {}  # variables that are not to be set, and why
    findings: tuple[Finding, ...] = ()

    @property
    def assured(self) -> bool:
        return not any(override.undoes for override in self.overrides)

    def variables(self) -> dict[str, str]:
        """Names and values as a process gets them."""
        return {line.name: line.value for line in self.lines}
