"""The latest checkpoint replaces the one before; where there is none, that one stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank != 0:
        return
    latest, previous = folder / "latest.pt", folder / "previous.pt"
    base.write_synced(folder / "partial", base.packed(parts))
    if latest.exists():
        os.replace(latest, previous)
    os.rename(folder / "partial", latest)
    base.sync_folder(folder)


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    return base.load(folder / "latest.pt") or base.load(folder / "previous.pt")


if __name__ == "__main__":
    base.main(save, restore)
