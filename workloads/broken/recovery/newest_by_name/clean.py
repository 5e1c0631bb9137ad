"""The folder gets its final name when its files are in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base
import torch


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank != 0:
        return
    target = folder / f"step_{step:04d}.tmp"
    target.mkdir()
    for name, part in parts.items():
        base.write_synced(target / f"{name}.pt", base.packed(part))
    base.sync_folder(target)
    os.rename(target, folder / f"step_{step:04d}")
    base.sync_folder(folder)


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    found = max(folder.glob("step_????"), default=None)
    return {name: torch.load(found / f"{name}.pt", weights_only=True) for name in ("model", "optimizer", "step", "rng")} if found else None


if __name__ == "__main__":
    base.main(save, restore)
