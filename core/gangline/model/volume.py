"""Versions of a volume: their files, their manifest, their record."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field, field_validator

from gangline.model.base import Wire, canonical_json


class FileEntry(Wire):
    """One file of a version: path relative to the version's directory, size and SHA-256."""

    path: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @field_validator("path")
    @classmethod
    def _relative(cls, value: str) -> str:
        pure = PurePosixPath(value)
        if not value or pure.is_absolute() or ".." in pure.parts or str(pure) != value or "\0" in value:
            raise ValueError(f"{value!r} is not a plain relative path")
        return value


class Manifest(Wire):
    """What a version is, written once beside its files; its hash is what the store publishes."""

    schema_version: Literal[1] = 1
    volume: str
    directory: str
    parent: int | None = None
    format: str
    step: int | None = None
    metrics: dict[str, float] = {}
    files: tuple[FileEntry, ...]
    world_size: int
    gang: str
    attempt: int
    slot: str
    digest: str  # of the spec and code that wrote it
    created_ms: int
    extra: dict[str, Any] = {}  # torch version, mesh, data position, what the writer wants kept

    @property
    def total_bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    def text(self) -> str:
        """The canonical JSON whose SHA-256 is the manifest's identity."""
        return canonical_json(self.full()) + "\n"


class VersionView(Wire):
    """A published version as the store records it."""

    volume: str
    version: int
    directory: str
    manifest_sha256: str
    bytes: int
    files: int
    parent: int | None = None
    step: int | None = None
    metrics: dict[str, float] = {}
    gang: str | None = None
    attempt: int | None = None
    slot: str | None = None
    format: str = ""
    damaged: str | None = None  # why it must not be used
    created_ms: int = 0


class PointerView(Wire):
    """A name that points at a version; `revision` is what a compare-and-swap must quote."""

    volume: str
    name: str
    version: int
    revision: int
    changed_ms: int = 0


class VolumeView(Wire):
    """A volume, its versions newest first, and its names."""

    volume: str
    root: str
    versions: tuple[VersionView, ...] = ()
    names: tuple[PointerView, ...] = ()
