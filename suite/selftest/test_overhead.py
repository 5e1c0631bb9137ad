"""The page on what the probe costs: its figures, its targets, what it says where something could not be measured; and one real measurement."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.world import open_launcher
from suite.overhead.command import run_overhead
from suite.overhead.measure import LEVELS, SETTLED, as_json, measure
from suite.overhead.sheet import misses, overhead_page
from suite.overhead.traincheck import CALL, measure_traincheck

DOCS = Path(__file__).resolve().parents[2] / "docs"


def interval(estimate: float) -> dict[str, float]:
    return {"estimate": estimate, "low": estimate * 0.9, "high": estimate * 1.1}


def cost(level: str, share: float | None, instructions: bool = False) -> dict[str, Any]:
    return {
        "level": level, "steps": 40, "step_ms": 100.0, "wall": interval(1.01), "cpu": interval(1.0), "inside": None if share is None else interval(share),
        "probe_ms": None if share is None else 100 * share, "first_ms": None if share is None else 9.0,
        "instructions": interval(1.002) if instructions else None, "not_counted": "" if instructions else "perf_event_open: No such file or directory",
    }  # fmt: skip


def document(share: float, *, instructions: bool = False, traincheck: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    levels = [cost(name, None if level is None else share, instructions) for name, level in LEVELS.items()]
    sizes = [{"million": million, "pairs": 4, "steps": 24, "load": 2.1, "costs": levels} for million in (1, 20)]
    return {"sizes": sizes, "traincheck": list(traincheck), "settled": SETTLED, "machine": "a machine", "commit": "0123456789ab"}


def test_a_target_that_is_missed_is_said() -> None:
    assert misses(document(0.005)) == []
    assert misses(document(0.015)) == ["default at 20 M takes 1.50% of a step, at most 1% is allowed"]
    assert len(misses(document(0.05))) == 4
    assert "- missed: default at 20 M takes 1.50% of a step" in overhead_page(document(0.015))
    assert "All are met." in overhead_page(document(0.005))


def test_the_page_has_every_level_with_its_interval_and_the_control() -> None:
    page = overhead_page(document(0.005))
    assert "| default | 0.50% [0.45%, 0.55%] | 2% | 0.50 | 9.00 | +1.0% [-9.1%, +11.1%] |" in page
    assert "| off again | none |  | 0 | 0 | +1.0% [-9.1%, +11.1%] |" in page
    assert "Not counted on this machine (perf_event_open: No such file or directory)" in page
    assert "| 20 M | full | +0.2% [-9.8%, +10.2%] |" in overhead_page(document(0.005, instructions=True))


def test_another_tool_is_set_beside_it_or_the_reason_why_not() -> None:
    assert "It was not measured here" in overhead_page(document(0.005))
    ran = {"million": 1, "version": "0.2.0", "torch": "2.13.0", "steps": 8, "off_ms": 140.0, "on_ms": 3800.0, "ratio": interval(27.0)}
    failed = {"million": 20, "reason": "traincheck-collect exited with code 1: no"}
    page = overhead_page(document(0.005, traincheck=(ran, failed)))
    assert "| 1 M | 0.2.0, torch 2.13.0 | 140.0 | 3800.0 | 27.0 times [24.3, 29.7] |" in page
    assert "it did not run: traincheck-collect exited with code 1: no" in page


def test_an_environment_without_the_other_tool_is_told(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    found = measure_traincheck(python, tmp_path / "work", 1, 2, 1, lambda _: None)
    assert "could not be started" in found["reason"] or "exited with code" in found["reason"]
    assert CALL.search((DOCS.parent / "suite" / "bench" / "ranks" / "steps.py").read_text()), (
        "the loop's last line is no longer what it is replaced by"
    )


def test_a_measurement_has_all_levels_in_turn(tmp_path: Path) -> None:
    """Of figures on a busy machine nothing is asked but that they are there, and that a level that does more does not cost nothing."""
    said: list[str] = []
    with open_launcher() as launcher:
        costs = measure(launcher, tmp_path, 1, pairs=1, steps=SETTLED + 2, say=said.append)
    assert [one.level for one in costs] == list(LEVELS)
    assert len(said) == len(LEVELS)
    assert [one["inside"] is None for one in as_json(costs)] == [True, True, False, False, False]
    assert all(one["inside"]["estimate"] > 0 for one in as_json(costs)[2:])
    assert {one.steps for one in costs} == {2}


def test_the_page_in_the_docs_is_a_rendering_of_the_numbers_beside_it() -> None:
    stored = json.loads((DOCS / "probe_overhead.json").read_text())
    assert (DOCS / "probe_overhead.md").read_text() == overhead_page(stored)
    assert [one["million"] for one in stored["sizes"]] == [1, 20]


def test_sizes_that_are_not_measured_again_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.with_suffix(".json").write_text(json.dumps(document(0.005)))
    monkeypatch.setattr("suite.overhead.command.measure", lambda *_, **__: [])
    monkeypatch.setattr(
        "suite.overhead.command.as_json", lambda _: [cost(name, None if level is None else 0.004) for name, level in LEVELS.items()]
    )
    assert run_overhead([20], pairs=3, traincheck=None, out=page) == 0
    sizes = json.loads(page.with_suffix(".json").read_text())["sizes"]
    assert [(one["million"], one["pairs"]) for one in sizes] == [(1, 4), (20, 3)]
