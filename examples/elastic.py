"""A small training that can be preempted and resized: asked to stop, it saves, and goes on with what it gets.

    gangline fleet init --emulated H100:8 --nodes 4
    python examples/elastic.py

submits it with 2 to 4 nodes and follows it. It begins with as many as are free. When a gang of higher
priority wants nodes, it gives up to two of them back, or all; when nodes get free, it grows. Each time it is
asked to stop, has `grace` to save, and its next attempt resumes from that version with another number of ranks.
"""

from __future__ import annotations

import time
from typing import Any

import gangline

FEATURES = 16
BATCH = 24  # rows a step, over all ranks: what is learned does not depend on how many there are


@gangline.clustered(size="2..4", gpu="H100:8", ranks_per_node=1, priority="low", grace="60s", timeout="1h",
                    volumes={"/ckpt": "elastic"})
def train(steps: int = 300, save_every: int = 50, step_s: float = 0.05) -> dict[str, Any]:
    """Fit a small network to a fixed one; `step_s` stands for the work of a real step."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    info = gangline.cluster_info()
    torch.manual_seed(1)
    teacher, model = network(torch), network(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = torch.zeros(steps)
    state = {"model": model, "optimizer": optimizer, "losses": losses}
    step = resumed_at = gangline.load_checkpoint(state) or 0

    # Collective, so that all ranks leave the loop at the same step and save the same one.
    while step < steps and not gangline.stop_requested():
        time.sleep(step_s)
        losses[step] = learn(torch, teacher, model, optimizer, step, info)
        step += 1
        gangline.report_progress(step, steps, loss=losses[step - 1])
        if step % save_every == 0:
            gangline.save_checkpoint(state, step=step, metrics={"loss": losses[step - 1]})
    if step % save_every:
        gangline.save_checkpoint(state, step=step, metrics={"loss": losses[step - 1]})
    dist.destroy_process_group()
    return {"step": step, "resumed_at": resumed_at, "nodes": info.size, "losses": losses.tolist()}


def network(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def learn(torch: Any, teacher: Any, model: Any, optimizer: Any, step: int, info: gangline.ClusterInfo) -> float:
    """One step on the step's own batch, of which every rank takes its share; the loss over the whole batch."""
    rows = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(step))[info.rank::info.world_size]
    with torch.no_grad():
        wanted = teacher(rows)
    loss = ((model(rows) - wanted) ** 2).sum() / BATCH
    optimizer.zero_grad()
    loss.backward()
    # A sum of shares is the gradient of the whole batch, whatever the number of ranks.
    sums = [loss.detach(), *(parameter.grad for parameter in model.parameters())]
    for one in sums:
        torch.distributed.all_reduce(one)
    optimizer.step()
    return float(sums[0])


if __name__ == "__main__":
    result = train.submit().result()
    print(f"step {result['step']} with {result['nodes']} nodes, loss {result['losses'][-1]:.4f}")
