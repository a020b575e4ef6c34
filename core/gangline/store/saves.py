"""Verbs on saves: versions that ranks are writing."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from gangline.model.errors import NotFound
from gangline.store.schema import save_ranks, saves
from gangline.store.scope import Scope, columns
from gangline.store.values import Save, SavedRank


class Saves:
    """A save is open until every rank has reported, whole until its version is published."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def next_id(self) -> int:
        return self._scope.next("save")

    def get(self, save: int) -> Save:
        """The save; NotFound when there is none of that number."""
        row = self._scope.row(select(saves).where(saves.c.id == save))
        if row is None:
            raise NotFound(f"there is no save {save}")
        return Save(**row._mapping)

    def in_directory(self, volume: str, directory: str) -> Save | None:
        row = self._scope.row(select(saves).where(saves.c.volume == volume, saves.c.directory == directory))
        return None if row is None else Save(**row._mapping)

    def unfinished(self, gang: str, attempt: int) -> tuple[Save, ...]:
        """Saves of an attempt that are open or whole."""
        return self._some(saves.c.gang == gang, saves.c.attempt == attempt,
                          saves.c.state.in_(("open", "whole")))

    def whole(self) -> tuple[Save, ...]:
        """Saves of any gang that only their publication is missing to."""
        return self._some(saves.c.state == "whole")

    def add(self, save: Save) -> None:
        self._scope.run(insert(saves).values(**columns(save)))

    def ranks(self, save: int) -> tuple[SavedRank, ...]:
        query = select(save_ranks).where(save_ranks.c.save == save).order_by(save_ranks.c.rank)
        return tuple(SavedRank(**row._mapping) for row in self._scope.rows(query))

    def record(self, rank: SavedRank) -> None:
        self._scope.run(insert(save_ranks).values(**columns(rank)))

    def complete(self, save: Save, manifest: str) -> None:
        """Every rank has reported; what will be published is fixed."""
        self._set(save, state="whole", manifest=manifest)

    def publish(self, save: Save, version: int) -> None:
        self._set(save, state="published", version=version, error=None)

    def trouble(self, save: Save, error: str) -> None:
        """Publication failed for now; it stays owed."""
        self._set(save, error=error)

    def fail(self, save: Save, error: str) -> None:
        """It will never be published."""
        self._set(save, state="failed", error=error)

    def _some(self, *where: ColumnElement[bool]) -> tuple[Save, ...]:
        return tuple(Save(**row._mapping)
                     for row in self._scope.rows(select(saves).where(*where).order_by(saves.c.id)))

    def _set(self, save: Save, **values: Any) -> None:
        self._scope.run(update(saves).where(saves.c.id == save.id).values(**values))
        self._scope.wake(gang=save.gang)
