"""States of gangs, attempts and nodes, and the one table of legal gang transitions."""

from __future__ import annotations

from enum import StrEnum

from gangline.model.errors import Bug


class GangState(StrEnum):
    """Where a gang is. The last three are final and never change."""

    QUEUED = "queued"
    PLACED = "placed"  # leases held, nodes assembling
    STARTING = "starting"  # every node acknowledged, processes starting
    RUNNING = "running"  # user code runs on every rank
    COMMITTING = "committing"  # every rank ended well; commits and empty trees outstanding
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({GangState.SUCCEEDED, GangState.FAILED, GangState.CANCELLED})
LIVE = frozenset({GangState.PLACED, GangState.STARTING, GangState.RUNNING, GangState.COMMITTING})

_S = GangState
# `queued` follows every live state: between attempts a gang waits for its next one.
TRANSITIONS: dict[GangState, frozenset[GangState]] = {
    _S.QUEUED: frozenset({_S.PLACED, _S.FAILED, _S.CANCELLED}),
    _S.PLACED: frozenset({_S.STARTING, _S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.STARTING: frozenset({_S.RUNNING, _S.COMMITTING, _S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.COMMITTING, _S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.COMMITTING: frozenset({_S.SUCCEEDED, _S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def check_transition(old: GangState, new: GangState) -> None:
    """Raise `Bug` unless the table allows `old` to become `new`."""
    if new not in TRANSITIONS[old]:
        raise Bug(f"a gang cannot go from {old} to {new}")


class Cause(StrEnum):
    """Why an attempt ended; it decides whether and from which budget the gang is tried again."""

    SUCCESS = "success"
    USER = "user"  # user code raised or exited non-zero
    OOM = "oom"  # the kernel killed a rank for memory
    LOST = "lost"  # a rank, its supervisor or its node vanished, or was killed from outside
    HARDWARE = "hardware"
    LAUNCH = "launch"  # infrastructure: a port taken, a barrier not met; retried free
    PREEMPTED = "preempted"  # it made room for others; it waits again, holding nothing
    RESIZED = "resized"  # an elastic gang goes on with more or fewer nodes; costs no retry
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ORPHANED = "orphaned"  # nobody watched for orphan_after
    COMMIT = "commit"  # ranks ended well but a started commit never became whole


class Phase(StrEnum):
    """What a lease's seconds went into; the intervals of one lease touch and never overlap."""

    ASSEMBLING = "assembling"
    STARTING = "starting"
    RUNNING = "running"
    COMMITTING = "committing"
    DRAINING = "draining"


class NodeLifecycle(StrEnum):
    """Whether a node exists and answers; drain and health are separate fields."""

    BOOTING = "booting"
    READY = "ready"
    GONE = "gone"
