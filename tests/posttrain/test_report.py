import pytest

from posttrain import corpus, plot
from posttrain.promote import compare

SCORES = [{"package": name, "base": 2.0 + i, "adapter": 1.5 + i}
          for i, name in enumerate((*corpus.HELDOUT_PARTS, "difflib"))]


def test_only_heldout_packages_count():
    assert compare(SCORES) == {"base": pytest.approx(4.5), "adapter": pytest.approx(4.0)}


def test_the_table_shows_every_package_and_the_mean():
    lines = plot.score_table(SCORES).splitlines()
    assert lines[2] == "| concurrent | 2.000 | 1.500 | -25.0% |"
    assert lines[-2] == "| **mean** | 4.500 | 4.000 | -11.1% |"
    assert lines[-1] == "| difflib (another domain) | 8.000 | 7.500 | -6.2% |"


def test_the_curve_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    picture = plot.loss_curve([[2, 1.7], [4, 1.5]], tmp_path / "loss.png")
    assert picture.startswith(b"\x89PNG")
    assert (tmp_path / "loss.png").read_bytes() == picture
