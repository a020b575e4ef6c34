"""To which pool a node belongs that a fleet does not name yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.fabric.topology import Place
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """What a person says of new nodes: their pool, what they have, and that they are only pretended."""

    pool: str | None = None
    gpu: str | None = None
    emulated: bool = False


# Where a new pool of an engine is likely to be: what its owner reads in the file, and mends.
_BLOCKS: dict[str, Callable[[str], dict[str, str]]] = {
    "slurm": lambda pool: {"partition": pool},
    "kubernetes": lambda pool: {"image": "gangline"},
}


class Pools:
    """The pools of a fleet, and those that new nodes need."""

    def __init__(self, pools: Iterable[Pool], choice: PoolChoice, format: str) -> None:
        self._pools = {pool.name: pool for pool in pools}
        self._before = set(self._pools)
        self._choice = choice
        self._engine = "local" if choice.emulated else "kubernetes" if "slurm" not in format else "slurm"

    def of(self, place: Place) -> str | None:
        """The pool for a new node, made if need be; None when it has no GPUs and nobody asks for it.

        Raises:
            Rejected: several pools would do, or nothing says what the node has.
        """
        gpu = place.gpu if self._choice.gpu is None else self._choice.gpu
        named = self._choice.pool
        if named is not None:
            if named not in self._pools:
                self._make(named, gpu, place)
            return named
        if gpu == CPU:
            return None
        fitting = [pool.name for pool in self._pools.values() if _fits(pool, gpu, place.zone)]
        if len(fitting) > 1:
            raise Rejected(f"node {place.node} would fit pools {', '.join(fitting)}", field="--pool",
                           fix="say which with --pool NAME")
        return fitting[0] if fitting else self._make(self._free_name(gpu, place), gpu, place)

    def sized(self, counts: Mapping[str, int]) -> tuple[list[Pool], tuple[tuple[Pool, Pool], ...]]:
        """All pools, large enough for so many nodes of each; and the old ones that had to grow, before
        and after."""
        sized, grown = [], []
        for pool in self._pools.values():
            count = counts.get(pool.name, 0)
            if pool.name not in self._before:
                sized.append(pool.model_copy(update={"min": count, "max": count}))
            elif pool.max is not None and count > pool.max:
                sized.append(pool.model_copy(update={"max": count}))
                grown.append((pool, sized[-1]))
            else:
                sized.append(pool)
        return sized, tuple(grown)

    def _make(self, name: str, gpu: str | None, place: Place) -> str:
        if gpu is None:
            raise Rejected(f"nothing says what node {place.node} has", field="--gpu",
                           fix="say --gpu TYPE:COUNT, or --pool NAME of a pool in the fleet file")
        made: dict[str, Any] = {"name": name, "engine": self._engine, "gpu": gpu, "emulated": self._choice.emulated}
        if place.zone is not None:
            made["zone"] = place.zone
        if self._engine in _BLOCKS:
            made[self._engine] = _BLOCKS[self._engine](name)
        self._pools[name] = Pool.parse(made, where="--pool")
        return name

    def _free_name(self, gpu: str | None, place: Place) -> str:
        words = [word for word in ((gpu or "").replace(":", "x"), place.zone) if word]
        base = re.sub(r"[^a-z0-9.-]+", "-", "-".join(words).lower()).strip("-.")[:56] or "pool"
        name, number = base, 2
        while name in self._pools:
            name, number = f"{base}-{number}", number + 1
        return name


def _fits(pool: Pool, gpu: str | None, zone: str | None) -> bool:
    return gpu in (None, pool.gpu) and zone in (None, pool.zone)
