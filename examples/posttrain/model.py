"""A small transformer that predicts the next byte."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import torch
from torch import nn
from torch.nn import functional

from posttrain.recipe import MODEL, ModelConfig

BYTES = 256


class Attention(nn.Module):
    """Causal self-attention with rotary positions: [batch, time, width] to the same shape."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        # Not buffers: those would be sent from rank to rank at every step.
        self.cosine, self.sine = rotary_table(config.context, config.width // config.heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        query, key = self.rotate(query), self.rotate(key)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn each pair of channels of [batch, heads, time, channels] by an angle that grows with time."""
        cosine, sine = self.cosine[:x.shape[2]], self.sine[:x.shape[2]]
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what came in: [batch, time, width]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm_feed = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.down(functional.relu(self.up(self.norm_feed(x))).square())


class ByteTransformer(nn.Module):
    """Bytes [batch, time] to the logits of each next byte [batch, time, 256]."""

    def __init__(self, config: ModelConfig = MODEL) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, BYTES, bias=False)
        self.apply(_init)
        for block in self.blocks:  # every block starts as the identity
            nn.init.zeros_(block.attention.out.weight)
            nn.init.zeros_(block.down.weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_byte_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats per byte, of [batch, time, 256] against [batch, time]."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rotary_table(context: int, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of the angle of every position and channel pair: each [context, channels / 2]."""
    frequency = 10_000.0 ** (-torch.arange(0, channels, 2) / channels)
    angle = torch.arange(context)[:, None] * frequency
    return angle.cos(), angle.sin()


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features ** -0.5)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
