"""Saves: from a fresh directory for all ranks to a published version, whole or not at all.

The order is what makes it safe: every rank's files are on disk before it reports, the manifest is
beside them before the row, and the row is what makes it a version. A crash between the last two is
mended by doing them again: the manifest's text was fixed when the last rank reported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gangline.model.errors import Conflict, GanglineError, Rejected, Unavailable
from gangline.model.gang import End
from gangline.model.orders import OpenSave, RankSaved, SaveDir, SaveState
from gangline.model.spec import check_name
from gangline.model.states import LIVE, Cause, Phase
from gangline.model.volume import FileEntry, Manifest, VersionView
from gangline.service import life
from gangline.store import Attempt, Gang, Save, SavedRank, Store, Transaction
from gangline.volumes.publish import manifest_sha256
from gangline.volumes.publish import put_manifest as put_manifest_file

MANIFEST_NAME = "manifest.json"
PutManifest = Callable[[Path, str, str], None]


def open_save(store: Store, request: OpenSave, *, now_ms: int, volumes_root: Path) -> SaveDir:
    """The directory of the save named by the request's key, the same one for every rank of the attempt.

    The volume's root exists afterwards; the directory itself is the ranks' to make.

    Raises Rejected for a bad key or a path that is not mounted, Conflict when the attempt is over,
    Unavailable when the disk refuses.
    """
    try:
        check_name(request.key)
    except ValueError as exc:
        raise Rejected(str(exc), field="key") from None
    with store.transaction() as tx:
        gang, attempt = _current(tx, request.gang, request.attempt, request.generation)
        mount = gang.spec.volumes.get(request.mount)
        if mount is None:
            raise Rejected(f"nothing is mounted at {request.mount}", field="mount",
                           fix=f"mounted are: {', '.join(gang.spec.volumes) or 'none'}")
        directory = f"versions/{gang.id}-a{attempt.number}-g{gang.generation}-{request.key}"
        save = tx.saves.in_directory(mount.volume, directory)
        if save is not None and save.mount != request.mount:
            raise Rejected(f"save {request.key} of volume {mount.volume} was begun at {save.mount}",
                           field="key", fix="give saves at two mounts of one volume different keys")
        if save is None:
            save = Save(id=tx.saves.next_id(), gang=gang.id, attempt=attempt.number,
                        generation=gang.generation, mount=request.mount, key=request.key,
                        volume=mount.volume, directory=directory, step=request.step, state="open",
                        opened_ms=now_ms)
            tx.saves.add(save)
    try:
        (volumes_root / save.volume).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Unavailable(f"volume {save.volume} cannot be written: {exc}") from None
    return SaveDir(save=save.id, directory=save.directory)


def report_save(store: Store, report: RankSaved, *, now_ms: int, volumes_root: Path,
                put_manifest: PutManifest = put_manifest_file) -> SaveState:
    """Records one rank's part; the last part publishes the version. Repeating a report is harmless.

    Raises Rejected for files that cannot be one version, Conflict when the attempt is over or the
    rank reported something else before, Unavailable while the manifest cannot be written: the save
    stays owed, and `finish` or the next report publishes it.
    """
    with store.transaction() as tx:
        save = tx.saves.get(report.save)
        if (save.gang, save.attempt, save.generation) != (report.gang, report.attempt, report.generation):
            raise Conflict(f"save {save.id} belongs to another attempt", fix="open a save of this attempt")
        if save.state == "open":
            _record(tx, save, report, now_ms)
            save = tx.saves.get(save.id)
    if save.state == "whole":
        _publish(store, save, now_ms, volumes_root, put_manifest)
    return save_state(store, save.id)


def save_state(store: Store, save: int, may_see: Callable[[str, int], None] | None = None) -> SaveState:
    """Which version a save became, or which ranks it still waits for, or why it never will.

    `may_see` is called with its gang and attempt, and raises for a caller who may not.
    """
    with store.transaction() as tx:
        known = tx.saves.get(save)
        if may_see is not None:
            may_see(known.gang, known.attempt)
        missing: tuple[int, ...] = ()
        if known.state in ("open", "failed"):
            there = {rank.rank for rank in tx.saves.ranks(save)}
            world_size = tx.attempts.get(known.gang, known.attempt).world_size
            missing = tuple(rank for rank in range(world_size) if rank not in there)
    return SaveState(save=save, published=known.version, missing_ranks=missing, error=known.error)


def finish(store: Store, *, now_ms: int, volumes_root: Path,
           put_manifest: PutManifest = put_manifest_file) -> None:
    """Publishes every whole save that a crash or a full disk kept from being published."""
    with store.transaction() as tx:
        owed = tx.saves.whole()
    for save in owed:
        try:
            _publish(store, save, now_ms, volumes_root, put_manifest)
        except GanglineError:
            continue  # the save's row says what is wrong


def _current(tx: Transaction, gang_id: str, number: int, generation: int) -> tuple[Gang, Attempt]:
    gang = tx.gangs.get(gang_id)
    if gang.state not in LIVE or (gang.attempt, gang.generation) != (number, generation):
        raise Conflict(f"attempt {number} of gang {gang_id} is over", fix="end this process")
    attempt = tx.attempts.get(gang.id, number)
    if attempt.phase not in (Phase.STARTING, Phase.RUNNING, Phase.DRAINING):
        raise Conflict(f"attempt {number} of gang {gang_id} has no ranks running")
    return gang, attempt


def _record(tx: Transaction, save: Save, report: RankSaved, now_ms: int) -> None:
    gang, attempt = _current(tx, save.gang, save.attempt, save.generation)
    if not 0 <= report.rank < attempt.world_size:
        raise Rejected(f"there is no rank {report.rank} in a world of {attempt.world_size}", field="rank")
    part = SavedRank(save=save.id, rank=report.rank, files=report.files, format=report.format,
                     metrics=report.metrics, extra=report.extra)
    parts = {known.rank: known for known in tx.saves.ranks(save.id)}
    if report.rank in parts:
        if parts[report.rank] != part:
            raise Conflict(f"rank {report.rank} has already reported other files for save {save.key}",
                           fix="use a new key for each save")
        return
    tx.saves.record(part)
    parts[report.rank] = part
    if len(parts) == attempt.world_size:
        ordered = [parts[rank] for rank in sorted(parts)]
        manifest = _manifest(tx, gang, save, ordered, now_ms)
        tx.saves.complete(save, manifest.text())


def _manifest(tx: Transaction, gang: Gang, save: Save, parts: list[SavedRank], now_ms: int) -> Manifest:
    formats = {part.format for part in parts}
    if len(formats) > 1:
        raise Rejected(f"ranks of one save wrote different formats: {', '.join(sorted(formats))}",
                       field="format")
    return Manifest(
        volume=save.volume, directory=save.directory, parent=tx.versions.newest_by(gang.slot, save.volume),
        format=parts[0].format, step=save.step, metrics=parts[0].metrics, files=_files(parts),
        world_size=len(parts), gang=gang.id, attempt=save.attempt, slot=gang.slot, digest=gang.digest,
        created_ms=now_ms, extra=parts[0].extra)


def _files(parts: list[SavedRank]) -> tuple[FileEntry, ...]:
    """All files by path. Ranks may name one file twice only when it is the same to the byte."""
    files: dict[str, FileEntry] = {}
    for part in parts:
        for file in part.files:
            if file.path == MANIFEST_NAME:
                raise Rejected(f"{MANIFEST_NAME} is the manifest's own name", field="files",
                               fix="give that file another name")
            if files.setdefault(file.path, file) != file:
                raise Rejected(f"two ranks wrote different files as {file.path}", field="files",
                               fix="put the rank into the file's name")
    return tuple(files[path] for path in sorted(files))


def _publish(store: Store, save: Save, now_ms: int, volumes_root: Path, put_manifest: PutManifest) -> None:
    """Manifest first, outside any transaction; then the row, if the attempt is still the current one."""
    text = save.manifest or ""
    try:
        put_manifest(volumes_root / save.volume, save.directory, text)
    except OSError as exc:
        _unpublished(store, save, exc, now_ms)
        raise Unavailable(f"save {save.key} cannot be published now: {exc}") from None
    except GanglineError as exc:
        _unpublished(store, save, exc, now_ms)
        raise
    manifest = Manifest.model_validate_json(text)
    with store.transaction() as tx:
        known = tx.saves.get(save.id)
        if known.state == "published":
            return
        gang = tx.gangs.get(save.gang)
        if known.state != "whole" or (gang.attempt, gang.generation) != (save.attempt, save.generation):
            raise Conflict(f"attempt {save.attempt} of gang {gang.id} is over", fix="end this process")
        number = tx.versions.next_number(save.volume)
        tx.versions.add(VersionView(
            volume=save.volume, version=number, directory=save.directory,
            manifest_sha256=manifest_sha256(text), bytes=manifest.total_bytes, files=len(manifest.files),
            parent=manifest.parent, step=manifest.step, metrics=manifest.metrics, gang=gang.id,
            attempt=save.attempt, slot=gang.slot, format=manifest.format, created_ms=manifest.created_ms))
        tx.saves.publish(save, number)
        tx.events.add("version.published", now_ms, gang=gang.id, volume=save.volume, version=number,
                      step=manifest.step)
        life.settle(tx, gang.id, now_ms)


def _unpublished(store: Store, save: Save, error: Exception, now_ms: int) -> None:
    """Keeps a save owed while the disk may recover; fails one that can never be, or whose attempt ends."""
    hopeless = isinstance(error, Rejected | Conflict)
    with store.transaction() as tx:
        if tx.saves.get(save.id).state != "whole":
            return
        attempt = tx.attempts.get(save.gang, save.attempt)
        if not hopeless and attempt.phase is not Phase.DRAINING:
            tx.saves.trouble(save, str(error))
            return
        tx.saves.fail(save, str(error))
        if attempt.phase is Phase.COMMITTING:
            life.decide_end(tx, tx.gangs.get(save.gang), End(cause=Cause.COMMIT, text=str(error)), now_ms)
        life.settle(tx, save.gang, now_ms)
