"""Each save has a temporary name that no other run has: what is late can only publish its own file, which is whole."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank == 0:
        partial = folder / f".latest.{secrets.token_hex(8)}.partial"
        base.write_synced(partial, base.packed(parts))
        os.replace(partial, folder / "latest.pt")
        base.sync_folder(folder)


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    return base.load(folder / "latest.pt")


if __name__ == "__main__":
    base.main(save, restore)
