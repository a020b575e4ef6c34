"""The process group of torch, if there is one; nothing here imports torch first."""

from __future__ import annotations

import sys


def group_size() -> int | None:
    """How many ranks torch's process group has; None without one."""
    # Not imported means no group: a rank without torch must not pay for importing it.
    if "torch.distributed" not in sys.modules:
        return None
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else None


def any_rank(mine: bool) -> bool:
    """Whether it is true on any rank of the process group; `mine` itself without one. Collective."""
    if group_size() in (None, 1):
        return mine
    import torch
    import torch.distributed as dist

    # A group of NCCL alone moves memory of GPUs only.
    by_cpu = "cpu:" in dist.get_backend_config()
    device = torch.device("cpu") if by_cpu else torch.device("cuda", torch.cuda.current_device())
    flag = torch.tensor([int(mine)], dtype=torch.int32, device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())
