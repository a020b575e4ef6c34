# ruff: noqa: E402

import math

import pytest

torch = pytest.importorskip("torch")

from posttrain.batches import Batches
from posttrain.evaluate import bits_per_byte, sample
from posttrain.lora import adapter_state, add_adapter
from posttrain.model import ByteTransformer, next_byte_loss
from posttrain.recipe import ADAPTER_RANK, MODEL
from posttrain.training import curve

pytestmark = pytest.mark.torch


def trained_a_little(seed=0):
    """A model whose layers all matter: at the start every block is the identity."""
    torch.manual_seed(seed)
    model = ByteTransformer(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def few(package, seed):
    inputs, targets = sample(package, seed=seed)
    return inputs[:8], targets[:8]


def test_logits_have_one_row_per_byte():
    tokens = torch.randint(0, 256, (2, MODEL.context))
    assert ByteTransformer(MODEL)(tokens).shape == (2, MODEL.context, 256)


def test_a_new_model_knows_nothing():
    tokens = torch.randint(0, 256, (4, MODEL.context))
    loss = next_byte_loss(ByteTransformer(MODEL)(tokens), tokens)
    assert loss.item() == pytest.approx(math.log(256), rel=0.15)


def test_a_byte_does_not_see_the_ones_after_it():
    model = trained_a_little()
    tokens = torch.randint(0, 256, (1, MODEL.context))
    changed = tokens.clone()
    changed[0, 50] = (changed[0, 50] + 1) % 256
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :50], after[:, :50])
    assert not torch.allclose(before[:, 50], after[:, 50])


def test_a_new_adapter_changes_nothing():
    model = trained_a_little()
    tokens = torch.randint(0, 256, (2, 64))
    before = model(tokens)
    add_adapter(model, rank=ADAPTER_RANK)
    torch.testing.assert_close(model(tokens), before, rtol=0, atol=0)


def test_only_the_adapter_learns():
    model = trained_a_little()
    linears = sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    add_adapter(model, rank=ADAPTER_RANK)
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert set(adapter_state(model)) == learning
    assert len(learning) == 2 * linears
    assert all(name.endswith((".down.weight", ".up.weight")) for name in learning)


def test_batches_of_all_ranks_are_the_same_windows_for_any_world_size():
    batches = Batches(bytes(range(256)) * 20, context=16, sequences=8, seed=3)
    whole = batches.at(5)
    shares = [batches.at(5, rank=rank, world_size=4) for rank in range(4)]
    for part, tensor in enumerate(whole):
        torch.testing.assert_close(torch.cat([share[part] for share in shares]), tensor)


def test_an_epoch_has_every_window_once():
    batches = Batches(bytes(range(256)), context=15, sequences=1, seed=0)
    firsts = [batches.at(step)[0][0, 0].item() for step in range(2 * batches.windows)]
    assert sorted(firsts[:batches.windows]) == sorted(firsts[batches.windows:]) == list(range(0, 255, 15))
    assert firsts[:batches.windows] != firsts[batches.windows:]


def test_batches_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="8 sequences cannot be shared equally by 3 ranks"):
        Batches(bytes(1000), context=16, sequences=8, seed=0).at(0, world_size=3)


def test_scores_are_the_same_every_time():
    model = trained_a_little()
    first, second = (bits_per_byte(model, *few("queue", seed=0)) for _ in range(2))
    assert first == second
    assert not torch.equal(few("queue", seed=0)[0], few("queue", seed=1)[0])


def test_bits_per_byte_of_a_model_that_knows_nothing_is_eight():
    model = ByteTransformer(MODEL)
    torch.nn.init.zeros_(model.head.weight)
    assert bits_per_byte(model, *few("queue", seed=0)) == pytest.approx(8.0, abs=1e-4)


def test_the_curve_is_short_and_ends_at_the_last_step_done():
    losses = torch.full((400,), float("nan"))
    losses[:250] = torch.linspace(5, 2, 250)
    points = curve(losses)
    assert len(points) <= 100
    assert points[-1][0] == 250
    assert points[0][1] > points[-1][1]
