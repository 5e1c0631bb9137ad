"""The file that names the newest checkpoint is replaced, after what it names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base

TRACKER = "latest_checkpointed_iteration.txt"


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank != 0:
        return
    target = folder / f"iter_{step:07d}"
    target.mkdir(exist_ok=True)
    base.write_synced(target / "state.pt", base.packed(parts))
    base.sync_folder(target)
    base.sync_folder(folder)
    base.replace_synced(folder / TRACKER, str(step).encode())


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    if not (folder / TRACKER).exists():
        return None
    return base.load(folder / f"iter_{int((folder / TRACKER).read_text()):07d}" / "state.pt")


if __name__ == "__main__":
    base.main(save, restore)
