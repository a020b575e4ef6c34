"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685), by hand: a frozen layer plus a small learned one."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import torch
from torch import nn


class LoraLinear(nn.Module):
    """`base(x) + scale * up(down(x))`: [..., inputs] to [..., outputs], where only `down` and `up` learn.

    `up` starts at zero, so that a new adapter changes nothing.
    """

    def __init__(self, base: nn.Linear, *, rank: int, scale: float) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.scale = scale
        nn.init.normal_(self.down.weight, std=base.in_features ** -0.5)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * self.up(self.down(x))


def add_adapter(model: nn.Module, *, rank: int, scale: float = 2.0) -> None:
    """Freeze `model` and put an adapter of `rank` beside every linear layer, in place."""
    model.requires_grad_(False)
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name, linear in linears:
        model.set_submodule(name, LoraLinear(linear, rank=rank, scale=scale))


def adapter_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors that learn, by name; they share memory with the model."""
    return {name: parameter.data for name, parameter in model.named_parameters() if parameter.requires_grad}
