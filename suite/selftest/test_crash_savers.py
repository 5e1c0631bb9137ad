"""Broken savers in real worlds: each is found with the operation to blame, its sound twin passes, and merging states changes no outcome.

All of them: `python -m suite.recovery.savers` (docs/crash_states.md has its table).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.crash.observed import told_apart
from fixtures.criterion import criterion_of, run_part
from fixtures.job import load_job
from fixtures.world import Launcher, open_launcher
from suite.recovery import exploring
from suite.recovery.savers import SAVERS, audit_of, judged, savers
from suite.recovery.test_two_runs import test_two_runs as two_runs


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
        ("moved_while_restoring", "process death", "rename checkpoints/latest.pt -> checkpoints/resuming.pt", "fresh_start"),
        ("rotated_before_tracker", "process death", "unlink checkpoints/step_0004/state.pt", "fresh_start"),
        ("previous_removed_first", "process death", "unlink checkpoints/previous.pt", "fresh_start"),
        ("late_writer", "two runs", "rename checkpoints/.latest.pt.partial -> checkpoints/latest.pt", "loud_failure"),
    ],
)
def test_broken_saver_is_found_with_the_operation_to_blame(
    launcher: Launcher, tmp_path: Path, name: str, crash: str, operation: str, outcome: str
) -> None:
    result = judged(launcher, tmp_path, name, sound=False, world_size=1).result  # rank 0 alone writes

    assert result.outcome == "rejected", result.finding.explanation
    worst = result.finding.details["bad"][0]
    assert (worst["crash"], worst["operation"], worst["outcome"]) == (crash, operation, outcome)


@pytest.mark.parametrize("name", ["child_process", "rename_race"])
def test_sound_twin_passes_at_both_worlds_and_through_a_second_crash(launcher: Launcher, tmp_path: Path, name: str) -> None:
    result = judged(launcher, tmp_path, name, sound=True).result

    assert result.outcome == "accepted", result.finding.explanation
    assert "operations" in result.finding.details["exercised"]["same step saved twice"]
    cut = {(row[0], row[1].split()[0]) for row in result.finding.details["table"]["rows"]}
    assert cut == {(1, "save"), (2, "save"), (2, "restart")}


def test_own_temporary_names_bear_a_run_that_was_given_up_and_the_twin_is_rejected(launcher: Launcher, tmp_path: Path) -> None:
    job, declared = load_job(SAVERS / "late_writer" / "clean.toml"), criterion_of(two_runs)
    assert declared is not None
    audit = audit_of(launcher, tmp_path, job, 2, two_runs)
    as_is = run_part(declared, audit)
    twin = run_part(declared, replace(audit, part="twin"))

    assert as_is.outcome == "accepted", as_is.finding.explanation
    assert twin.outcome == "rejected", twin.finding.explanation
    assert "the run that was given up removed all of checkpoints: fresh start" in twin.finding.explanation
    assert twin.fired


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
    assert len(savers()) == 15
    assert [name for name in savers() if not (SAVERS / name / "clean.toml").exists()] == []
    with pytest.raises(ValueError, match="no saver is called 'nothing'"):
        savers(["nothing"])
