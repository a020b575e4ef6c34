"""Volumes, their versions and the names that point at them."""

from __future__ import annotations

from pathlib import Path

from gangline.model.errors import Conflict, Rejected
from gangline.model.spec import check_name
from gangline.model.volume import PointerView, VolumeView
from gangline.store import Store, Transaction


def volumes(store: Store, volumes_root: Path) -> list[VolumeView]:
    """Every volume a gang has ever mounted, by name."""
    with store.transaction() as tx:
        return [_view(tx, name, volumes_root) for name in tx.versions.volumes()]


def volume(store: Store, name: str, volumes_root: Path) -> VolumeView:
    """The volume; NotFound when no gang ever mounted one of that name."""
    with store.transaction() as tx:
        tx.versions.check_volume(name)
        return _view(tx, name, volumes_root)


def set_name(store: Store, volume: str, name: str, version: int, expected_revision: int | None, *,
             now_ms: int) -> PointerView:
    """Points a name at a version. `expected_revision` is what the caller saw: 0 for none, None for any.

    Raises Conflict when the name has moved since, NotFound for a version there is not, Rejected for
    one that is damaged.
    """
    try:
        check_name(name)
    except ValueError as exc:
        raise Rejected(str(exc), field="name") from None
    if name.isdigit():
        raise Rejected(f"{name!r} would be read as the number of a version", field="name",
                       fix="use a name with a letter in it")
    with store.transaction() as tx:
        tx.versions.check_volume(volume)
        found = tx.versions.get(volume, version)
        if found.damaged is not None:
            raise Rejected(f"{volume}@{version} is damaged: {found.damaged}", field="version")
        old = tx.versions.pointer(volume, name)
        revision = old.revision if old is not None else 0
        if expected_revision not in (None, revision):
            raise Conflict(f"{volume}@{name} is at revision {revision}, not {expected_revision}",
                           fix="look at it again before moving it")
        pointer = PointerView(volume=volume, name=name, version=version, revision=revision + 1,
                              changed_ms=now_ms)
        tx.versions.point(pointer)
        return pointer


def _view(tx: Transaction, name: str, volumes_root: Path) -> VolumeView:
    return VolumeView(volume=name, root=str(volumes_root / name), versions=tx.versions.of(name),
                      names=tx.versions.names(name))
