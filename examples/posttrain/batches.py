"""Batches of a text, addressed by step, so that a resumed run sees the very data it would have seen."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import random

import torch


class Batches:
    """Cuts a text into windows of `context` bytes and deals them out in a seeded order.

    Step `s` takes the `sequences` windows from position `s * sequences` on, in an endless stream of
    shuffles of all windows. The step alone is the position in the data.
    """

    def __init__(self, text: bytes, *, context: int, sequences: int, seed: int) -> None:
        self.windows = (len(text) - 1) // context
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self._context = context
        self._sequences = sequences
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def at(self, step: int, *, rank: int = 0, world_size: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's share of step `step`: (inputs, targets), each [sequences / world_size, context].

        The ranks of a step together see the same windows whatever the world size.
        """
        if self._sequences % world_size:
            raise ValueError(f"{self._sequences} sequences cannot be shared equally by {world_size} ranks")
        share = self._sequences // world_size
        first = step * self._sequences + rank * share
        starts = [self._window(first + i) * self._context for i in range(share)]
        inputs = torch.stack([self._bytes[start:start + self._context] for start in starts])
        targets = torch.stack([self._bytes[start + 1:start + 1 + self._context] for start in starts])
        return inputs, targets

    def _window(self, position: int) -> int:
        epoch, place = divmod(position, self.windows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self.windows))
            random.Random(f"{self._seed}/{epoch}").shuffle(self._order)  # noqa: S311 (an order, not a secret)
        return self._order[place]
