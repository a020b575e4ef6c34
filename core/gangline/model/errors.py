"""The one error tree, by what the caller does next.

GanglineError
├── Rejected      fix the request; never retried                 (exit 2, HTTP 422)
│   └── NotFound  the thing named does not exist                 (exit 2, HTTP 404)
├── Conflict      the world moved on: observe again              (exit 2, HTTP 409)
│   └── Superseded   another owner acts for this slot now; leave quietly
├── Unavailable   nobody answers now: retry later                (exit 3, HTTP 503)
├── GangFailed    the gang itself ended without success          (exit 1)
└── Bug           a promise of ours was broken: report it        (exit 70, HTTP 500)

"It cannot be placed now" is not here: that is a reason on the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class GanglineError(Exception):
    """Something Gangline refuses or cannot do, in one line that says what, where and how to mend it."""

    kind: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, field: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.fix = fix

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        mend = f" ({self.fix})" if self.fix else ""
        return f"{where}{self.message}{mend}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.field, self.fix, self.__dict__))

    def to_wire(self) -> dict[str, Any]:
        """The JSON body of an error reply; `from_wire` is its inverse."""
        return {"kind": self.kind, "message": self.message, "field": self.field, "fix": self.fix}

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> GanglineError:
        """The error a server named, as the class a caller can catch; unknown kinds become `Bug`."""
        cls = _BY_KIND.get(str(body.get("kind")), Bug)
        return cls(str(body.get("message", "")), field=body.get("field"), fix=body.get("fix"))


class Rejected(GanglineError):
    """The request is wrong; repeating it unchanged will fail again."""

    kind, http_status, exit_code = "rejected", 422, 2


class NotFound(Rejected):
    """The gang, node, volume or version named does not exist."""

    kind, http_status = "not_found", 404


class Conflict(GanglineError):
    """The world is not as the request supposed; observe again before deciding."""

    kind, http_status, exit_code = "conflict", 409, 2


class Superseded(Conflict):
    """Another owner holds this slot now; the old one must stop watching and act no more."""

    kind = "superseded"


class Unavailable(GanglineError):
    """No server answers, or it cannot serve now; the same request may succeed later."""

    kind, http_status, exit_code = "unavailable", 503, 3


class GangFailed(GanglineError):
    """The gang reached a final state other than succeeded; `view` is its last view as plain JSON."""

    kind, http_status, exit_code = "gang_failed", 409, 1

    def __init__(self, message: str, *, field: str | None = None, fix: str | None = None,
                 view: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, field=field, fix=fix)
        self.view = dict(view or {})


class Bug(GanglineError):
    """An invariant of Gangline's own was broken."""

    kind = "bug"


def _rebuild(cls: type[GanglineError], message: str, field: str | None, fix: str | None,
             state: dict[str, Any]) -> GanglineError:
    error = cls(message, field=field, fix=fix)
    error.__dict__.update(state)
    return error


_BY_KIND: dict[str, type[GanglineError]] = {
    cls.kind: cls for cls in (Rejected, NotFound, Conflict, Superseded, Unavailable, GangFailed, Bug)
}

__all__ = ["Bug", "Conflict", "GangFailed", "GanglineError", "NotFound", "Rejected", "Superseded",
           "Unavailable"]
