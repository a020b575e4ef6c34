"""What is said about a host or a gang: how bad it is, where it is, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from gangline.model.base import Wire


class Level(StrEnum):
    """How much a finding weighs, the heaviest first."""

    FAIL = "fail"  # RDMA will not work, or not safely
    DEGRADED = "degraded"  # it works, with less than this kind of machine has
    UNKNOWN = "unknown"  # it could not be seen, so it does not count as healthy
    WARN = "warn"  # worth a look, nothing is lost now
    NOTE = "note"  # said so that nobody wonders


class Verdict(StrEnum):
    """A host in one word."""

    READY = "ready"
    UNKNOWN = "unknown"
    DEGRADED = "degraded"
    UNUSABLE = "unusable"


class Finding(Wire):
    """One thing that was found. `code` is stable and explained in docs/rdma.md; `where` is a device or a file."""

    code: str
    level: Level
    where: str = ""
    text: str
    fix: str = ""


def finding(code: str, level: Level, where: str, text: str, fix: str = "") -> Finding:
    """A `Finding`, short to write."""
    return Finding(code=code, level=level, where=where, text=text, fix=fix)


_VERDICTS = {Level.FAIL: Verdict.UNUSABLE, Level.DEGRADED: Verdict.DEGRADED, Level.UNKNOWN: Verdict.UNKNOWN}


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The heaviest finding decides; warnings and notes leave a host ready."""
    levels = {finding.level for finding in findings}
    return next((verdict for level, verdict in _VERDICTS.items() if level in levels), Verdict.READY)


def by_weight(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The heaviest first; of one weight in the order they were found."""
    order = list(Level)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))
