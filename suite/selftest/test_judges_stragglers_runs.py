"""The slow rank in real worlds of two ranks: constant, in backward, waiting for data, now and then, in turns, and nobody where all are slow."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fixtures.faults import Fault
from fixtures.job import load_job
from fixtures.world import open_launcher
from reports.evidence import Finding
from suite.selftest.criterion_runs import JOBS, CriterionRuns
from suite.stragglers.slow_rank import nobody_is_slow
from suite.stragglers.test_slow_rank import test_slow_rank as slow_rank


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CriterionRuns]:
    with open_launcher() as launcher:
        yield CriterionRuns(launcher, tmp_path_factory.mktemp("audits"))


def judged(runs: CriterionRuns, *faults: Fault, steps: int = 24) -> Finding:
    """The judge's finding on one run of the toy job under these faults."""
    audit = runs.audit(load_job(JOBS / "toy" / "job.toml"), slow_rank)
    trace = audit.run(world_size=2, steps=steps, level="timing", faults=faults)
    finding = nobody_is_slow([trace], bound=0.10, cores=os.cpu_count() or 1)
    if finding.accepted is None and "the machine was busy" in finding.explanation:
        pytest.skip(finding.explanation)
    return finding


@pytest.mark.parametrize(("where", "words"), [("backward", "backward"), ("data", "waiting for data"), ("forward", "forward")])
def test_constant_delay_is_named_with_its_phase(runs: CriterionRuns, where: str, words: str) -> None:
    """Rank 1 is 40 ms slower in one phase of every step."""
    finding = judged(runs, Fault("sleep", rank=1, ms=40, where=where))

    assert finding.accepted is False
    assert "rank 1 makes the others wait" in finding.explanation
    assert f"more than they do in {words}" in finding.explanation


def test_one_step_in_twenty_is_named(runs: CriterionRuns) -> None:
    """Rank 0 is 300 ms late in one step of twenty, over 200 steps."""
    finding = judged(runs, Fault("sleep", rank=0, ms=300, where="backward", every=20, from_step=7), steps=200)

    assert finding.accepted is False
    assert "rank 0 makes the others wait now and then" in finding.explanation


def test_turns_are_named(runs: CriterionRuns) -> None:
    """Rank 0 is late in odd steps, rank 1 in even ones."""
    late = [Fault("sleep", rank=rank, ms=60, where="backward", every=2, from_step=1 + rank) for rank in (0, 1)]

    finding = judged(runs, *late, steps=40)

    assert finding.accepted is False
    assert "take turns" in finding.explanation


def test_uniform_slowdown_names_nobody(runs: CriterionRuns) -> None:
    """All ranks are 60 ms slower in every step; nobody makes the others wait."""
    finding = judged(runs, Fault("sleep", ms=60, where="backward"))

    assert finding.accepted is not False, finding.explanation
