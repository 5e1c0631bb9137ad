"""What a judge made of a made-up trace, asserted: accepted, rejected for these words, or undecided."""

from __future__ import annotations

from typing import Any

from fixtures.trace import Record, Trace
from reports.evidence import Finding
from suite.selftest.synthetic import ended_well, make_trace


def accepted(finding: Finding) -> None:
    """Raises AssertionError, with the explanation, where the claim was not accepted."""
    assert finding.accepted is True, finding.explanation


def rejected(finding: Finding, words: str) -> None:
    """Raises AssertionError where the claim was not rejected, or for other words."""
    assert finding.accepted is False, finding.explanation
    assert words in finding.explanation


def undecided(finding: Finding, words: str) -> None:
    """Raises AssertionError where the judge decided, or said that the claim does not concern the job, or gave other words."""
    assert finding.accepted is None, finding.explanation
    assert not finding.absent
    assert words in finding.explanation


def with_model(**changed: Any) -> Any:
    """A change of make_trace: these keys of the model record."""

    def change(record: Record) -> Record:
        return {**record, **changed} if record["kind"] == "model" else record

    return change


def crashed() -> Trace:
    """Two ranks, of which rank 1 exited with code 1."""
    return make_trace(ranks=2, ended=ended_well(2, rank1=1))
