"""What a worker below torchrun runs in these tests: steps, until it is asked to stop."""

from __future__ import annotations

import time

import gangline


def main() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    state = {"x": torch.zeros(4)}
    step = gangline.load_checkpoint(state) or 0
    while not gangline.stop_requested():
        time.sleep(0.02)
        step += 1
        gangline.report_progress(step)
    gangline.save_checkpoint(state, step=step)


if __name__ == "__main__":
    main()
