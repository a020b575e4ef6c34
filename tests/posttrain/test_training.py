import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from posttrain import evaluate, finetune, pretrain

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks():
    program = Path(__file__).parent / "ranks.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=200,
                          env={"PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'examples'}", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_ranks_learn(ranks):
    losses = ranks["through"]["losses"]
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 0.5


def test_two_ranks_learn_what_one_does(ranks):
    assert ranks["through"]["losses"] == pytest.approx(ranks["alone"]["losses"], abs=1e-4)


def test_a_run_in_two_halves_ends_as_one_that_ran_through(ranks):
    halves = ranks["first half"]["losses"] + ranks["second half"]["losses"]
    assert halves == pytest.approx(ranks["through"]["losses"], abs=1e-6)
    assert ranks["second half"]["sums"] == pytest.approx(ranks["through"]["sums"], abs=1e-5)


def test_steps_in_one_process_and_resuming_from_a_commit(volumes):
    base = pretrain.run(seed=0, steps=3)
    assert base["version"] == 1
    through = finetune.run(seed=0, steps=4, save_every=2)
    assert (through["version"], through["resumed_at"]) == (2, 0)

    forget_version(volumes / "adapter", 2)  # as if the run had been killed before its last commit
    resumed = finetune.run(seed=0, steps=4, save_every=2)
    assert (resumed["version"], resumed["resumed_at"]) == (2, 2)
    assert dict(resumed["curve"]) == pytest.approx(dict(through["curve"]), abs=1e-5)

    score = evaluate.run("queue", seed=0)
    assert score["adapter"] != score["base"]
    assert evaluate.run("queue", seed=0) | {"seconds": 0} == score | {"seconds": 0}


def forget_version(root, number):
    (root / "commits" / f"{number}.json").unlink()
