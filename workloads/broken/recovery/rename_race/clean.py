"""One rank publishes the staging folder, after all ranks have said that they are done."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base
import torch
import torch.distributed as dist


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    """Every rank writes its file into one staging folder. Rank 0 renames it when all are done."""
    staging, final = folder / f"step_{step:04d}.tmp", folder / f"step_{step:04d}"
    staging.mkdir(exist_ok=True)
    base.write_synced(staging / f"rank{place.rank}.pt", base.packed(parts))
    dist.barrier()
    if place.rank == 0:
        base.sync_folder(staging)
        os.rename(staging, final)
        base.sync_folder(folder)
    dist.barrier()


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    found = max(folder.glob("step_????"), default=None)
    return torch.load(found / f"rank{place.rank}.pt", weights_only=True) if found else None


if __name__ == "__main__":
    base.main(save, restore)
