"""torch.save beside, then a rename: whole after a kill, but after a power loss the name may be there before the data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base
import torch


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank == 0:
        torch.save(parts, folder / "latest.tmp")
        os.replace(folder / "latest.tmp", folder / "latest.pt")


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    return base.load(folder / "latest.pt")


if __name__ == "__main__":
    base.main(save, restore)
