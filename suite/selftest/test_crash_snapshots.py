"""A recording made of snapshots: its operations give back the folder, every state of it was seen, and what happened at once stays together."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fixtures.crash.layout import BEFORE, REPLAY, WRITTEN, check_replay
from fixtures.crash.operations import LOG, Log, read_log
from fixtures.crash.progress import progress, requirements
from fixtures.crash.snapshots import SNAPSHOTS
from fixtures.crash.states import Bounds, States, crash_states

PATH = Path(__file__).resolve().parents[2] / "fixtures" / "probe" / "rankproof_probe" / "snapshots.py"
BIG = b"x" * 20_000


def load() -> ModuleType:
    """The probe's module by itself, as ranks have it by path."""
    spec = importlib.util.spec_from_file_location("rankproof_snapshots", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


snapshots = load()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def recorded(place: Path, *acts: Callable[[Path], object]) -> Log:
    """Snapshots as the probe takes them, one before each act; `out` begins with the file `old`."""
    out = place / "out"
    out.mkdir(parents=True)
    (out / "old").write_bytes(b"old")
    shutil.copytree(out, place / BEFORE)
    for index, act in enumerate(acts):
        snapshots.take(str(place / SNAPSHOTS), str(out), {"rank": 0, "op": "act", "path": "", "to": None, "t_ns": index + 1})
        act(out)
    trace = place / "trace"
    trace.mkdir()
    check_replay(trace, out)
    assert '"differences": []' in (trace / REPLAY).read_text()
    assert (place / WRITTEN).exists()
    return read_log(trace / LOG)


def states(log: Log) -> States:
    part = progress(log, requirements(log, {}), 0, len(log.operations))
    return crash_states(log, part, Bounds(power_loss=False))


def words(log: Log) -> list[str]:
    return [one.words for one in log.operations]


def test_each_way_of_changing_a_file_is_told_apart(tmp_path: Path) -> None:
    log = recorded(
        tmp_path,
        lambda out: (out / "new").touch(),
        lambda out: (out / "new").write_bytes(b"abc"),
        lambda out: append(out / "new", b"def"),
        lambda out: os.truncate(out / "new", 2),
        lambda out: os.rename(out / "new", out / "named"),
        lambda out: os.link(out / "named", out / "also"),
        lambda out: os.symlink("named", out / "pointer"),
        lambda out: os.replace(out / "also", out / "old"),
        lambda out: (out / "folder").mkdir(),
        lambda out: (out / "folder").rename(out / "moved"),
        lambda out: (out / "moved").rmdir(),
        lambda out: (out / "named").unlink(),
    )
    assert words(log) == [
        "open new", "write new (3 bytes at 0)", "write new (3 bytes at 3)", "truncate new to 2", "rename new -> named", "link named -> also",
        "symlink named -> pointer", "rename also -> old", "mkdir folder", "rename folder -> moved", "rmdir moved", "unlink named",
    ]  # fmt: skip
    assert (log.how, log.causal) == ("python", False)
    assert any("loss of power" in said for said in log.blind)


def test_a_growing_file_is_cut_short_too(tmp_path: Path) -> None:
    log = recorded(tmp_path, lambda out: (out / "new").touch(), lambda out: (out / "new").write_bytes(BIG))
    sizes = {sum(piece[0] for piece in one.tree.contents["file0"].pieces) for one in states(log).states if "new" in one.tree.entries}
    assert sizes == {0, 4096, 8192, 16384, len(BIG)}


def test_of_what_happened_at_once_no_part_is_taken_for_a_state(tmp_path: Path) -> None:
    def at_once(out: Path) -> None:
        (out / "old").unlink()
        (out / "new").write_bytes(BIG)

    log = recorded(tmp_path, at_once)
    assert {tuple(sorted(one.described)) for one in states(log).states} == {("old",), ("new",)}


def test_a_run_that_took_no_snapshot_has_no_recording(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    check_replay(tmp_path, tmp_path / "out")
    assert not (tmp_path / LOG).exists()


def test_snapshots_are_taken_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(snapshots.FOLDER, raising=False)
    assert snapshots.asked() is None
    monkeypatch.setenv(snapshots.FOLDER, f"/where{os.pathsep}/of")
    assert snapshots.asked() == ("/where", "/of")
