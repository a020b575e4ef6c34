"""Saves: whole or not at all, fenced, repeatable; and which version the next attempt resumes from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from service_world import World, file, kinds, submission

from gangline.model.errors import Conflict, NotFound, Rejected, Unavailable
from gangline.model.orders import Damaged, Empty, OpenSave, RankSaved
from gangline.model.states import Cause, GangState
from gangline.model.volume import Manifest
from gangline.service import loop, saves, submit, versions

VOLUMES = {"/ckpt": "sft"}


def running(world: World, **fields: object) -> str:
    gang = world.submit(volumes=VOLUMES, **fields)
    world.run(gang)
    return gang


def report(world: World, sent: RankSaved, **options: object):  # type: ignore[no-untyped-def]
    return saves.report_save(world.store, sent, now_ms=world.now_ms, volumes_root=world.root,
                             **options)  # type: ignore[arg-type]


def test_the_last_rank_publishes_the_version(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang, step=7)
    assert world.open_save(gang) == save
    for rank in range(3):
        state = report(world, world.saved(gang, save, rank))
        assert state.published is None
    assert state.missing_ranks == (3,)
    assert report(world, world.saved(gang, save, 3)).published == 1
    view = versions.volume(world.store, "sft", world.root)
    version = view.versions[0]
    assert (version.version, version.step, version.files, version.slot) == (1, 7, 4, "dag/run/step")
    text = (world.root / "sft" / version.directory / "manifest.json").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == version.manifest_sha256
    manifest = Manifest.model_validate_json(text)
    assert [f.path for f in manifest.files] == [f"rank-{n}" for n in range(4)]
    assert (manifest.gang, manifest.world_size, manifest.parent) == (gang, 4, None)
    assert world.view(gang).versions[0].uri == "sft@1"
    assert "version.published" in kinds(world, gang)


def test_the_parent_is_the_slots_newest_version(world: World) -> None:
    gang = running(world)
    assert [world.save(gang, key) for key in ("one", "two")] == [1, 2]
    other = world.submit("other", volumes=VOLUMES)
    world.run(other)
    assert world.save(other, "x") == 3
    assert world.save(gang, "three") == 4
    parents = {v.version: v.parent for v in versions.volume(world.store, "sft", world.root).versions}
    assert parents == {1: None, 2: 1, 3: None, 4: 2}


def test_reports_may_be_repeated_but_not_changed(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang)
    first = world.saved(gang, save, 0)
    assert report(world, first) == report(world, first)
    with pytest.raises(Conflict, match="other files"):
        report(world, world.saved(gang, save, 0, files=(file("other"),)))
    for rank in range(1, 4):
        report(world, world.saved(gang, save, rank))
    assert report(world, first).published == 1
    assert len(versions.volume(world.store, "sft", world.root).versions) == 1


def test_a_crash_between_manifest_and_row_is_finished_by_the_next_report(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang)

    class Crash(BaseException):
        pass

    def put_and_die(root: Path, directory: str, text: str) -> None:
        saves.put_manifest_file(root, directory, text)
        raise Crash

    for rank in range(3):
        report(world, world.saved(gang, save, rank))
    with pytest.raises(Crash):
        report(world, world.saved(gang, save, 3), put_manifest=put_and_die)
    assert versions.volume(world.store, "sft", world.root).versions == ()
    world.later(5)
    assert report(world, world.saved(gang, save, 1)).published == 1


def test_a_whole_save_is_finished_without_any_rank_and_the_gang_waits_for_it(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang)

    def full(root: Path, directory: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    for rank in range(3):
        report(world, world.saved(gang, save, rank))
    with pytest.raises(Unavailable, match="space"):
        report(world, world.saved(gang, save, 3), put_manifest=full)
    assert "No space left" in str(saves.save_state(world.store, save).error)
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.COMMITTING
    saves.finish(world.store, now_ms=world.now_ms, volumes_root=world.root)
    assert world.view(gang).state == GangState.SUCCEEDED
    assert saves.save_state(world.store, save).published == 1


def test_a_commit_that_stays_impossible_fails_the_attempt(world: World) -> None:
    gang = running(world, retries={"lost": 0})
    save = world.open_save(gang)

    def full(root: Path, directory: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    for rank in range(3):
        report(world, world.saved(gang, save, rank))
    with pytest.raises(Unavailable, match="space"):
        report(world, world.saved(gang, save, 3), put_manifest=full)
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    due = loop.tick(world.store, now_ms=world.now_ms)
    assert due == world.now_ms + loop.COMMIT_DEADLINE_MS
    loop.tick(world.store, now_ms=world.later(loop.COMMIT_DEADLINE_MS / 1000))
    end = world.view(gang).end
    assert end is not None
    assert (end.cause, world.view(gang).state) == (Cause.COMMIT, GangState.FAILED)
    assert "space" in end.text


def test_a_cancel_is_heard_while_an_attempt_ends_over_its_commit(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang)

    def full(root: Path, directory: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    for rank in range(3):
        report(world, world.saved(gang, save, rank))
    with pytest.raises(Unavailable, match="space"):
        report(world, world.saved(gang, save, 3), put_manifest=full)
    world.exit_all(gang)
    loop.tick(world.store, now_ms=world.later(loop.COMMIT_DEADLINE_MS / 1000))
    assert world.view(gang).state == GangState.COMMITTING
    submit.cancel(world.store, gang, None, "enough", now_ms=world.now_ms)
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.CANCELLED


def test_a_manifest_that_is_there_already_and_differs_is_a_conflict(world: World) -> None:
    gang = running(world)
    save = world.open_save(gang)
    with world.store.transaction() as tx:
        directory = tx.saves.get(save).directory
    (world.root / "sft" / directory / "manifest.json").write_text("{}")
    for rank in range(3):
        report(world, world.saved(gang, save, rank))
    with pytest.raises(Conflict):
        report(world, world.saved(gang, save, 3))
    assert saves.save_state(world.store, save).error
    assert versions.volume(world.store, "sft", world.root).versions == ()


def test_only_the_current_attempt_may_save(world: World) -> None:
    gang = running(world, retries={"user": 1})
    save = world.open_save(gang)
    old = {rank: world.saved(gang, save, rank) for rank in range(4)}
    stale = OpenSave(**world.about(gang), mount="/ckpt", key="late")
    for rank in range(3):
        report(world, old[rank])
    world.fail(gang)
    assert saves.save_state(world.store, save).error
    world.run(gang)
    with pytest.raises(Conflict, match="over"):
        saves.open_save(world.store, stale, now_ms=1, volumes_root=world.root)
    state = report(world, old[3])
    assert state.published is None
    assert state.error
    fresh = world.open_save(gang)
    assert fresh != save
    with pytest.raises(Conflict, match="another attempt"):
        report(world, world.saved(gang, save, 0))


def test_a_save_may_be_made_in_the_grace_of_a_cancel(world: World) -> None:
    gang = running(world)
    submit.cancel(world.store, gang, None, "stop", now_ms=world.now_ms)
    assert world.save(gang, "last") == 1
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.CANCELLED


def test_ranks_that_end_without_completing_a_save_end_the_attempt(world: World) -> None:
    gang = running(world, retries={"lost": 0})
    save = world.open_save(gang, "half")
    report(world, world.saved(gang, save, 0))
    world.exit_all(gang)
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert end.cause == Cause.COMMIT
    assert "3 of 4" in end.text
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.FAILED
    assert saves.save_state(world.store, save).error


def test_bad_saves_are_refused(world: World) -> None:
    gang = running(world)
    about = world.about(gang)
    for fields in ({"key": "../x"}, {"key": ""}, {"mount": "/other"}):
        with pytest.raises(Rejected):
            saves.open_save(world.store, OpenSave(**{**about, "mount": "/ckpt", "key": "k", **fields}),
                            now_ms=1, volumes_root=world.root)
    save = world.open_save(gang)
    with pytest.raises(Rejected, match="rank 9"):
        report(world, world.saved(gang, save, 9))
    with pytest.raises(NotFound):
        report(world, world.saved(gang, 99, 0))
    for rank in range(3):
        report(world, world.saved(gang, save, rank, files=(file("same", bytes([rank // 2])),)))
    with pytest.raises(Rejected, match="different files as same"):
        report(world, world.saved(gang, save, 3))
    assert saves.save_state(world.store, save).missing_ranks == (3,)


def test_the_manifests_name_is_taken(world: World) -> None:
    gang = world.submit(size=1, gpu="H100:2", ranks_per_node=1, volumes=VOLUMES)
    world.run(gang)
    save = world.open_save(gang)
    with pytest.raises(Rejected, match=r"manifest\.json"):
        report(world, world.saved(gang, save, 0, files=(file("manifest.json"),)))


def resumed(world: World, gang: str) -> list[int]:
    return [chosen.version for chosen in world.view(gang).attempts[-1].resume]


def test_the_next_attempt_resumes_from_the_newest_version(world: World) -> None:
    gang = running(world, retries={"user": 2})
    assert resumed(world, gang) == []
    world.save(gang, "one")
    world.save(gang, "two")
    world.fail(gang)
    world.plan()
    assert resumed(world, gang) == [2]
    task = next(iter(world.order(gang).values())).task
    assert task is not None
    mount = task.mounts[0]
    version = versions.volume(world.store, "sft", world.root).versions[0]
    assert (mount.resume, mount.resume_dir, mount.manifest_sha256) == (
        2, version.directory, version.manifest_sha256)
    assert mount.root == str(world.root / "sft")


def test_a_new_gang_in_the_slot_resumes_what_the_failed_one_saved(world: World) -> None:
    gang = running(world)
    world.save(gang, "one")
    world.fail(gang)
    new = running(world)
    assert resumed(world, new) == [1]
    world.exit_all(new)
    world.everywhere(new, Empty)
    fresh = world.ensure(submission(epoch=1, volumes=VOLUMES))[0].gang
    world.run(fresh)
    assert resumed(world, fresh) == []


def test_pipelines_that_share_a_volume_do_not_resume_each_other(world: World) -> None:
    gang = running(world)
    world.save(gang, "one")
    other = world.submit("other", volumes=VOLUMES)
    world.run(other)
    assert resumed(world, other) == []


def test_a_damaged_version_is_skipped_in_the_same_attempt(world: World) -> None:
    gang = running(world, retries={"user": 2})
    world.save(gang, "one")
    world.save(gang, "two")
    world.fail(gang)
    world.plan()
    before = world.about(gang)
    node = world.view(gang).attempts[1].nodes[0].node
    damaged = Damaged(**before, volume="sft", version=2, text="a byte is wrong")
    assert world.report(node, damaged, damaged) == 1
    after = world.about(gang)
    assert (after["attempt"], after["generation"]) == (before["attempt"], before["generation"] + 1)
    assert resumed(world, gang) == [1]
    assert {order.generation for order in world.order(gang).values()} == {after["generation"]}
    world.report(node, Damaged(**after, volume="sft", version=1, text="also"))
    assert resumed(world, gang) == []
    assert [v.damaged for v in versions.volume(world.store, "sft", world.root).versions] == [
        "a byte is wrong", "also"]
    assert world.report(node, Damaged(**world.about(gang), volume="sft", version=7, text="?")) == 0


def test_a_seed_is_used_until_the_slot_has_saved_and_never_replaced_by_nothing(world: World) -> None:
    maker = running(world)
    world.save(maker, "one")
    world.save(maker, "two")
    versions.set_name(world.store, "sft", "best", 1, 0, now_ms=world.now_ms)
    seeded = {"/ckpt": {"volume": "sft", "from": "sft@best"}}
    gang = world.submit("seeded", volumes=seeded)
    versions.set_name(world.store, "sft", "best", 2, None, now_ms=world.now_ms)
    world.plan()
    assert resumed(world, gang) == [1]
    node = world.view(gang).attempts[0].nodes[0].node
    world.report(node, Damaged(**world.about(gang), volume="sft", version=1, text="bad"))
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert end.cause == Cause.USER
    assert "sft@1" in end.text
    with pytest.raises(Rejected, match="damaged"):
        world.submit("again", volumes={"/ckpt": {"volume": "sft", "from": "sft@1"}})


def test_a_seed_damaged_while_its_gang_waits_fails_the_gang(world: World) -> None:
    maker = running(world)
    world.save(maker, "one")
    gang = world.submit("seeded", volumes={"/ckpt": {"volume": "sft", "from": "sft@1"}})
    with world.store.transaction() as tx:
        tx.versions.damage("sft", 1, "bit rot")
    assert not world.plan()
    assert world.view(gang).state == GangState.FAILED


def test_names_move_by_compare_and_swap(world: World) -> None:
    gang = running(world)
    world.save(gang, "one")
    world.save(gang, "two")

    def name(version: int, expected: int | None, text: str = "best"):  # type: ignore[no-untyped-def]
        return versions.set_name(world.store, "sft", text, version, expected, now_ms=world.now_ms)

    assert name(1, 0).revision == 1
    with pytest.raises(Conflict):
        name(2, 0)
    assert name(2, 1).revision == 2
    assert name(1, None).revision == 3
    with pytest.raises(NotFound):
        name(9, None)
    for bad in ("12", "../x"):
        with pytest.raises(Rejected):
            name(1, None, bad)
    with pytest.raises(NotFound):
        versions.set_name(world.store, "nope", "best", 1, None, now_ms=1)
    assert [(p.name, p.version) for p in versions.volume(world.store, "sft", world.root).names] == [("best", 1)]


def test_one_key_at_two_mounts_of_one_volume_is_refused(world: World) -> None:
    gang = world.submit(volumes={"/a": "sft", "/b": "sft"})
    world.run(gang)
    world.open_save(gang, "k", "/a")
    with pytest.raises(Rejected, match="different keys"):
        world.open_save(gang, "k", "/b")
