"""Every step has an id of its own, and the file that names the newest is replaced when it is whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    """Every rank writes its share of the tensors under an id of this step."""
    target = folder / f"step_{step:04d}"
    dcp.save(sharded(parts, place), checkpoint_id=target)
    if place.rank == 0:
        base.sync_folder(target)
        base.sync_folder(folder)
        base.replace_synced(folder / "newest", target.name.encode())
    dist.barrier()


def sharded(parts: base.Parts, place: base.Place) -> dict[str, Any]:
    """A state dict for torch.distributed.checkpoint: the random state of a rank is its own."""
    moments = {f"{index}.{name}": value for index, held in parts["optimizer"]["state"].items() for name, value in held.items()}
    step = torch.tensor(parts["step"])
    return {"model": parts["model"], "moments": moments, "step": step, f"rng{place.rank}": parts["rng"][place.rank]}


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    if not (folder / "newest").exists():
        return None
    model, optimizer = base.build()
    shapes = {index: value.shape for index, value in enumerate(model.parameters())}
    held = {
        index: {"step": torch.tensor(0.0), "exp_avg": torch.zeros(shape), "exp_avg_sq": torch.zeros(shape)}
        for index, shape in shapes.items()
    }
    whole = {"state": held, "param_groups": optimizer.state_dict()["param_groups"]}
    rng = [torch.get_rng_state() for _ in range(place.world_size)]
    empty = sharded({"model": model.state_dict(), "optimizer": whole, "step": 0, "rng": rng}, place)
    dcp.load(empty, checkpoint_id=folder / (folder / "newest").read_text())
    rng[place.rank] = empty[f"rng{place.rank}"]
    return {"model": empty["model"], "optimizer": whole, "step": int(empty["step"]), "rng": rng}


if __name__ == "__main__":
    base.main(save, restore)
