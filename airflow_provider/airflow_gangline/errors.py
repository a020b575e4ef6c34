"""Gangline's errors as Airflow's: what must not be retried fails at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_gangline.translate import BY_AIRFLOW
from gangline.client.run import failed
from gangline.model.errors import GanglineError, Rejected, Superseded
from gangline.model.states import Cause

if TYPE_CHECKING:
    from gangline.model.gang import GangView


@contextlib.contextmanager
def as_airflow_errors() -> Iterator[None]:
    """Within it, a wrong request or a lost slot fails the task for good; the rest follows its retries."""
    try:
        yield
    except (Rejected, Superseded) as exc:
        raise AirflowFailException(str(exc)) from exc
    except GanglineError as exc:
        raise AirflowException(str(exc)) from exc


def failure_of(view: GangView) -> AirflowException:
    """The failure of a gang that ended without success. What a person cancelled is not tried again."""
    by_person = view.end is not None and view.end.cause is Cause.CANCELLED \
        and not (view.cancel_requested or "").startswith(BY_AIRFLOW)
    kind = AirflowFailException if by_person else AirflowException
    return kind(str(failed(view)))
