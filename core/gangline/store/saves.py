"""Verbs on saves: versions that ranks are writing."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from gangline.model.errors import NotFound
from gangline.store.schema import save_ranks, saves
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Save, SavedRank

_GET = select(saves).where(saves.c.id == key("id"))
_SET = update(saves).where(saves.c.id == key("id"))
_UNFINISHED = select(saves).where(
    saves.c.gang == key("gang"), saves.c.attempt == key("attempt"),
    saves.c.state.in_(("open", "whole"))).order_by(saves.c.id)
_WHOLE = select(saves).where(saves.c.state == "whole").order_by(saves.c.id)


class Saves:
    """A save is open until every rank has reported, whole until its version is published."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def next_id(self) -> int:
        return self._scope.next("save")

    def get(self, save: int) -> Save:
        """The save; NotFound when there is none of that number."""
        row = self._scope.row(_GET, key_id=save)
        if row is None:
            raise NotFound(f"there is no save {save}")
        return Save(**row._mapping)

    def in_directory(self, volume: str, directory: str) -> Save | None:
        row = self._scope.row(select(saves).where(saves.c.volume == volume, saves.c.directory == directory))
        return None if row is None else Save(**row._mapping)

    def unfinished(self, gang: str, attempt: int) -> tuple[Save, ...]:
        """Saves of an attempt that are open or whole."""
        rows = self._scope.rows(_UNFINISHED, key_gang=gang, key_attempt=attempt)
        return tuple(Save(**row._mapping) for row in rows)

    def whole(self) -> tuple[Save, ...]:
        """Saves of any gang that only their publication is missing to."""
        return tuple(Save(**row._mapping) for row in self._scope.rows(_WHOLE))

    def add(self, save: Save) -> None:
        self._scope.run(insert(saves), **columns(save))

    def ranks(self, save: int) -> tuple[SavedRank, ...]:
        query = select(save_ranks).where(save_ranks.c.save == save).order_by(save_ranks.c.rank)
        return tuple(SavedRank(**row._mapping) for row in self._scope.rows(query))

    def record(self, rank: SavedRank) -> None:
        self._scope.run(insert(save_ranks), **columns(rank))

    def complete(self, save: Save, manifest: str) -> None:
        """Every rank has reported; what will be published is fixed."""
        self._set(save, state="whole", manifest=manifest)
        self._scope.note(gang=save.gang)

    def publish(self, save: Save, version: int) -> None:
        self._set(save, state="published", version=version, error=None)
        self._scope.note(gang=save.gang)

    def trouble(self, save: Save, error: str) -> None:
        """Publication failed for now; it stays owed."""
        self._set(save, error=error)

    def fail(self, save: Save, error: str) -> None:
        """It will never be published."""
        self._set(save, state="failed", error=error)

    def _set(self, save: Save, **values: Any) -> None:
        self._scope.run(_SET, key_id=save.id, **values)
        self._scope.wake(gang=save.gang)
