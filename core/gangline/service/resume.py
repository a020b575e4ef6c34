"""Which version each mount of a gang resumes from."""

from __future__ import annotations

from gangline.model.errors import Rejected
from gangline.model.gang import Resume
from gangline.model.spec import GangSpec, VolumeMount
from gangline.store import Gang, Transaction


def choose(tx: Transaction, gang: Gang) -> tuple[Resume, ...]:
    """The newest undamaged version its slot published since its last success, else the spec's `from`.

    A mount with neither starts fresh and is left out. Rejected when `from` itself is damaged: to
    start fresh, or from another version, is not for us to decide.
    """
    chosen = []
    for mount, where in gang.spec.volumes.items():
        version = _version(tx, gang, mount, where)
        if version is not None:
            chosen.append(Resume(mount=mount, volume=where.volume, version=version))
    return tuple(chosen)


def _version(tx: Transaction, gang: Gang, mount: str, where: VolumeMount) -> int | None:
    for candidate in tx.versions.lineage(gang.slot, where.volume):
        if candidate.damaged is None:
            return candidate.version
    seed = gang.pinned.get(mount)
    if seed is not None:
        found = tx.versions.get(where.volume, seed)
        if found.damaged is not None:
            raise Rejected(f"{where.volume}@{seed}, the version to start from, is damaged: {found.damaged}",
                           field=f"volumes.{mount}.from", fix="name another version")
    return seed


def pin(tx: Transaction, spec: GangSpec) -> dict[str, int]:
    """What every `from` of a spec means now, by mount; Rejected when it means nothing."""
    return {mount: _pinned(tx, mount, where) for mount, where in spec.volumes.items()
            if where.from_ is not None}


def _pinned(tx: Transaction, mount: str, where: VolumeMount) -> int:
    field = f"volumes.{mount}.from"
    volume, _, reference = str(where.from_).partition("@")
    if volume != where.volume:
        raise Rejected(f"{where.from_} is a version of another volume than {where.volume}", field=field,
                       fix=f"mount volume {volume} on a path of its own and read it there")
    if reference.isdigit():
        number = int(reference)
    else:
        pointer = tx.versions.pointer(volume, reference)
        if pointer is None:
            raise Rejected(f"volume {volume} has no version named {reference}", field=field,
                           fix=f"gangline volume show {volume} lists its names")
        number = pointer.version
    found = tx.versions.find(volume, number)
    if found is None:
        raise Rejected(f"there is no version {volume}@{number}", field=field,
                       fix=f"gangline volume show {volume} lists its versions")
    if found.damaged is not None:
        raise Rejected(f"{volume}@{number} is damaged: {found.damaged}", field=field,
                       fix="name another version")
    return number
