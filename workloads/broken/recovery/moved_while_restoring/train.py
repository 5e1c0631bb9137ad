"""While it is restored the checkpoint has another name: a second crash, during recovery, loses it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank == 0:
        base.replace_synced(folder / "latest.pt", base.packed(parts))


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    """Rank 0 takes the checkpoint aside, so that nobody else resumes from it, and puts it back when all have read it."""
    taken, there = folder / "resuming.pt", (folder / "latest.pt").exists()
    base.dist.barrier()
    if place.rank == 0 and there:
        os.rename(folder / "latest.pt", taken)
    base.dist.barrier()
    parts = base.load(taken) if there else None
    base.dist.barrier()
    if place.rank == 0 and there:
        os.rename(taken, folder / "latest.pt")
        base.sync_folder(folder)
    return parts


if __name__ == "__main__":
    base.main(save, restore)
