"""An operator's arguments as a prepared submission of the client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.client.submission import Origin, Prepared, default_name, prepare
from gangline.model.errors import Rejected

if TYPE_CHECKING:
    from airflow_gangline.operators import GangOperator


def prepare_task(operator: GangOperator, *, slot: str, epoch: int, home: str | None = None) -> Prepared:
    """What the operator asks for, checked, with the archive of its code; `Rejected` when it is wrong.

    Relative paths and modules are looked for beside the DAG file first: the folder a worker happens
    to run in means nothing.
    """
    folder = _dag_folder(operator)
    origin = Origin(slot=slot, epoch=epoch, base=folder, search=(folder,) if folder else (),
                    home=Path(home) if home else None)
    return prepare(_target(operator, folder), operator.args or {}, options=operator.spec_overrides(),
                   origin=origin)


def _target(operator: GangOperator, folder: Path | None) -> Any:
    ways = {"spec": operator.spec, "function": operator.function, "command": operator.command,
            "roles": operator.roles}
    given = [name for name, value in ways.items() if value is not None]
    if not given or (len(given) > 1 and given != ["spec", "roles"]):
        raise Rejected(f"task {operator.task_id} gives {' and '.join(given) or 'nothing'} to run",
                       fix="give one of spec, function, command or roles")
    if operator.function is not None:
        return operator.function
    named = {"name": default_name(operator.task_id)}
    if operator.command is not None:
        return {**named, "command": list(operator.command)}
    if operator.spec is None:
        return named
    return {**named, **_spec_fields(operator.spec, folder)}


def _spec_fields(spec: Mapping[str, Any] | str, folder: Path | None) -> Mapping[str, Any]:
    if isinstance(spec, Mapping):
        return spec
    path = Path(spec).expanduser()
    path = folder / path if folder is not None and not path.is_absolute() else path
    return _read_yaml(path)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        fields = yaml.safe_load(path.read_text())
    except OSError as exc:
        raise Rejected(f"cannot read {path}: {exc.strerror}", field="spec") from None
    except yaml.YAMLError as exc:
        raise Rejected(f"{path} is not YAML: {exc}", field="spec") from None
    if not isinstance(fields, Mapping):
        raise Rejected(f"{path} holds no mapping of a spec's fields", field="spec")
    return fields


def _dag_folder(operator: GangOperator) -> Path | None:
    dag = operator.get_dag()
    return Path(dag.fileloc).resolve().parent if dag is not None and dag.fileloc else None
