import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from posttrain import corpus, recipe

SPLITS = (corpus.PRETRAIN_PARTS, corpus.FINETUNE_PARTS, corpus.HELDOUT_PARTS, corpus.OTHER_PARTS)


def test_no_file_is_in_two_splits():
    for one, other in combinations(SPLITS, 2):
        assert not set(corpus.files(one)) & set(corpus.files(other))


def test_every_split_has_text():
    assert all(len(corpus.text(parts)) > 50_000 for parts in SPLITS)


def test_order_of_the_names_does_not_matter():
    assert corpus.text(("queue", "selectors")) == corpus.text(("selectors", "queue"))


def test_tests_inside_packages_are_left_out():
    assert not [path for path in corpus.files(("unittest", "ctypes")) if "test" in path.parts]


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="no_such_package"):
        corpus.files(("no_such_package",))


def test_base_name_follows_the_seed_and_the_steps():
    assert recipe.base_name(0, 600) == recipe.base_name(0, 600)
    assert len({recipe.base_name(0, 600), recipe.base_name(1, 600), recipe.base_name(0, 601)}) == 3


def test_naming_the_steps_does_not_import_torch():
    program = "import sys, posttrain.steps, posttrain.promote, posttrain.plot; print('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": f"{root / 'core'}:{root / 'examples'}"})
    assert done.stdout.strip() == "False"
