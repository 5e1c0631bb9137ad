"""Checkpoints: killed before any one file operation of a save, what is on disk is the new or the previous state, whole."""

import builtins
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workloads import checkpoint
from workloads.group import GroupFailure

IDENTITY = {"data": "d", "code": "c"}
OPERATIONS = ("mkdir", "fsync", "rename", "unlink", "rmdir")


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the code under test may see it."""


class Operations:
    """Counts file operations and kills before the one that is asked for."""

    def __init__(self, kill_before: int | None) -> None:
        self.count, self.kill_before = 0, kill_before

    def happen(self) -> None:
        self.count += 1
        if self.count == self.kill_before:
            raise Killed

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.happen()
            return function(*args, **kwargs)

        return counted


class CountedFile:
    """A file whose writes count, and where a kill before a write leaves half of it."""

    def __init__(self, file: Any, operations: Operations) -> None:
        self.file, self.operations = file, operations

    def write(self, data: Any) -> int:
        try:
            self.operations.happen()
        except Killed:
            self.file.write(bytes(data)[: len(data) // 2])
            raise
        written: int = self.file.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "CountedFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], Operations]:
    """Install counting operations; the returned function starts anew."""

    def watch(kill_before: int | None) -> Operations:
        operations = Operations(kill_before)
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, operations.around(originals[name]))

        def counted_open(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "w" not in mode:
                return originals["open"](path, mode, *args, **kwargs)
            operations.happen()
            return CountedFile(originals["open"](path, mode, *args, **kwargs), operations)

        monkeypatch.setattr(builtins, "open", counted_open)
        return operations

    originals: dict[str, Any] = {name: getattr(os, name) for name in OPERATIONS} | {"open": builtins.open}
    return watch


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture(autouse=True)
def random_numbers_as_before() -> Iterator[None]:
    """What these tests do to the generators stays here."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def save(directory: Path, step: int, keep: int = 2) -> None:
    shared = {"model": {"weight": torch.full((3,), float(step))}, "training": {"step": step}}
    checkpoint.save(directory, step, shared, {"draws": step}, identity=IDENTITY, keep=keep)


def restored_step(directory: Path) -> int | None:
    """The step on disk, after checking that every part is of that step."""
    found = checkpoint.restore(directory, lambda line: None)
    if found is None:
        return None
    parts = {found.step, found.shared["training"]["step"], found.own["draws"], *found.shared["model"]["weight"].int().tolist()}
    assert parts == {found.step}, f"parts of several steps in one checkpoint: {parts}"
    return found.step


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_kill_before_any_operation_leaves_the_new_or_the_previous_state(
    tmp_path: Path, watched: Callable[[int | None], Operations]
) -> None:
    seen: list[int] = []
    for kill_before in range(1, 200):
        directory = tmp_path / str(kill_before) / "checkpoints"
        watched(None)
        save(directory, 1)
        save(directory, 2)
        operations = watched(kill_before)
        try:
            save(directory, 3)
        except Killed:
            seen.append(restored_step(directory) or 0)
            watched(None)
            save(directory, 3)
            assert restored_step(directory) == 3
            save(directory, 4)
            assert names(directory) == ["step_00000003", "step_00000004"], "leftovers of the killed save stayed"
            continue
        assert operations.count < kill_before
        break
    assert len(seen) >= 20, f"only {len(seen)} operations were seen: something is written that is not watched"
    assert set(seen) == {2, 3}
    assert seen == sorted(seen), "once the new state is advertised it stays"


def test_nothing_on_disk_starts_from_step_0_and_says_so(directory: Path) -> None:
    said: list[str] = []
    assert checkpoint.restore(directory, said.append) is None
    assert said == ["no complete checkpoint: starting from step 0"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "manifest_cut", "manifest_changed", "empty"])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_word(directory: Path, damage: str) -> None:
    save(directory, 1)
    save(directory, 2)
    newest = directory / "step_00000002"
    part, manifest = newest / "model.bin", newest / "manifest.json"
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-7])
    elif damage == "flipped":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    elif damage == "missing":
        part.unlink()
    elif damage == "manifest_cut":
        manifest.write_bytes(manifest.read_bytes()[:40])
    elif damage == "manifest_changed":
        manifest.write_text(manifest.read_text().replace('"world_size": 1', '"world_size": 2'))
    else:
        for file in newest.iterdir():
            file.unlink()
    said: list[str] = []
    found = checkpoint.restore(directory, said.append)
    assert found is not None
    assert found.step == 1
    assert "step_00000002 is damaged" in said[0]
    assert "falling back to step 1" in said[0]
    assert said[1] == "resumed from step 1"
    save(directory, 2)
    assert restored_step(directory) == 2, "a damaged step can be saved again"


def test_no_whole_checkpoint_among_damaged_ones_stops_instead_of_starting_over(directory: Path) -> None:
    save(directory, 1)
    (directory / "step_00000001" / "model.bin").unlink()
    with pytest.raises(GroupFailure, match=r"step_00000001 is damaged \(model.bin cannot be read.*move the directory away"):
        checkpoint.restore(directory, lambda line: None)


def test_rotation_keeps_the_last_whole_checkpoint_when_newer_ones_are_damaged(directory: Path) -> None:
    for step in (1, 2, 3):
        save(directory, step, keep=3)
    for step in (2, 3):
        (directory / f"step_0000000{step}" / "model.bin").write_bytes(b"")
    save(directory, 4, keep=2)
    assert names(directory) == ["step_00000001", "step_00000002", "step_00000003", "step_00000004"]
    save(directory, 5, keep=2)
    assert names(directory) == ["step_00000004", "step_00000005"]


def test_saving_a_step_twice_changes_nothing(directory: Path, watched: Callable[[int | None], Operations]) -> None:
    save(directory, 1)
    before = {path: path.read_bytes() for path in directory.rglob("*.*")}
    operations = watched(None)
    save(directory, 1)
    assert operations.count == 0
    assert {path: path.read_bytes() for path in directory.rglob("*.*")} == before


def test_a_full_disk_fails_loudly_and_keeps_what_was_there(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(directory, 1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GroupFailure, match=r"No space left on device.*--resume"):
        save(directory, 2)
    monkeypatch.undo()
    assert restored_step(directory) == 1


def test_random_generators_continue_where_they_were() -> None:
    device = torch.device("cpu")
    checkpoint.seed_rank(0, 1)
    np.random.standard_normal()
    state = checkpoint.random_state(device)
    drawn = random.random(), np.random.standard_normal(3).tolist(), torch.rand(3).tolist()
    checkpoint.seed_rank(9, 9)
    checkpoint.set_random_state(state, device)
    assert (random.random(), np.random.standard_normal(3).tolist(), torch.rand(3).tolist()) == drawn


def test_ranks_and_steps_are_seeded_apart() -> None:
    draws = set()
    for rank in range(3):
        for step in (0, 6):
            checkpoint.seed_rank(0, rank, step)
            draws.add((random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert len(draws) == 6
