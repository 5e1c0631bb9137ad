"""A small DDP job with dropout whose way of saving and resuming is chosen by --flaw: what real jobs get wrong, one thing at a time."""

import argparse
import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FLAWS = ("none", "in_place", "remove_first", "no_optimizer", "no_scheduler", "no_position", "no_rng", "swallow", "hides")
SAVE_EVERY = 3


def save(folder, flaw, step, parts):
    """Rank 0 writes one file; without a flaw the old one stays until the new one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "latest.pt"
    if flaw in ("in_place", "swallow"):
        torch.save(parts, target)
        return
    if flaw == "remove_first":
        target.unlink(missing_ok=True)
    partial = folder / "latest.pt.tmp"
    torch.save(parts, partial)
    os.replace(partial, target)


def restore(folder, flaw, model, optimizer, scheduler, rank):
    """The step that was saved, 0 where there is nothing to resume."""
    if not (folder / "latest.pt").exists():
        return 0
    try:
        parts = torch.load(folder / "latest.pt", weights_only=True)
    except RuntimeError:
        if flaw == "swallow":
            return 0
        raise
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    if flaw == "no_optimizer":
        optimizer.state.clear()
    if flaw != "no_scheduler":
        scheduler.load_state_dict(parts["scheduler"])
    if flaw != "no_rng":
        torch.set_rng_state(parts["rng"][rank])
    return parts["step"]


def batch(step, rank, world_size):
    """Sample numbers are the inputs, so that another place in the data shows."""
    rows = 16 // world_size
    first = (step * 16 + rank * rows) % 64
    x = torch.arange(first, first + rows, dtype=torch.float32).unsqueeze(1) / 64
    return x, torch.sin(6 * x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--flaw", choices=FLAWS, default="none")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    layers = [torch.nn.Linear(1, 16), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(16, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.9**done)
    folder = args.out / "checkpoints"
    step = restore(folder, args.flaw, model.module, optimizer, scheduler, rank) if args.resume else 0
    drawn = 0 if args.flaw == "no_position" else step
    while step < args.steps:
        x, y = batch(drawn, rank, world_size)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step, drawn = step + 1, drawn + 1
        if step % SAVE_EVERY == 0:
            states = [None] * world_size
            dist.all_gather_object(states, torch.get_rng_state())
            if rank == 0:
                parts = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "step": step,
                }
                with contextlib.suppress(OSError if args.flaw == "hides" else ()):
                    save(folder, args.flaw, step, parts | {"rng": states})
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
