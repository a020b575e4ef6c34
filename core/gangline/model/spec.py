"""`GangSpec`: what a user asks for, one schema for YAML, JSON, decorators and operators.

The schema is whole from the first release. A field that this release cannot honour is refused by
`refuse_unsupported`, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gangline.model.base import Wire, canonical_json, sha256_of
from gangline.model.errors import Rejected
from gangline.model.gpu import CPU, GpuAsk, parse_gpu
from gangline.model.units import parse_duration_s

MAX_ARGS_BYTES = 256_000
MAX_RESULT_BYTES = 1 << 20
MAX_WORD_BYTES = 128_000  # Linux takes no longer argument or variable (MAX_ARG_STRLEN is 131,072)
MAX_WORDS_BYTES = 256_000
MOST_NODES = 1_000_000
MOST_PRIORITY = 1_000_000
PRIORITIES = {"low": -100, "normal": 0, "high": 100}

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Seconds = Annotated[float, BeforeValidator(parse_duration_s)]


def check_name(value: str) -> str:
    """A name that is safe in paths, labels and host names; ValueError otherwise."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a name; use 1 to 63 letters, digits, '.', '_' or '-', "
                         "beginning and ending with a letter or digit")
    return value


Name = Annotated[str, BeforeValidator(check_name)]


class OnOrphan(StrEnum):
    """What happens when nobody has watched a gang for `orphan_after`."""

    KEEP = "keep"
    CANCEL = "cancel"
    CHECKPOINT_AND_CANCEL = "checkpoint_and_cancel"


class Retries(Wire):
    """How many new attempts each cause is worth; -1 (written "unlimited") has no bound."""

    user: int = 0
    hardware: int = 3
    lost: int = 3
    preempted: int = -1

    @field_validator("*", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        if value == "unlimited":
            return -1
        if isinstance(value, bool) or not isinstance(value, int) or value < -1:
            raise ValueError('expected a number of retries of 0 or more, or "unlimited"')
        return value


class Placement(Wire):
    """Where a gang may run. Empty means anywhere that fits."""

    zone: str | None = None
    pool: str | None = None
    within: Literal["leaf", "spine", "fabric"] | None = None
    exclude: tuple[str, ...] = ()


class VolumeMount(Wire):
    """A volume as a gang sees it. `from` seeds a gang whose slot has committed nothing yet."""

    volume: Name
    from_: str | None = Field(default=None, alias="from")

    @field_validator("from_")
    @classmethod
    def _reference(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\w.-]+@[\w.-]+", value):
            raise ValueError(f"{value!r} is not a version; write volume@12 or volume@name")
        return value


class Role(Wire):
    """One kind of member of a gang. Ranks run through the roles in the order they are written."""

    size: int = Field(ge=1, le=MOST_NODES)
    gpu: tuple[str, ...] = (CPU,)
    ranks_per_node: int | None = Field(default=None, ge=1, le=1024)
    command: tuple[str, ...] | None = None
    function: str | None = None
    args: dict[str, Any] = {}
    env: dict[str, str] = {}

    @field_validator("gpu", mode="before")
    @classmethod
    def _gpu(cls, value: object) -> object:
        return _gpu_list(value)

    def asks(self) -> tuple[GpuAsk, ...]:
        """The ranked alternatives for each of this role's nodes."""
        return tuple(parse_gpu(text) for text in self.gpu)

    def ranks_on(self, ask: GpuAsk) -> int:
        """User processes on one node when it was given `ask`."""
        return self.ranks_per_node or (1 if ask.type == CPU else ask.count)


class GangSpec(Wire):
    """A gang: `size` nodes that start together or not at all."""

    name: Name
    size: int | str = 1
    gpu: tuple[str, ...] = (CPU,)
    ranks_per_node: int | None = Field(default=None, ge=1, le=1024)
    rdma: bool = False
    command: tuple[str, ...] | None = None
    function: str | None = None
    args: dict[str, Any] = {}
    workdir: str | None = None
    image: str | None = None
    interpreter: str | None = None
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    volumes: dict[str, VolumeMount] = {}
    buckets: dict[str, str] = {}
    timeout: Seconds | None = None
    grace: Seconds = 60.0
    retries: Retries = Retries()
    priority: int = Field(default=0, ge=-MOST_PRIORITY, le=MOST_PRIORITY)
    tenant: Name = "default"
    labels: dict[str, str] = {}
    placement: Placement = Placement()
    domain_size: int | None = Field(default=None, ge=1, le=MOST_NODES)
    roles: dict[Name, Role] = {}
    orphan_after: Seconds = 1800.0
    on_orphan: OnOrphan | None = None

    @field_validator("gpu", mode="before")
    @classmethod
    def _gpu(cls, value: object) -> object:
        return _gpu_list(value)

    @field_validator("size", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        if isinstance(value, str) and re.fullmatch(r"\d+", value):
            value = int(value)
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+)\.\.(\d+)", value)
            if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MOST_NODES:
                raise ValueError(f'{value!r} is not a size; write a number of nodes such as 4, '
                                 'or a range such as "2..4"')
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError('expected a number of nodes such as 4')
        if value < 1:
            raise ValueError(f"a gang has at least 1 node, not {value}")
        if value > MOST_NODES:
            raise ValueError(f"a gang has at most {MOST_NODES:,} nodes, not {value}")
        return value

    @field_validator("priority", mode="before")
    @classmethod
    def _priority(cls, value: object) -> object:
        if isinstance(value, str):
            if value not in PRIORITIES:
                raise ValueError(f"{value!r} is not a priority; write low, normal, high or a number")
            return PRIORITIES[value]
        return value

    @field_validator("function")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        if value is not None and not _FUNCTION.fullmatch(value):
            raise ValueError(f"{value!r} is not a function; write package.module:function")
        return value

    @field_validator("command", mode="before")
    @classmethod
    def _command(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError("expected a list of words such as [python, -m, train], not one string")
        return value

    @field_validator("volumes", mode="before")
    @classmethod
    def _volumes(cls, value: object) -> object:
        if isinstance(value, dict):
            return {path: {"volume": v} if isinstance(v, str) else v for path, v in value.items()}
        return value

    @field_validator("volumes")
    @classmethod
    def _mounts(cls, value: dict[str, VolumeMount]) -> dict[str, VolumeMount]:
        for path in value:
            if not re.fullmatch(r"(/[\w.-]+)+", path) or ".." in path.split("/"):
                raise ValueError(f"{path!r} is not an absolute path such as /ckpt")
        return value

    @field_validator("args")
    @classmethod
    def _args(cls, value: dict[str, Any]) -> dict[str, Any]:
        return check_args(value)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.roles:
            top = [f for f in ("size", "gpu", "ranks_per_node", "command", "function", "args")
                   if f in self.model_fields_set]
            if top:
                raise ValueError(f"{top[0]} belongs inside each role when roles are given")
        if self.domain_size is not None and (self.roles or self.most != self.nodes or self.nodes % self.domain_size):
            raise ValueError(f"domain_size {self.domain_size} must divide the size of a gang of one fixed size")
        for label, part in self.parts():
            if (part.command is None) == (part.function is None):
                raise ValueError(f"{label}give a command or a function (one of the two)")
            if part.command is not None and not part.command:
                raise ValueError(f"{label}the command is empty")
            check_words(f"{label}command", part.command or ())
            check_words(f"{label}env", [f"{name}={text}" for name, text in {**self.env, **part.env}.items()])
            if part.args and part.function is None:
                raise ValueError(f"{label}args go with a function; put a command's into the command")
        return self

    def parts(self) -> tuple[tuple[str, Role], ...]:
        """Every role with the label for its errors; a gang without roles has one, named ""."""
        if self.roles:
            return tuple((f"roles.{name}: ", role) for name, role in self.roles.items())
        return (("", self._only_role()),)

    def role_items(self) -> tuple[tuple[str, Role], ...]:
        """(name, role) in rank order; a gang without roles has one role named ""."""
        return tuple(self.roles.items()) if self.roles else (("", self._only_role()),)

    def _only_role(self) -> Role:
        return Role.model_construct(
            size=self._least, gpu=self.gpu, ranks_per_node=self.ranks_per_node, command=self.command,
            function=self.function, args=self.args, env={})

    @property
    def nodes(self) -> int:
        """How many nodes the gang needs to start."""
        return sum(role.size for role in self.roles.values()) if self.roles else self._least

    @property
    def _least(self) -> int:
        return self.size if isinstance(self.size, int) else int(self.size.split("..")[0])

    @property
    def most(self) -> int:
        """How many nodes it may have: more than `nodes` only for an elastic gang."""
        return int(self.size.split("..")[1]) if isinstance(self.size, str) else self.nodes

    def digest(self, snapshot: str | None) -> str:
        """Identity of the work: this spec and the code snapshot it runs.

        Labels describe and do not change it; the order of roles does, because ranks follow it.
        """
        spec = self.wire()
        spec.pop("labels", None)
        return sha256_of({"spec": spec, "roles": list(self.roles), "snapshot": snapshot})

    def refuse_unsupported(self) -> None:
        """Raise `Rejected` for a field whose effect this release does not have yet."""
        reasons: tuple[tuple[bool, str, str], ...] = (
            (self.image is not None, "image", "images need the kubernetes engine, not available yet"),
            (bool(self.secrets), "secrets", "secrets are not available yet; pass env without secrets"),
            (bool(self.buckets), "buckets", "buckets are not available yet; read them from user code"),
        )
        for wrong, field, message in reasons:
            if wrong:
                raise Rejected(message, field=field)


def check_args(value: dict[str, Any]) -> dict[str, Any]:
    """`value` if it is plain JSON of at most 256 kB; ValueError names the key that is not."""
    for key, item in value.items():
        try:
            canonical_json(item)
        except (TypeError, ValueError) as exc:
            raise ValueError(f"argument {key!r} is not JSON: {exc}; pass plain values, "
                             "larger things through a volume") from None
    size = len(canonical_json(value).encode())
    if size > MAX_ARGS_BYTES:
        raise ValueError(f"arguments are {size} bytes of JSON, over the limit of {MAX_ARGS_BYTES}; "
                         "pass larger things through a volume")
    return value


def check_words(what: str, words: Iterable[str]) -> None:
    """ValueError unless a process can be started with these words: plain text, not too long."""
    sizes = []
    for word in words:
        try:
            sizes.append(len(word.encode()))
        except UnicodeEncodeError:
            raise ValueError(f"{what}: {word[:40]!r} is not valid text (a lone surrogate)") from None
        if "\0" in word:
            raise ValueError(f"{what}: {word[:40]!r} holds a NUL, which no argument or variable can")
    if sizes and (max(sizes) > MAX_WORD_BYTES or sum(sizes) > MAX_WORDS_BYTES):
        raise ValueError(f"{what}: {sum(sizes)} bytes are too many (at most {MAX_WORD_BYTES} a word, "
                         f"{MAX_WORDS_BYTES} in all); put larger things into a file of the workdir or a volume")


def _gpu_list(value: object) -> object:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError("expected TYPE:COUNT such as H100:8, a list of them, or cpu")
    return tuple(str(parse_gpu(text)) for text in texts)
