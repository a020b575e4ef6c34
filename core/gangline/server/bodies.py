"""Bodies of requests that are not nouns of their own."""

from __future__ import annotations

from pydantic import Field

from gangline.model.base import Wire
from gangline.model.gang import Submission
from gangline.model.orders import LogPiece


class EnsureBody(Wire):
    submissions: tuple[Submission, ...] = Field(min_length=1)


class WatchBody(Wire):
    token: str
    cursor: int = Field(default=0, ge=0)
    wait_s: float = Field(default=0.0, ge=0)


class CancelBody(Wire):
    token: str | None = None
    reason: str = ""


class SlotCancelBody(Wire):
    slot: str
    epoch: int = Field(ge=0)
    reason: str = ""


class DrainBody(Wire):
    owner: str = Field(min_length=1)
    reason: str = ""


class UndrainBody(Wire):
    owner: str = Field(min_length=1)


class ReloadBody(Wire):
    text: str | None = None
    dry_run: bool = False


class ScaleBody(Wire):
    nodes: int | None = Field(default=None, ge=0)
    dry_run: bool = False


class NameBody(Wire):
    version: int = Field(ge=1)
    expected_revision: int | None = Field(default=None, ge=0)


class LogsBody(Wire):
    pieces: tuple[LogPiece, ...]


class StopBody(Wire):
    force: bool = False
