"""Recovery criteria on real worlds: jobs that save or resume wrongly in one way each are found, and the way is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.job import Job
from fixtures.world import open_launcher
from suite.recovery.test_continuation import test_continuation as continuation
from suite.recovery.test_restore import test_restore as restore
from suite.recovery.test_worst_boundary import test_worst_boundary as worst_boundary
from suite.selftest.criterion_runs import JOBS, CriterionRuns, written_job


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CriterionRuns]:
    with open_launcher() as launcher:
        yield CriterionRuns(launcher, tmp_path_factory.mktemp("audits"))


def saver(folder: Path, flaw: str) -> Job:
    """The savers job with one flaw, saving every 3 of 9 steps."""
    job_folder = folder / flaw
    job_folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(JOBS / "savers" / "train.py", job_folder / "train.py")
    return written_job(job_folder, flaw, f"train.py --steps {{steps}} --out {{out}} --flaw {flaw}", steps=9, every=3)


def test_sound_job_passes_all_three_and_twins_are_rejected(runs: CriterionRuns, tmp_path: Path) -> None:
    """A job that saves everything and replaces atomically comes back from every boundary; leaving out a part is noticed."""
    job = saver(tmp_path, "none")

    results = {
        (test.__name__, part): runs.judged(job, test, part)
        for test in (continuation, restore, worst_boundary)
        for part in ("as_is", *(["twin"] if test is not restore else []))
    }

    assert {key: result.outcome for key, result in results.items() if key[1] == "as_is"} == dict.fromkeys(
        [("test_continuation", "as_is"), ("test_restore", "as_is"), ("test_worst_boundary", "as_is")], "accepted"
    )
    assert results["test_continuation", "twin"].outcome == "rejected"
    left_out = {
        part: runs.judged(job, restore, f"twin-{part}").outcome for part in ("weights", "optimizer", "counters", "scheduler", "rng")
    }
    assert left_out == dict.fromkeys(left_out, "rejected")
    absent = {part: runs.judged(job, restore, f"twin-{part}").outcome for part in ("scaler", "position", "ema", "buffers")}
    assert absent == dict.fromkeys(absent, "not_applicable")


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("no_optimizer", "optimizer state"),
        ("no_scheduler", "learning rate"),
        ("no_position", "samples: the resumed run starts the data again from the epoch's beginning"),
        ("no_rng", "RNG"),
    ],
)
def test_lost_part_is_named(runs: CriterionRuns, tmp_path: Path, flaw: str, words: str) -> None:
    """Each part of the state that a job forgets is named by continuation and by restore."""
    job = saver(tmp_path, flaw)

    for test in (continuation, restore):
        result = runs.judged(job, test)
        assert result.outcome == "rejected", result.finding.explanation
        assert words in result.finding.explanation


@pytest.mark.parametrize(
    ("flaw", "outcome", "words"),
    [("in_place", "loud_failure", "latest.pt"), ("remove_first", "fresh_start", "latest.pt"), ("swallow", "fresh_start", "latest.pt")],
)
def test_unsafe_save_is_named_with_its_operation(runs: CriterionRuns, tmp_path: Path, flaw: str, outcome: str, words: str) -> None:
    """Saving in place, removing before saving, and starting over in silence are found, with the file operation to blame."""
    result = runs.judged(saver(tmp_path, flaw), worst_boundary)

    assert result.outcome == "rejected"
    assert "killed before file operation" in result.finding.explanation
    assert words in result.finding.explanation
    assert outcome in result.finding.details["outcomes"]
