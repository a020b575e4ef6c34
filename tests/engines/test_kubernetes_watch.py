"""What the engine believes while its API server misbehaves: the cache behind it, and every call's patience."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_toy.cluster import ToyCluster
from kube_toy.serving import Ask
from kube_toy.store import NODES, PODS, Problem

from gangline.engines.kubernetes import api as api_module
from gangline.engines.kubernetes.api import Api, Exists, Stale, resource
from gangline.engines.kubernetes.cache import Cache
from gangline.model.errors import Rejected, Unavailable

NODES_PATH = resource("v1", "nodes")
POD = {"spec": {"containers": [{"name": "main", "image": "pause"}]}}


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[ToyCluster]:
    toy = ToyCluster(tmp_path)
    yield toy
    toy.close()


@pytest.fixture
def api(toy: ToyCluster) -> Iterator[Api]:
    api = Api(toy.access())
    yield api
    api.close()
    api.release()


class Watched:
    """A cache of nodes' names, and how often it has listed and watched."""

    def __init__(self, toy: ToyCluster, api: Api) -> None:
        self._toy, self.news = toy, threading.Semaphore(0)
        self.cache: Cache[str] = Cache(api, NODES_PATH, {}, lambda item: item["metadata"]["name"], self.news.release)
        self.cache.start()

    def names(self) -> set[str]:
        assert self.cache.wait_for(self._toy.store.version, 20.0)
        return set(self.cache.items())

    def asked(self, verb: str) -> int:
        return sum(ask.verb == verb and ask.kind is NODES for ask in self._toy.api.asked)


@pytest.fixture
def watched(toy: ToyCluster, api: Api) -> Iterator[Watched]:
    toy.add_node("a", 4, {})
    watched = Watched(toy, api)
    yield watched
    api.close()
    watched.cache.close()


def of(verb: str) -> Callable[[Ask], bool]:
    return lambda ask: ask.verb == verb


def test_it_hears_of_what_comes_changes_and_goes(toy: ToyCluster, watched: Watched) -> None:
    assert watched.names() == {"a"}
    toy.add_node("b", 4, {})
    assert watched.names() == {"a", "b"}
    toy.store.delete(NODES, "", "a")
    assert watched.names() == {"b"}
    assert watched.asked("list") == 1
    assert watched.news.acquire(timeout=20)


def test_bookmarks_move_it_on_without_news(toy: ToyCluster, watched: Watched) -> None:
    assert watched.names() == {"a"}
    assert watched.news.acquire(timeout=20)
    for index in range(3):
        toy.store.create(PODS, "others", {"metadata": {"name": f"p{index}"}, **POD, "status": {}})
    assert watched.names() == {"a"}
    assert not watched.news.acquire(blocking=False)
    toy.store.forget()
    toy.api.cut_watches()
    toy.add_node("b", 4, {})
    assert watched.names() == {"a", "b"}


def test_a_watch_that_breaks_goes_on_where_it_was(toy: ToyCluster, watched: Watched) -> None:
    assert watched.names() == {"a"}
    for name in ("b", "c", "d"):
        toy.api.cut_watches()
        toy.add_node(name, 4, {})
        assert name in watched.names()
    assert watched.asked("list") == 1
    assert watched.asked("watch") >= 3  # the first may have been cut before it began


def test_what_the_server_no_longer_remembers_is_listed_again(toy: ToyCluster, watched: Watched) -> None:
    assert watched.names() == {"a"}
    with toy.store.changed:  # all in one moment, so that the watch hears of nothing but its end
        toy.add_node("b", 4, {})
        toy.store.delete(NODES, "", "a")
        toy.store.forget()
    assert watched.names() == {"b"}
    assert watched.asked("list") == 2


@pytest.mark.parametrize("code", [410, 429, 500, 503])
def test_a_watch_that_is_refused_is_asked_for_again(toy: ToyCluster, watched: Watched, code: int) -> None:
    assert watched.names() == {"a"}
    reason = "Expired" if code == 410 else "TooManyRequests"
    toy.api.faults.refusals += [(of("watch"), Problem(code, reason, "not now"))] * 2
    toy.api.cut_watches()
    toy.add_node("b", 4, {})
    assert watched.names() == {"a", "b"}


def test_long_lists_come_in_pages(toy: ToyCluster, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.engines.kubernetes.cache._PAGE", "3")
    for index in range(8):
        toy.add_node(f"n{index}", 4, {})
    watched = Watched(toy, api)
    assert watched.names() == {f"n{index}" for index in range(8)}
    assert watched.asked("list") == 3
    api.close()
    watched.cache.close()


def test_an_answer_that_is_older_than_the_watch_changes_nothing(toy: ToyCluster, watched: Watched) -> None:
    old = toy.store.get(NODES, "", "a")
    toy.store.delete(NODES, "", "a")
    assert watched.names() == set()
    watched.cache.put(old)
    assert watched.names() == set()


def test_an_answer_is_believed_until_the_watch_has_come_so_far(toy: ToyCluster, watched: Watched) -> None:
    assert watched.names() == {"a"}
    ahead = toy.store.get(NODES, "", "a")
    ahead["metadata"] |= {"uid": "0-1", "name": "ahead", "resourceVersion": str(toy.store.version + 50)}
    watched.cache.put(ahead)
    assert set(watched.cache.items()) == {"a", "ahead"}


def test_a_server_that_was_never_heard_is_unavailable(toy: ToyCluster, api: Api,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.engines.kubernetes.cache.FIRST_S", 0.1)
    monkeypatch.setattr(api_module, "PATIENCE_S", 0.2)
    toy.api.faults.refusals += [(of("list"), Problem(503, "ServiceUnavailable", "etcd is not there"))] * 1000
    watched = Watched(toy, api)
    with pytest.raises(Unavailable):
        watched.cache.items()
    api.close()
    watched.cache.close()


# -- calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [
    Problem(429, "TooManyRequests", "slow down", 1), Problem(500, "InternalError", "x"),
    Problem(503, "ServiceUnavailable", "x"), Problem(504, "Timeout", "x")])
def test_a_call_is_repeated_while_the_server_asks_for_it(toy: ToyCluster, api: Api, problem: Problem) -> None:
    toy.add_node("a", 4, {})
    toy.api.faults.refusals += [(of("get"), problem)] * 2
    found = api.get(resource("v1", "nodes", name="a"))
    assert found is not None
    assert found["metadata"]["name"] == "a"


def test_patience_has_an_end_and_the_servers_words(toy: ToyCluster, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PATIENCE_S", 0.3)
    toy.api.faults.refusals += [(of("get"), Problem(503, "ServiceUnavailable", "etcd is not there"))] * 100
    with pytest.raises(Unavailable, match="etcd is not there"):
        api.get(resource("v1", "nodes", name="a"))


def test_nobody_there_is_unavailable(toy: ToyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PATIENCE_S", 0.3)
    access = toy.access()
    toy.api.close()
    api = Api(access)
    with pytest.raises(Unavailable, match="does not answer"):
        api.get(NODES_PATH)
    api.release()


def test_a_lost_answer_to_a_creation_ends_with_one_object(toy: ToyCluster, api: Api) -> None:
    toy.api.faults.losses.append(of("create"))
    with pytest.raises(Exists):
        api.create(resource("v1", "pods", "default"), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                                                       **POD})
    assert len(toy.store.list(PODS)) == 1


@pytest.mark.parametrize(("problem", "expected", "words"), [
    (Problem(403, "Forbidden", "nodes is forbidden"), Rejected, "deploy/kubernetes"),
    (Problem(401, "Unauthorized", "Unauthorized"), Unavailable, "credentials"),
    (Problem(422, "Invalid", "spec.completions: immutable"), Rejected, "immutable"),
    (Problem(400, "BadRequest", "no such field"), Rejected, "no such field"),
])
def test_refusals_keep_the_servers_words(toy: ToyCluster, api: Api, problem: Problem, expected: type[Exception],
                                         words: str) -> None:
    toy.api.faults.refusals += [(of("create"), problem)] * 2
    with pytest.raises(expected, match=words):
        api.create(resource("v1", "pods", "default"), {"metadata": {"name": "p"}, **POD})
    assert toy.store.list(PODS) == []


def test_a_patch_of_what_has_changed_meanwhile_is_stale(toy: ToyCluster, api: Api) -> None:
    toy.add_node("a", 4, {})
    path = resource("v1", "nodes", name="a")
    old = toy.store.get(NODES, "", "a")["metadata"]["resourceVersion"]
    api.patch(path, {"metadata": {"labels": {"x": "1"}}})
    with pytest.raises(Stale):
        api.patch(path, {"metadata": {"labels": {"x": "2"}, "resourceVersion": old}})
    toy.api.faults.refusals.append((of("patch"), Problem(409, "Conflict", "somebody was faster")))
    assert api.patch(path, {"metadata": {"labels": {"x": "3"}}}) is not None  # it holds for any state: asked again


def test_an_unknown_field_is_refused_not_dropped(toy: ToyCluster, api: Api) -> None:
    body: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {**POD["spec"], "hostNetworking": True}}
    with pytest.raises(Rejected, match="hostNetworking"):
        api.create(resource("v1", "pods", "default"), body)


def test_a_token_that_is_refused_is_renewed_once(toy: ToyCluster) -> None:
    given: list[bool] = []

    def headers(anew: bool) -> dict[str, str]:
        given.append(anew)
        return {"Authorization": f"Bearer {'admin-token' if anew else 'old'}"}
    access = toy.access()
    api = Api(type(access)(access.server, access.verify, headers))
    toy.add_node("a", 4, {})
    assert api.get(NODES_PATH) is not None
    assert given == [False, True]
    api.release()
