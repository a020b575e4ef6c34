"""`GangOperator`: run a task on many nodes at once, deferred while it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from airflow_gangline.links import LINK_KEY, GangLink, link_to

if TYPE_CHECKING:
    from queue import SimpleQueue

    from airflow_gangline.hooks import Endpoint
    from gangline.client import Client
    from gangline.model.gang import Ensured, GangView

GANG_KEY = "gang"
_KILLED = object()
_FAIL = "__fail__"  # Airflow's name for "resume this task only to fail it"
_DEFERRABLE_VARIABLE = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"
_TIMED_OUT = "Trigger timeout"
_SPEC_FIELDS = (
    "name", "size", "gpu", "ranks_per_node", "rdma", "workdir", "image", "interpreter", "env", "secrets",
    "volumes", "buckets", "timeout", "grace", "priority", "tenant", "labels", "placement", "domain_size",
    "roles", "orphan_after", "on_orphan",
)


class GangOperator(BaseOperator):
    """Submits a gang, waits for it and returns {gang, state, result, versions, cost}.

    Say what to run in one of four ways: `function` (a `@gangline.clustered` function or text
    "package.module:function") with `args`; `command` (a list of words); `roles`; or a whole `spec` (a
    dict, or the path of a YAML file, relative to the DAG file). The other arguments are the fields of
    a gang's spec and override it; `gang_retries` is the spec's `retries`, because `retries` is Airflow's.

    Each try of the task acts for the same slot: a retry takes over a gang that still runs, a clear
    cancels it and starts anew. Every asset in `outlets` gets the newest version the gang committed.
    """

    template_fields: Sequence[str] = (
        "spec", "name", "command", "args", "env", "size", "gpu", "volumes", "labels", "tenant",
        "gangline_conn_id")
    template_fields_renderers = {"spec": "json", "args": "json", "env": "json", "volumes": "json"}
    operator_extra_links = (GangLink(),)
    ui_color = "#e5edf7"

    _news: SimpleQueue[Any] | None = None

    def __init__(  # noqa: PLR0913  Airflow checks the arguments of mapped tasks against this signature
        self, *, spec: Mapping[str, Any] | str | None = None, function: Any = None,
        command: Sequence[str] | None = None, args: Mapping[str, Any] | None = None, name: str | None = None,
        size: int | str | None = None, gpu: str | Sequence[str] | None = None,
        ranks_per_node: int | None = None, rdma: bool | None = None, workdir: str | None = None,
        image: str | None = None, interpreter: str | None = None, env: Mapping[str, str] | None = None,
        secrets: Sequence[str] | None = None, volumes: Mapping[str, Any] | None = None,
        buckets: Mapping[str, str] | None = None, timeout: str | float | None = None,
        grace: str | float | None = None, gang_retries: Mapping[str, Any] | None = None,
        priority: str | int | None = None, tenant: str | None = None,
        labels: Mapping[str, str] | None = None, placement: Mapping[str, Any] | None = None,
        domain_size: int | None = None, roles: Mapping[str, Any] | None = None,
        orphan_after: str | float | None = None, on_orphan: str | None = None,
        gangline_conn_id: str = "gangline_default", deferrable: bool | None = None, **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        self.function = function
        self.command = command
        self.args = args
        self.name = name
        self.size = size
        self.gpu = gpu
        self.ranks_per_node = ranks_per_node
        self.rdma = rdma
        self.workdir = workdir
        self.image = image
        self.interpreter = interpreter
        self.env = env
        self.secrets = secrets
        self.volumes = volumes
        self.buckets = buckets
        self.timeout = timeout
        self.grace = grace
        self.gang_retries = gang_retries
        self.priority = priority
        self.tenant = tenant
        self.labels = labels
        self.placement = placement
        self.domain_size = domain_size
        self.roles = roles
        self.orphan_after = orphan_after
        self.on_orphan = on_orphan
        self.gangline_conn_id = gangline_conn_id
        self.deferrable = deferrable_by_default() if deferrable is None else deferrable

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit, then defer, or wait here, until the gang has ended."""
        from queue import SimpleQueue

        from airflow.sdk.exceptions import AirflowTaskTimeout

        news: SimpleQueue[Any] = SimpleQueue()
        self._news = news
        endpoint = self._endpoint()  # now: once a signal came, Airflow can no longer be asked safely
        try:
            return self._run(context, endpoint, news)
        except (AirflowTaskTimeout, KeyboardInterrupt) as exc:  # they may come at any instant
            self._cancel_slot(context["ti"], endpoint, type(exc).__name__)
            raise

    def _run(self, context: Any, endpoint: Endpoint, news: SimpleQueue[Any]) -> dict[str, Any]:
        from airflow_gangline.errors import as_airflow_errors

        with as_airflow_errors(), endpoint.connect() as client:
            ensured = self._submit(context["ti"], endpoint, client)
            self._announce(context["ti"], client, ensured)
            if ensured.state.final:
                return self._finish(context, client.observe(ensured.gang))
        if self.deferrable and news.empty():
            self._defer(endpoint, ensured.gang, ensured.token)
        return self._wait(context, endpoint, ensured, news)

    def execute_complete(self, context: Any, event: Mapping[str, Any], gang: str | None = None,
                         token: str | None = None) -> dict[str, Any]:
        """Turn the end of the gang into the task's result, its outlets' events or its failure.

        With the `gang` and `token` it deferred for, it waits again when the event is not about them.
        """
        from airflow.sdk.exceptions import AirflowFailException

        from airflow_gangline.errors import as_airflow_errors
        from airflow_gangline.follow import REFUSED, SUPERSEDED

        if gang is not None and token is not None and self._stale(event, gang, token):
            self.log.info("that was the trigger of an earlier try; waiting for gang %s", gang)
            self._defer(self._endpoint(), gang, token)
        if event["state"] == SUPERSEDED:
            raise AirflowFailException(f"another try of this task took gang {event['gang']} over; left to it")
        if event["state"] == REFUSED:
            raise AirflowFailException(f"gang {event['gang']}: {event['text']}")
        with as_airflow_errors(), self._endpoint().connect() as client:
            return self._finish(context, client.observe(event["gang"]))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Airflow's way back from deferral; a timeout comes here too, and ends the gang."""
        if next_method == _FAIL:
            self._give_up(context["ti"], str((next_kwargs or {}).get("error")))
        return super().resume_execution(next_method, next_kwargs, context)

    def on_kill(self) -> None:
        """Wake the waiting thread. Runs inside a signal handler, so it must do nothing else."""
        if self._news is not None:
            self._news.put(_KILLED)

    def _endpoint(self) -> Endpoint:
        from airflow_gangline.hooks import GanglineHook

        return GanglineHook(self.gangline_conn_id).endpoint()

    def _submit(self, ti: Any, endpoint: Endpoint, client: Client) -> Ensured:
        from airflow_gangline.submission import prepare_task
        from airflow_gangline.translate import epoch_of, slot_for
        from gangline.client.submission import submit

        prepared = prepare_task(self, slot=slot_for(endpoint.deployment, ti), epoch=epoch_of(ti),
                                home=endpoint.home)
        return submit(client, [prepared])[0]

    def _announce(self, ti: Any, client: Client, ensured: Ensured) -> None:
        how = "submitted" if ensured.created else "took over"
        self.log.info("%s gang %s (%s); see it with: gangline show %s", how, ensured.gang, ensured.state,
                      ensured.gang)
        ti.xcom_push(key=GANG_KEY, value=ensured.gang)
        ti.xcom_push(key=LINK_KEY, value=link_to(client.address.url, ensured.gang))

    def _defer(self, endpoint: Endpoint, gang: str, token: str) -> NoReturn:
        from airflow_gangline.triggers import GangTrigger

        self.defer(trigger=GangTrigger(gang, token, endpoint.conn_id), method_name="execute_complete",
                   kwargs={"gang": gang, "token": token}, timeout=self.execution_timeout)

    def _stale(self, event: Mapping[str, Any], gang: str, token: str) -> bool:
        """Whether the event is that of an earlier try's trigger.

        Airflow finds the task of an event by the trigger's id. A database that gives the id of a
        deleted trigger to the next one (SQLite does) so lets the old one speak for the new task.
        """
        from airflow_gangline.errors import as_airflow_errors
        from airflow_gangline.follow import SUPERSEDED
        from gangline.model.errors import Superseded

        if event["gang"] != gang or event["state"] != SUPERSEDED:
            return bool(event["gang"] != gang)
        with as_airflow_errors(), self._endpoint().connect() as client:
            try:
                client.watch(gang, token, 0, 0)
            except Superseded:
                return False
        return True

    def _wait(self, context: Any, endpoint: Endpoint, ensured: Ensured,
              news: SimpleQueue[Any]) -> dict[str, Any]:
        from airflow_gangline.follow import Follower

        follower = Follower(news, endpoint, ensured.gang, ensured.token, self.log.info)
        follower.start()
        try:
            outcome = news.get()
        finally:
            follower.stop()
        if outcome is _KILLED:
            self._killed(context["ti"], endpoint, ensured)
        if isinstance(outcome, Exception):
            raise outcome
        return self.execute_complete(context, outcome)

    def _killed(self, ti: Any, endpoint: Endpoint, ensured: Ensured) -> NoReturn:
        """End the task: with its gang when a person ended it, without when only its worker goes away."""
        from airflow.sdk.exceptions import AirflowException

        from airflow_gangline.translate import reason, tries_left

        state = _state_of(ti)
        if state is None or (state == "running" and tries_left(ti)):
            raise AirflowException(f"this worker is going down; gang {ensured.gang} goes on for the next try")
        with endpoint.connect() as client:
            client.cancel(ensured.gang, ensured.token, reason(f"the task is {state}"))
        raise AirflowException(f"the task was ended ({state}); gang {ensured.gang} is cancelled")

    def _give_up(self, ti: Any, error: str) -> None:
        """Cancel what nobody will wait for any more: after a timeout, or when no try is left."""
        from airflow_gangline.translate import tries_left

        if error == _TIMED_OUT or not tries_left(ti):  # else the next try takes the gang over
            self._cancel_slot(ti, self._endpoint(), error)

    def _cancel_slot(self, ti: Any, endpoint: Endpoint, why: str) -> None:
        from airflow_gangline.translate import epoch_of, reason, slot_for
        from gangline.model.errors import GanglineError

        try:
            with endpoint.connect() as client:
                cancelled = client.cancel_slot(slot_for(endpoint.deployment, ti), epoch_of(ti), reason(why))
        except GanglineError as exc:  # why the task ends must not be lost behind it
            self.log.warning("the gang could not be cancelled and ends when its claim runs out: %s", exc)
        else:
            self.log.info("%s: cancelled %s", why, ", ".join(cancelled) or "nothing, it had ended")

    def _finish(self, context: Any, view: GangView) -> dict[str, Any]:
        from airflow_gangline.errors import failure_of
        from airflow_gangline.translate import asset_extra, report, version_for
        from gangline.model.states import GangState

        if view.state is not GangState.SUCCEEDED:
            raise failure_of(view)
        for outlet in self.outlets:
            names = (str(getattr(outlet, "name", "")), str(getattr(outlet, "uri", "")))
            context["outlet_events"][outlet].extra = asset_extra(view, version_for(names, view))
        return report(view)

    def spec_overrides(self) -> dict[str, Any]:
        """The spec's fields given as arguments of this operator."""
        given = {field: getattr(self, field) for field in _SPEC_FIELDS}
        given["retries"] = self.gang_retries
        return {field: value for field, value in given.items() if value is not None}


def _state_of(ti: Any) -> str | None:
    """The state Airflow has for the task now; None when it cannot say."""
    from airflow.sdk.exceptions import AirflowRuntimeError

    index = ti.map_index if ti.map_index is not None else -1
    try:
        runs = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id],
                                  map_index=index)
    except AirflowRuntimeError:
        return None
    states = list(runs.get(ti.run_id, {}).values())
    return str(states[0]) if states and states[0] else None


def deferrable_by_default() -> bool:
    """What `[operators] default_deferrable` says where the environment sets it; True otherwise.

    The file Airflow generates sets it to false for everybody, so that there it is nobody's decision.
    """
    import os

    if _DEFERRABLE_VARIABLE not in os.environ:
        return True
    from airflow.sdk.configuration import conf

    return bool(conf.getboolean("operators", "default_deferrable"))
