"""What the broken savers share: a small job with dropout on a few ranks, whose way of saving and restoring is given to it.

A saver is two functions. `save(folder, step, parts, place)` is called on every rank after every second step, `restore(folder, place)` returns
what it saved, or None. `parts` holds model, optimizer, step, and the random state of every rank.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY, ROWS, SAMPLES = 2, 16, 64
Parts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands."""

    rank: int
    world_size: int


def main(
    save: Callable[[Path, int, Parts, Place], None],
    restore: Callable[[Path, Place], Parts | None],
    leave: Callable[[], None] = lambda: None,
) -> None:
    """Train; `leave` is called before the group is taken down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    place, folder = Place(dist.get_rank(), dist.get_world_size()), options.out / "checkpoints"
    if place.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    model, optimizer = build()
    step = 0
    torch.manual_seed(100 + place.rank)
    if options.resume and (parts := restore(folder, place)) is not None:
        model.load_state_dict(parts["model"])
        optimizer.load_state_dict(parts["optimizer"])
        step = int(parts["step"])
        torch.set_rng_state(parts["rng"][place.rank])
    replicated = DistributedDataParallel(model)
    while step < options.steps:
        x, y = batch(step, place)
        loss = torch.nn.functional.mse_loss(replicated(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % SAVE_EVERY == 0:
            save(
                folder,
                step,
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "rng": random_states(place)},
                place,
            )
    leave()
    dist.destroy_process_group()


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The same model on every rank."""
    torch.manual_seed(7)
    layers = [
        torch.nn.Linear(1, 48),
        torch.nn.Dropout(0.2),
        torch.nn.Tanh(),
        torch.nn.Linear(48, 48),
        torch.nn.Tanh(),
        torch.nn.Linear(48, 1),
    ]
    model = torch.nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(step: int, place: Place) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's rows of the global batch: numbers of samples as inputs, so that another place in the data shows."""
    rows = ROWS // place.world_size
    first = (step * ROWS + place.rank * rows) % SAMPLES
    x = torch.arange(first, first + rows, dtype=torch.float32).unsqueeze(1) / SAMPLES
    return x, torch.sin(6 * x)


def random_states(place: Place) -> list[torch.Tensor]:
    states: list[Any] = [None] * place.world_size
    dist.all_gather_object(states, torch.get_rng_state())
    return states


# ---- what a saver that does it right is made of


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has its data."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, data: bytes) -> None:
    """The new content under a name, or the old one, whatever happens."""
    partial = path.with_name(f".{path.name}.partial")
    write_synced(partial, data)
    os.replace(partial, path)
    sync_folder(path.parent)


def packed(parts: Any) -> bytes:
    """As torch.save writes it."""
    import io

    buffer = io.BytesIO()
    torch.save(parts, buffer)
    return buffer.getvalue()


def load(path: Path) -> Parts | None:
    """What is in a file, None where there is none."""
    return torch.load(path, weights_only=True) if path.exists() else None
