"""Model and optimizer are two files, each replaced as it should be: between the two, a model of one step and an optimizer of another."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    if place.rank == 0:
        base.replace_synced(folder / "model.pt", base.packed({"model": parts["model"]}))
        base.replace_synced(folder / "training.pt", base.packed({name: parts[name] for name in ("optimizer", "step", "rng")}))


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    model, training = base.load(folder / "model.pt"), base.load(folder / "training.pt")
    return {**model, **training} if model and training else None


if __name__ == "__main__":
    base.main(save, restore)
