"""Damage to a checkpoint store: the newest checkpoint is found whatever it is called, and only the damage that was asked for is done."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fixtures.checkpoint_damage import NothingToDamage, checkpoints, damage_checkpoint, in_numbers
from fixtures.faults import Fault
from fixtures.store import failing_store


def store(folder: Path, *, shards: int = 2, saves: int = 2) -> Path:
    """Two checkpoints of two shards and a pointer that is written last."""
    for save in range(saves):
        (folder / f"step_{save}").mkdir(parents=True)
        for shard in range(shards):
            path = folder / f"step_{save}" / f"shard{shard}.bin"
            path.write_bytes(bytes([save * 16 + shard]) * (100 + shard))
            os.utime(path, (save, save))
    (folder / "latest").write_text(f"step_{saves - 1}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_newest_checkpoint_is_not_the_pointer(tmp_path: Path) -> None:
    assert [entry.name for entry in checkpoints(store(tmp_path))] == ["step_1", "step_0"]


@pytest.mark.parametrize(
    ("kind", "altered"),
    [
        ("checkpoint_flip", ["step_1/shard1.bin"]),
        ("checkpoint_truncate", ["step_1/shard1.bin"]),
        ("checkpoint_swap", ["step_1/shard1.bin", "step_1/shard0.bin"]),
        ("checkpoint_stale", ["step_1/shard1.bin"]),
        ("checkpoint_lost", ["step_1"]),
    ],
)
def test_each_damage_alters_what_it_names(tmp_path: Path, kind: str, altered: list[str]) -> None:
    before = content(store(tmp_path))

    assert damage_checkpoint(tmp_path, Fault(kind)) == altered
    after = content(tmp_path)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed
    assert all(name.startswith(tuple(altered)) for name in changed)


def test_one_flipped_bit_is_one(tmp_path: Path) -> None:
    before = content(store(tmp_path))["step_1/shard1.bin"]
    damage_checkpoint(tmp_path, Fault("checkpoint_flip"))
    after = content(tmp_path)["step_1/shard1.bin"]

    assert sum((one ^ two).bit_count() for one, two in zip(before, after, strict=True)) == 1


def test_the_flipped_bit_lies_in_numbers_where_a_file_has_any() -> None:
    """Padding and names are passed over: a checkpoint in which they were altered is as good as before."""
    numbers = random.Random(0).randbytes(4096)
    padded = b"name: weight\n" * 2000 + numbers + bytes(60_000)
    assert 26_000 <= in_numbers(padded) < 26_000 + len(numbers)
    assert in_numbers(bytes(1000)) == 500
    assert in_numbers(b"x") == 0


def test_what_cannot_be_damaged_is_said(tmp_path: Path) -> None:
    """A job with one file per checkpoint, and one checkpoint, has no shards to exchange and no older one to take."""
    store(tmp_path, shards=1, saves=1)
    for kind, words in (
        ("checkpoint_swap", "no two files"),
        ("checkpoint_stale", "no second checkpoint"),
        ("checkpoint_melt", "unknown fault"),
    ):
        with pytest.raises(NothingToDamage, match=words):
            damage_checkpoint(tmp_path, Fault(kind))
    with pytest.raises(NothingToDamage, match="no file"):
        damage_checkpoint(tmp_path / "nowhere", Fault("checkpoint_flip"))


def test_a_failing_store_leaves_plain_files(tmp_path: Path) -> None:
    """Whether or not this machine may mount: what was there before is there during, and what was written stays after."""
    store(tmp_path / "checkpoints")
    with failing_store(tmp_path / "checkpoints", [Fault("store_full", step=8)]):
        assert (tmp_path / "checkpoints" / "latest").read_text() == "step_1"
        (tmp_path / "checkpoints" / "new").write_text("here")

    assert (tmp_path / "checkpoints" / "new").read_text() == "here"
    assert not os.path.ismount(tmp_path / "checkpoints")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
