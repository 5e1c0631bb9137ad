"""Broken savers in real worlds: each is found with the operation to blame, its sound twin passes, and merging states changes no outcome.

All of them: `python -m suite.recovery.savers` (docs/crash_states.md has its table).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.crash.observed import told_apart
from fixtures.world import Launcher, open_launcher
from suite.recovery import exploring
from suite.recovery.savers import SAVERS, judged, savers


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


@pytest.mark.parametrize(
    ("name", "crash", "operation", "outcome"),
    [
        ("two_files", "process death", "rename checkpoints/.model.pt.partial -> checkpoints/model.pt", "torn"),
        ("remove_then_rename", "process death", "unlink checkpoints/latest.pt", "fresh_start"),
        ("rename_without_sync", "power loss", "rename checkpoints/latest.tmp -> checkpoints/latest.pt", "loud_failure"),
        ("tracker_in_place", "process death", "open checkpoints/latest_checkpointed_iteration.txt", "loud_failure"),
    ],
)
def test_broken_saver_is_found_with_the_operation_to_blame(
    launcher: Launcher, tmp_path: Path, name: str, crash: str, operation: str, outcome: str
) -> None:
    result = judged(launcher, tmp_path, name, sound=False).result

    assert result.outcome == "rejected", result.finding.explanation
    worst = result.finding.details["bad"][0]
    assert (worst["crash"], worst["operation"], worst["outcome"]) == (crash, operation, outcome)


@pytest.mark.parametrize("name", ["child_process", "rename_race"])
def test_sound_twin_passes_at_both_worlds_and_through_a_second_crash(launcher: Launcher, tmp_path: Path, name: str) -> None:
    result = judged(launcher, tmp_path, name, sound=True).result

    assert result.outcome == "accepted", result.finding.explanation
    cut = {(row[0], row[1].split()[0]) for row in result.finding.details["table"]["rows"]}
    assert cut == {(1, "save"), (2, "save"), (2, "restart")}


def test_states_that_a_resume_cannot_tell_apart_have_one_outcome(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state tried by a run of its own gives what merging gave."""
    merged = judged(launcher, tmp_path / "merged", "two_files", sound=False, world_size=1).result
    monkeypatch.setattr(exploring, "told_apart", lambda state, runs: None)
    each = judged(launcher, tmp_path / "each", "two_files", sound=False, world_size=1).result

    def told(details: Any) -> tuple[Any, int, int]:
        rows = details["table"]["rows"]
        return details["outcomes"], sum(row[4] for row in rows), sum(row[6] for row in rows)

    (outcomes, states, runs), (alone, same_states, all_runs) = told(merged.finding.details), told(each.finding.details)
    assert (outcomes, states) == (alone, same_states)
    assert runs < all_runs == states
    assert told_apart.__module__ == "fixtures.crash.observed"


def test_every_saver_has_a_sound_twin() -> None:
    assert len(savers()) == 12
    assert [name for name in savers() if not (SAVERS / name / "clean.toml").exists()] == []
    with pytest.raises(ValueError, match="no saver is called 'nothing'"):
        savers(["nothing"])
