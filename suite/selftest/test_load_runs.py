"""The outages of the load test on a small job in real worlds: a sound saver survives them, one that hides them or writes in place does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.world import open_launcher
from suite.release.paths import LoadedPath
from suite.release.test_load import outages
from suite.release.test_load import test_load as load
from suite.selftest.criterion_runs import JOBS, CriterionRuns, written_job


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CriterionRuns]:
    with open_launcher() as launcher:
        yield CriterionRuns(launcher, tmp_path_factory.mktemp("load"))


def tried(runs: CriterionRuns, flaw: str) -> dict[str, LoadedPath]:
    command = f"{JOBS}/savers/train.py --steps {{steps}} --out {{out}} --flaw {flaw}"
    job = written_job(runs.folder / flaw, flaw, command, steps=9, every=3)
    return {path.name: path for path in outages(runs.audit(job, load))}


def test_a_sound_saver_survives_a_full_store_and_one_that_goes_away(runs: CriterionRuns) -> None:
    found = tried(runs, "none")

    for name in ("a full store", "a store that goes away"):
        assert found[name].holds, found[name].words
        assert "at the save of step 6 rank 0 exited with code 1" in found[name].words
        assert "then it came back at step 3" in found[name].words
    assert found["no store at the restart"].holds is False, "this job begins anew without a word"


def test_a_saver_that_hides_its_errors_is_found_out(runs: CriterionRuns) -> None:
    found = tried(runs, "hides")

    assert found["a full store"].holds is False
    assert "the save of step 6 was refused, and every rank ended with code 0 without a word of it" in found["a full store"].words


def test_a_saver_that_writes_in_place_loses_what_it_had(runs: CriterionRuns) -> None:
    found = tried(runs, "in_place")

    assert found["a full store"].holds is False
    assert "then it did not come back" in found["a full store"].words
    assert found["a store that goes away"].holds, "a name that cannot be opened is not truncated"
