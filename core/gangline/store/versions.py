"""Verbs on volumes, their published versions and the names that point at them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, update

from gangline.model.errors import NotFound
from gangline.model.states import GangState
from gangline.model.volume import PointerView, VersionView
from gangline.store.schema import gangs, pointers, versions, volumes
from gangline.store.scope import Scope, key

_SAVED = (select(versions.c.gang, versions.c.attempt, func.max(versions.c.created_ms).label("at_ms"))
          .where(versions.c.gang.in_(key("gangs", many=True))).group_by(versions.c.gang, versions.c.attempt))


class Versions:
    """What is published. A row here is what makes a directory a version."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def volumes(self) -> tuple[str, ...]:
        return tuple(row.name for row in self._scope.rows(select(volumes.c.name).order_by(volumes.c.name)))

    def ensure_volume(self, name: str, now_ms: int) -> None:
        if self._scope.row(select(volumes.c.name).where(volumes.c.name == name)) is None:
            self._scope.run(insert(volumes), name=name, created_ms=now_ms)

    def check_volume(self, name: str) -> None:
        """NotFound when no gang has ever mounted a volume of that name."""
        if self._scope.row(select(volumes.c.name).where(volumes.c.name == name)) is None:
            raise NotFound(f"there is no volume {name}", fix="gangline volume list shows them")

    def of(self, volume: str) -> tuple[VersionView, ...]:
        """Newest first."""
        return self._some(versions.c.volume == volume)

    def by(self, gang: str) -> tuple[VersionView, ...]:
        """Versions one gang published, newest first."""
        return self._some(versions.c.gang == gang)

    def find(self, volume: str, version: int) -> VersionView | None:
        found = self._some(versions.c.volume == volume, versions.c.version == version)
        return found[0] if found else None

    def get(self, volume: str, version: int) -> VersionView:
        """The version; NotFound when it was never published."""
        found = self.find(volume, version)
        if found is None:
            raise NotFound(f"there is no version {volume}@{version}",
                           fix=f"gangline volume show {volume} lists them")
        return found

    def lineage(self, slot: str, volume: str) -> tuple[VersionView, ...]:
        """Versions that gangs of a slot published since the slot's last success, newest first."""
        done = select(func.coalesce(func.max(gangs.c.seq), 0)).where(
            gangs.c.slot == slot, gangs.c.state == GangState.SUCCEEDED).scalar_subquery()
        since = select(gangs.c.id).where(gangs.c.slot == slot, gangs.c.seq > done)
        return self._some(versions.c.slot == slot, versions.c.volume == volume, versions.c.gang.in_(since))

    def kept_until_ms(self) -> dict[tuple[str, int], int]:
        """When each attempt published last, by gang and attempt number."""
        query = (select(versions.c.gang, versions.c.attempt, func.max(versions.c.created_ms).label("at_ms"))
                 .where(versions.c.gang.is_not(None)).group_by(versions.c.gang, versions.c.attempt))
        return {(row.gang, row.attempt): int(row.at_ms) for row in self._scope.rows(query)}

    def saved_ms(self, gangs: Collection[str]) -> dict[tuple[str, int], int]:
        """When each attempt of these gangs published last, by gang and attempt number."""
        return {(row.gang, row.attempt): int(row.at_ms) for row in self._scope.each(_SAVED, "gangs", gangs)}

    def newest_by(self, slot: str, volume: str) -> int | None:
        """The number a slot published last in a volume."""
        found = self._scope.scalar(select(func.max(versions.c.version)).where(
            versions.c.slot == slot, versions.c.volume == volume))
        return None if found is None else int(found)

    def next_number(self, volume: str) -> int:
        return int(self._scope.scalar(select(func.coalesce(func.max(versions.c.version), 0)).where(
            versions.c.volume == volume))) + 1

    def add(self, version: VersionView) -> None:
        self._scope.run(insert(versions), **dict(version))

    def damage(self, volume: str, version: int, text: str) -> None:
        """It must not be used, and why."""
        self._scope.run(update(versions).where(
            versions.c.volume == volume, versions.c.version == version).values(damaged=text))

    def names(self, volume: str) -> tuple[PointerView, ...]:
        query = select(pointers).where(pointers.c.volume == volume).order_by(pointers.c.name)
        return tuple(PointerView(**row._mapping) for row in self._scope.rows(query))

    def pointer(self, volume: str, name: str) -> PointerView | None:
        return next((p for p in self.names(volume) if p.name == name), None)

    def point(self, pointer: PointerView) -> None:
        """Makes a name point at a version; its revision says whether it is new."""
        values: dict[str, Any] = dict(pointer)
        if pointer.revision == 1:
            self._scope.run(insert(pointers).values(**values))
        else:
            self._scope.run(update(pointers).where(
                pointers.c.volume == pointer.volume, pointers.c.name == pointer.name).values(**values))

    def _some(self, *where: ColumnElement[bool]) -> tuple[VersionView, ...]:
        query = select(versions).where(*where).order_by(versions.c.version.desc())
        return tuple(VersionView(**row._mapping) for row in self._scope.rows(query))
