"""What is due by the clock is looked at when it is due, not in every pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from service_world import World

from gangline.model.states import Cause, GangState
from gangline.service import loop
from gangline.service.dues import Dues
from gangline.service.picture import Picture


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9))), max_size=40),
       st.integers(0, 9))
def test_dues_are_the_last_that_were_put(puts: list[tuple[str, int | None]], now_ms: int) -> None:
    dues, last = Dues(), dict[str, int | None]()
    for gang, due_ms in puts:
        dues.put(gang, due_ms)
        last[gang] = due_ms
    known = {gang: due_ms for gang, due_ms in last.items() if due_ms is not None}
    assert dues.next_ms() == min(known.values(), default=None)
    assert sorted(dues.take(now_ms)) == sorted(gang for gang, due_ms in known.items() if due_ms <= now_ms)
    assert dues.take(now_ms) == []
    assert dues.next_ms() == min((due_ms for due_ms in known.values() if due_ms > now_ms), default=None)


def test_many_changes_do_not_pile_up() -> None:
    dues = Dues()
    for due_ms in range(10_000):
        dues.put("a", due_ms)
    assert len(dues._heap) < 2_000
    assert dues.next_ms() == 9_999


def test_the_loop_and_a_look_at_everything_come_to_the_same(world: World) -> None:
    picture = Picture(world.store, world.fleet)

    def due() -> int | None:
        picture.refresh()
        found = loop.tick(world.store, now_ms=world.now_ms, dues=picture.dues)
        picture.refresh()
        return found

    gang = world.submit(timeout="100s", orphan_after="1h")
    assert due() == loop.tick(world.store, now_ms=world.now_ms) == world.now_ms + 3_600_000
    world.plan()
    assert due() == loop.tick(world.store, now_ms=world.now_ms) == world.now_ms + loop.START_DEADLINE_MS
    world.later(loop.START_DEADLINE_MS / 1000)
    due()
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert end.cause is Cause.LAUNCH


def test_a_watched_gang_is_due_again_later_and_an_orphan_ends(world: World) -> None:
    gang = world.submit(orphan_after="60s", on_orphan="cancel")
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    world.later(40)
    with world.store.transaction() as tx:
        tx.gangs.renew(gang, world.now_ms)
    assert not picture.stale
    world.later(30)
    assert loop.tick(world.store, now_ms=world.now_ms, dues=picture.dues) == world.now_ms + 30_000
    assert world.view(gang).state is GangState.QUEUED
    loop.tick(world.store, now_ms=world.later(30), dues=picture.dues)
    assert world.view(gang).state is GangState.CANCELLED
