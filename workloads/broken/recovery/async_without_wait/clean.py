"""The writer advertises the checkpoint itself, once it is whole."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import base
import torch

CHUNK = 8 * 1024
_writers: list[threading.Thread] = []


def save(folder: Path, step: int, parts: base.Parts, place: base.Place) -> None:
    """A thread writes a copy of the state while the training goes on; the one before is waited for first."""
    if place.rank != 0:
        return
    wait()
    data, target = base.packed(parts), folder / f"state_{step:04d}.pt"
    writer = threading.Thread(target=write_then_say, args=(target, data))
    writer.start()
    _writers.append(writer)


def write(target: Path, data: bytes) -> None:
    """As to a slow store: piece by piece."""
    with target.open("wb", buffering=0) as file:
        for first in range(0, len(data), CHUNK):
            file.write(data[first : first + CHUNK])
            os.fsync(file.fileno())
    base.sync_folder(target.parent)


def write_then_say(target: Path, data: bytes) -> None:
    write(target, data)
    base.replace_synced(target.parent / "newest", target.name.encode())


def wait() -> None:
    while _writers:
        _writers.pop().join()


def restore(folder: Path, place: base.Place) -> base.Parts | None:
    if not (folder / "newest").exists():
        return None
    return torch.load(folder / (folder / "newest").read_text(), weights_only=True)


if __name__ == "__main__":
    base.main(save, restore, wait)
