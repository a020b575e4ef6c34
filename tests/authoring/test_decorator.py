from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import gangline
from gangline.client.decorator import Clustered
from gangline.model.errors import GanglineError, Rejected

CALLS: list[Any] = []


@gangline.clustered(size=4, gpu="H100:8", rdma=True, volumes={"/ckpt": "sft"}, timeout="6h",
                    labels={"team": "a"})
def train(lr: float = 3e-4, *, steps: int = 10, layers: Any = None) -> dict[str, float]:
    """Trains."""
    CALLS.append((lr, steps))
    return {"loss": lr * steps}


@gangline.clustered
def plain(shard: int, scale: int = 1) -> int:
    return shard * scale


@gangline.clustered(name="free")
def free(**anything: Any) -> None: ...


def test_it_is_still_the_function() -> None:
    assert isinstance(train, Clustered)
    assert train(2.0, steps=3) == train.local(2.0, steps=3) == {"loss": 6.0}
    assert CALLS[-1] == (2.0, 3)
    assert (train.__name__, train.__doc__, train.__module__) == ("train", "Trains.", __name__)
    assert str(inspect.signature(plain)) == "(shard: 'int', scale: 'int' = 1) -> 'int'"
    assert repr(plain) == f"<clustered {__name__}.plain>"


def test_the_spec_is_what_a_file_would_say() -> None:
    spec = train.spec(1e-3, steps=5)
    assert spec.wire() == {
        "name": "train", "size": 4, "gpu": ["H100:8"], "rdma": True, "function": f"{__name__}:train",
        "args": {"lr": 1e-3, "steps": 5}, "volumes": {"/ckpt": {"volume": "sft"}}, "timeout": 21600.0,
        "labels": {"team": "a"}}
    assert plain.spec(3).wire() == {"name": "plain", "function": f"{__name__}:plain", "args": {"shard": 3}}
    assert free.spec(a=1, b=[2]).args == {"a": 1, "b": [2]}


def test_options_change_a_copy() -> None:
    small = train.options(size=1, gpu="cpu", rdma=False)
    assert (small.spec().size, train.spec().size) == (1, 4)
    assert small.spec().timeout == 21600.0


def test_a_submission_keeps_slot_and_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))
    made = plain.options(slot="nightly/eval", epoch=2).prepare([{"shard": i} for i in range(2)])
    assert [p.submission.slot for p in made] == ["nightly/eval#0", "nightly/eval#1"]
    assert {p.submission.epoch for p in made} == {2}
    assert made[0].submission.snapshot


@pytest.mark.parametrize(("args", "message"), [
    ({"layers": {1, 2}}, "args.layers: a set is not JSON"),
    ({"layers": [{"deep": object()}]}, "args.layers.0.deep: a object is not JSON"),
    ({"layers": {1: "one"}}, "args.layers: the key 1 is not text"),
    ({"lr": float("nan")}, "args.lr: nan is not JSON"),
    ({"layers": b"raw"}, "args.layers: a bytes is not JSON"),
    ({"layers": Path("/x")}, "args.layers: a PosixPath is not JSON"),
    ({"layers": train}, "args.layers: a Clustered is not JSON"),
    ({"step": 1}, "args: train: got an unexpected keyword argument 'step'"),
    ({"layers": "x" * 300_000}, "args: arguments are"),
])
def test_arguments_that_cannot_travel_are_named(args: dict[str, Any], message: str) -> None:
    with pytest.raises(Rejected) as caught:
        train.spec(**args)
    assert message in str(caught.value)


def test_arguments_are_what_ranks_will_see() -> None:
    assert train.spec(layers=(1, (2, 3))).args == {"layers": [1, [2, 3]]}


def test_by_position_only_is_refused() -> None:
    @gangline.clustered
    def odd(x: int, /) -> None: ...

    with pytest.raises(Rejected, match=r"args\.x: odd takes 'x' by position only"):
        odd.spec(1)


def test_an_elastic_size_is_kept_as_it_was_written() -> None:
    spec = plain.options(size="2..4").spec(1)
    assert (spec.size, spec.nodes, spec.most, spec.wire()["size"]) == ("2..4", 2, 4, "2..4")
    assert spec.digest(None) != plain.options(size=2).spec(1).digest(None)


@pytest.mark.parametrize(("options", "message"), [
    ({"size": 0}, "size: a gang has at least 1 node, not 0"),
    ({"gpu": "H100:x"}, "gpu: 'H100:x' is not a GPU"),
    ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
    ({"nodes": 4}, "nodes: unknown field"),
    ({"volumes": {"ckpt": "sft"}}, "volumes: 'ckpt' is not an absolute path"),
    ({"args": {"lr": 1}}, "args: is not an option of a clustered function"),
    ({"command": ["x"]}, "command: is not an option"),
    ({"size": "4..2"}, "size: '4..2' is not a size"),
])
def test_wrong_options_are_told_where_they_are_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Rejected) as caught:
        gangline.clustered(**options)(lambda: 0)
    assert message in str(caught.value)


def test_methods_classes_and_clustered_ones_are_refused() -> None:
    with pytest.raises((Rejected, RuntimeError), match="fit is a method; a gang runs plain functions"):
        class Trainer:
            @gangline.clustered
            def fit(self) -> None: ...

    with pytest.raises(Rejected, match="is not a function"):
        gangline.clustered(type("Model", (), {}))
    with pytest.raises(Rejected, match="plain is clustered already"):
        gangline.clustered(plain)


def test_a_nested_function_runs_here_but_is_not_submitted() -> None:
    @gangline.clustered
    def nested() -> int:
        return 1

    assert nested() == 1
    with pytest.raises(GanglineError, match="nested is defined inside"):
        nested.spec()
