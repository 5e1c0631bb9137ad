"""The judges of inputs tell a refusal, a report and a silent mishap apart, on traces made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.audit import Program
from fixtures.trace import Record, Trace, load_trace
from suite.inputs.broken import far_out_is_noticed, malformed_is_stopped, missing_is_refused
from suite.inputs.by_hand import equals_by_hand
from suite.inputs.cases import over_all
from suite.inputs.knowable import cutoff_changes_nothing, late_changes_nothing
from suite.selftest.synthetic import ended_well, make_trace, sample_of, write_trace

REPORT = {
    "kind": "malformed", "input": "events", "path": "/data/events.parquet", "altered": 2, "rows": [40, 90], "entities": ["UA1/EWR-IAH", "B62/JFK-BOS"],
    "columns": ["delay_minutes"], "values": ["inf"],
}  # fmt: skip


def answer(folder: Path, *, log: str, steps: int = 0, codes: tuple[int, int] = (1, 1), **overrides: Any) -> Trace:
    """A run on damaged inputs: what it wrote, how many steps it made and how its two ranks ended."""
    ended = ended_well(2, rank0=codes[0], rank1=codes[1])
    write_trace(folder, ranks=2, steps=steps, spec={"damage_report": REPORT}, ended=ended, **overrides)
    for rank in (0, 1):
        (folder / f"rank{rank}.log").write_text(log)
    return load_trace(folder)


@pytest.mark.parametrize(
    "log", ["ValueError: record UA1/EWR-IAH has no time", "bad value in column delay_minutes", "error: row 41 is broken"]
)
def test_refusal_that_names_the_record(tmp_path: Path, log: str) -> None:
    """Every rank stops before its first step and names an entity, a column or a row: accepted."""
    clean = make_trace(ranks=2)

    finding = malformed_is_stopped(clean, answer(tmp_path / "run", log=log), clean)

    assert finding.accepted is True
    assert "every rank stopped before its first step" in finding.explanation


@pytest.mark.parametrize(
    ("log", "steps", "codes", "words"),
    [
        (
            "IndexError: list index out of range",
            0,
            (1, 1),
            "without naming it: rank 0 exited with code 1: 'IndexError: list index out of range'",
        ),
        ("UA1/EWR-IAH", 0, (1, 0), "rank 1 exited with code 0 although it made no step"),
        ("UA1/EWR-IAH broken", 3, (1, 1), "stopped only after 3 steps"),
        ("all good", 6, (0, 0), "completed without a word"),
    ],
)
def test_bad_answers_are_named(tmp_path: Path, log: str, steps: int, codes: tuple[int, int], words: str) -> None:
    """A nameless crash, an exit code 0, a late stop and silence are each rejected in their own words."""
    clean = make_trace(ranks=2)

    finding = malformed_is_stopped(clean, answer(tmp_path / "run", log=log, steps=steps, codes=codes), clean)

    assert finding.accepted is False
    assert words in finding.explanation


def test_report_and_leave_out_is_accepted(tmp_path: Path) -> None:
    """A job may drop broken records, if it says so and trains on nothing else than a clean run does."""
    clean = make_trace(ranks=2)

    finding = malformed_is_stopped(clean, answer(tmp_path / "run", log="skipped 2 records: UA1/EWR-IAH, ...", steps=5, codes=(0, 0)), clean)

    assert finding.accepted is True
    assert "reported them (named UA1/EWR-IAH" in finding.explanation


def test_words_that_a_clean_run_writes_too_name_nothing(tmp_path: Path) -> None:
    """A column that is printed in every run is no report of damage."""
    folder = write_trace(tmp_path / "clean", ranks=2)
    (folder / "rank0.log").write_text("features: delay_minutes\n")

    finding = malformed_is_stopped(
        load_trace(folder), answer(tmp_path / "run", log="features: delay_minutes\n", steps=6, codes=(0, 0)), make_trace(ranks=2)
    )

    assert finding.accepted is False
    assert "without a word" in finding.explanation


def poisoned(record: Record) -> Record:
    """Rank 1 trains on a sample of its own in step 2, and its loss is no number any more."""
    if record["kind"] == "step" and record["step"] == 2 and record["rank"] == 1:
        return {**record, "samples": [sample_of(9000), *record["samples"][1:]], "losses": [float("nan")], "input_high": 1e6}
    return record


def test_poisoned_step_is_rejected(tmp_path: Path) -> None:
    """A damaged sample that reaches the model is found with step and rank, whatever the validation of the files says."""
    clean = make_trace(ranks=2)
    refusal = answer(tmp_path / "run", log="UA1/EWR-IAH is broken")

    malformed = malformed_is_stopped(clean, refusal, make_trace(ranks=2, change=poisoned))
    far_out = far_out_is_noticed(clean, refusal, make_trace(ranks=2, change=poisoned))

    assert malformed.accepted is False
    assert (
        "trained on 1 samples that no clean run has, the first in step 2 on rank 1; the loss is no finite number" in malformed.explanation
    )
    assert far_out.accepted is False
    assert "was fed 1e+06 in step 2 on rank 1" in far_out.explanation


def test_clipped_and_reported_is_accepted(tmp_path: Path) -> None:
    """A value clipped to a declared bound, a little beyond what a clean run shows, is a fair answer when it is reported."""
    clean = make_trace(ranks=2)

    told = answer(tmp_path / "a", log="out of range: delay_minutes of UA1/EWR-IAH", steps=6, codes=(0, 0), input_high=2.5)
    fed = answer(tmp_path / "b", log="out of range: delay_minutes of UA1/EWR-IAH", steps=6, codes=(0, 0), input_high=2500.0)

    assert far_out_is_noticed(clean, told, clean).accepted is True
    assert far_out_is_noticed(clean, fed, clean).accepted is False


@pytest.mark.parametrize(
    ("log", "steps", "codes", "accepted", "words"),
    [
        ("FileNotFoundError: /data/events.parquet", 0, (2, 2), True, "named events.parquet"),
        ("something is wrong", 0, (1, 1), False, "without naming it"),
        ("", 0, (0, 0), False, "rank 0 exited with code 0 although it made no step"),
        ("events.parquet is gone, going on", 6, (0, 0), False, "went on without it for 6 steps"),
    ],
)
def test_missing(tmp_path: Path, log: str, steps: int, codes: tuple[int, int], accepted: bool, words: str) -> None:
    """An absent input is refused by name and by exit code, and not trained without."""
    finding = missing_is_refused(answer(tmp_path / "run", log=log, steps=steps, codes=codes))

    assert finding.accepted is accepted
    assert words in finding.explanation


def test_late_records_change_no_sample() -> None:
    """Equal ledgers are accepted; one sample that differs is named by step, rank and row."""
    spec = {"damage_report": {**REPORT, "kind": "late"}}
    one, same = make_trace(ranks=2, spec=spec), make_trace(ranks=2, spec=spec)

    assert late_changes_nothing(one, same).accepted is True
    leaked = late_changes_nothing(one, make_trace(ranks=2, spec=spec, change=poisoned))
    assert leaked.accepted is False
    assert "1 of 48 samples differ, the first in step 2 on rank 1 (row 0)" in leaked.explanation


def test_cutoff_needs_a_whole_epoch_and_finds_the_future() -> None:
    """The run up to the cutoff is part of the run on everything; a run that has not come round its data decides nothing."""
    spec = {"damage_report": {**REPORT, "kind": "cutoff", "cutoff": "2013-09-20"}}

    def around(rank: int, step: int) -> list[str]:
        return [sample_of((step % 5) * 8 + rank * 4 + row) for row in range(4)]

    whole, cut = make_trace(ranks=2, samples=around), make_trace(ranks=2, steps=3, samples=around, spec=spec)
    future = make_trace(ranks=2, steps=3, samples=around, spec=spec, change=poisoned)

    assert cutoff_changes_nothing([whole], cut).accepted is True
    assert cutoff_changes_nothing([make_trace(ranks=2)], cut).accepted is None
    leaked = cutoff_changes_nothing([whole], future)
    assert leaked.accepted is False
    assert "change when what became available after it is removed: 1 of 24" in leaked.explanation


def test_hand_calculation(tmp_path: Path) -> None:
    """Numbers agree within the tolerance, everything else exactly; what is missing is not equal."""
    expected = tmp_path / "expected.json"
    expected.write_text(json.dumps({"features": [0.25, 1.0], "label": 1, "known": None, "late": False}))
    right = Program(0, "", {"hand.json": b'{"features": [0.2500001, 1], "label": 1, "known": null, "late": false, "more": 3}'}, {})
    wrong = replace(right, files={"hand.json": b'{"features": [0.5, 1.0], "label": 1, "late": 0}'})

    accepted = equals_by_hand(right, produces="hand.json", expected=expected, tolerance=1e-6)
    rejected = equals_by_hand(wrong, produces="hand.json", expected=expected, tolerance=1e-6)

    assert accepted.accepted is True
    assert rejected.accepted is False
    assert "features[0]: 0.25 by hand, 0.5 by the job (3 of 5 fields differ" in rejected.explanation


def test_program_that_fails_is_quoted(tmp_path: Path) -> None:
    """A program that ends with an error or writes nothing is quoted."""
    expected = tmp_path / "expected.json"
    expected.write_text("{}")

    failed = equals_by_hand(
        Program(3, "loading\nKeyError: 'tail'", {"hand.json": None}, {}), produces="hand.json", expected=expected, tolerance=0
    )

    assert failed.accepted is False
    assert "exited with code 3" in failed.explanation
    assert "KeyError: 'tail'" in failed.explanation


def test_first_objection_wins_over_acceptances(tmp_path: Path) -> None:
    """Of several inputs the one that is not handled decides."""
    fine = answer(tmp_path / "a", log="no such file: /data/events.parquet")
    bad = answer(tmp_path / "b", log="", codes=(0, 0))

    finding = over_all(missing_is_refused, [(fine,), (bad,)])

    assert finding.accepted is False
    assert over_all(missing_is_refused, []).accepted is None
