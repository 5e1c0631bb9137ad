"""The page of what the reference saver costs: what it concludes from drawn seconds, and that it leaves none of them out."""

from __future__ import annotations

from typing import Any

import pytest

from reports.statistics import Interval
from suite.bench.saver_page import CLAIMS, WORDS, counted, page, seconds_of, verdict


def run(megabytes: int = 200, turns: int = 9, waited: float = 0.5, **factors: float) -> dict[str, Any]:
    """Seconds that vary by a twentieth from turn to turn, in the same way for all; the warm-up took ten times as long."""
    pace = [10.0, *(1 + 0.05 * (turn % 2) for turn in range(turns))]
    seconds = {name: [factors.get(name, 1.0) * one for one in pace] for name in WORDS}
    return {
        "megabytes": megabytes, "bytes": megabytes * 10**6, "taken_utc": "2026-01-01T00:00:00+00:00", "cores": 2, "kernel": "6.1", "file_system": "ext4",
        "waited_percent_before": waited, "repeats": turns + 1, "seconds": seconds,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "bound", "words"),
    [(1.0, 1.25, 1.25, "holds"), (1.1, 1.3, 1.25, "undecided"), (1.26, 1.3, 1.25, "does not hold"), (9, 9, None, "")],
)
def test_the_verdict_is_about_the_whole_interval(low: float, high: float, bound: float | None, words: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high, 0.95, 9), bound) == words


def test_warm_ups_are_left_out_and_runs_of_a_size_are_laid_together() -> None:
    seconds = seconds_of(counted([run(turns=3), run(1000), run(turns=2)], 200))
    assert {len(every) for every in seconds.values()} == {5}
    assert max(map(max, seconds.values())) < 10


def test_a_saver_that_is_too_slow_is_said_to_be() -> None:
    text = page([run(save=1.5, restore=0.9)])
    assert "| save / one file written and synced | 1.50 | 1.50 to 1.50 | 1.25 | does not hold |" in text
    assert "| restore / DCP's load | 0.90 | 0.90 to 0.90 | 1 | holds |" in text
    assert "## 200 MB, 9 turns in 1 run\n" in text


def test_every_number_is_on_the_page_and_the_page_depends_on_nothing_else() -> None:
    runs = [run(turns=2, stall=1.2345), run(1000, turns=2)]
    text = page(runs)
    assert text == page(runs)
    assert "| stall | (12.345) 1.234 1.296 |" in text
    assert text.count("(10.000) 1.000 1.050") == 2 * len(WORDS) - 1
    assert {claim.bound for claim in CLAIMS} == {1.25, 1.0, None}


def test_a_busy_machine_decides_nothing_and_counts_only_where_there_is_no_other() -> None:
    busy = run(waited=80.0, save=1.5)
    assert "| save / one file written and synced | 1.50 | 1.50 to 1.50 | 1.25 | undecided: busy machine |" in page([busy])
    assert "| save / one file written and synced | 1.00 | 1.00 to 1.00 | 1.25 | holds |" in page([busy, run()])
    assert page([busy, run()]).count("80.0 % before") == 1
