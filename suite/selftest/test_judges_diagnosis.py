"""What bounds the step, on times made by hand: each cause is named where it is planted, and computing where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.trace import Trace, trace_from_records
from suite.efficiency.diagnosis import CAUSES, bound_by_compute, causes, rate_for
from suite.efficiency.scaling import Room
from suite.selftest.synthetic import MS_NS, ended_well, make_trace
from suite.selftest.test_judges_efficiency import ROOM, STEPS, repeats

Record = dict[str, Any]


def longer(phase: str, ms: Callable[[int, int], float], late: bool = False, device: str = "cpu") -> list[Trace]:
    """Runs of two ranks whose phase takes `ms(rank, step)` more; `late` ranks enter their collective that much later, and the other one waits."""

    def change(record: Record) -> Record:
        if record["kind"] == "backend":
            return {**record, "device": device}
        if record["kind"] != "step":
            return record
        more, most = ms(record["rank"], record["step"]), max(ms(rank, record["step"]) for rank in (0, 1))
        calls = (
            [[op, size, arrive + int(more * MS_NS), done, where] for op, size, arrive, done, where in record["collectives"]]
            if late
            else record["collectives"]
        )
        waits = most - more
        changed = {
            **record,
            phase: record[phase] + more,
            "step_ms": 100.0 + most,
            "exposed_ms": record["exposed_ms"] + waits,
            "collectives": calls,
        }
        return {**changed, "backward_ms": changed["backward_ms"] + waits}

    return [make_trace(steps=STEPS, ranks=2, change=change) for _ in range(6)]


def saving(save_ms: float) -> list[Trace]:
    """Runs that save after steps 4 and 8: the step after each takes longer."""
    runs = longer("other_ms", lambda rank, step: save_ms if step in (5, 9) else 0.0)
    files = [
        {"kind": "file", "rank": 0, "restart": 0, "n": n, "op": "rename", "path": "c", "step": step, "t_ns": n}
        for n, step in enumerate((4, 8), 1)
    ]
    return [_with(run, files) for run in runs]


def _with(run: Trace, files: list[Record]) -> Trace:
    """The same run with file operations recorded."""
    made = make_trace(steps=STEPS, ranks=2, extra=files)
    merged = trace_from_records([], ended=ended_well(2))
    return type(merged)(**{**{name: getattr(run, name) for name in run.__slots__}, "files": made.files})


def test_a_compute_bound_step_is_accepted_with_what_comes_next() -> None:
    finding = bound_by_compute(repeats(2), room=ROOM)

    assert finding.accepted is True, finding.explanation
    assert finding.explanation.startswith("computing bounds the step: 83% of the time at 2 ranks; next is code between the phases with 7%")
    assert finding.details["cause"] == "compute"
    assert sum(row[1] for row in finding.details["table"]["rows"]) == pytest.approx(1.0)
    assert len(finding.details["table"]["rows"]) == len(CAUSES)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (longer("data_wait_ms", lambda rank, step: 150.0), "input bounds the step: 62% of the time at 2 ranks"),
        (longer("other_ms", lambda rank, step: 150.0), "code between the phases bounds the step"),
        (
            longer("other_ms", lambda rank, step: 150.0, device="cuda"),
            "host-to-device copies and other code between the phases bounds the step",
        ),
        (repeats(2, exposed_ms=120.0), "exposed communication bounds the step"),
        (saving(900.0), "checkpointing bounds the step"),
        (longer("forward_ms", lambda rank, step: 150.0 if rank else 0.0, late=True), "one slow rank, 1, bounds the step: 60% of the time"),
        (
            longer("data_wait_ms", lambda rank, step: 0.0 if rank else 150.0, late=True),
            "one slow rank, 0, bounds the step: 60% of the time",
        ),
    ],
    ids=["input", "between", "copies", "communication", "checkpoint", "slow-forward", "slow-input"],
)
def test_the_cause_is_named(runs: list[Trace], words: str) -> None:
    finding = bound_by_compute(runs, room=ROOM)

    assert finding.accepted is False, finding.explanation
    assert finding.explanation.startswith(words)
    assert "cheapest next step: " in finding.explanation


def test_the_remedy_says_what_it_may_gain_and_the_slow_rank_its_phase() -> None:
    slow = bound_by_compute(longer("forward_ms", lambda rank, step: 150.0 if rank else 0.0, late=True), room=ROOM).explanation

    assert "it spends 150.0 ms a step more than they do in forward" in slow
    assert "which may take a step from 250 ms to 100 ms" in slow


def test_shares_add_up_and_a_save_is_not_taken_for_a_slow_rank() -> None:
    found = causes(saving(900.0)[0])

    assert sum(found.values()) == pytest.approx(1.0)
    assert found["checkpoint"] == pytest.approx(1800 / (9 * 100 + 1800), rel=1e-6)
    assert found["slow_rank"] == 0.0


def test_two_causes_that_take_as_much_are_undecided() -> None:
    noisy = [longer("data_wait_ms", lambda rank, step, ms=ms: ms)[0] for ms in (40.0, 120.0, 60.0, 100.0, 70.0, 90.0)]  # type: ignore[misc]

    finding = bound_by_compute(noisy, room=ROOM)
    assert finding.accepted is None
    assert "input or computing bounds the step" in finding.explanation


def test_more_ranks_than_cores_and_broken_runs_decide_nothing() -> None:
    assert bound_by_compute(repeats(4), room=Room(2, "cores")).accepted is None
    assert bound_by_compute([make_trace(steps=STEPS, ranks=2, ended=ended_well(2, rank1=3))] * 6, room=ROOM).accepted is None


def test_the_rate_of_a_slow_link_follows_from_the_job() -> None:
    """The bytes of a step take as many steps as asked for: r = 8 n / (times t)."""
    made = make_trace(steps=STEPS, ranks=2)
    first = made.collectives[made.collectives["rank"] == 0].groupby("step")["bytes"].sum().median()
    rate = rate_for(made, times=4)

    assert rate is not None
    assert 8.0 * first / (rate * 1e6) == pytest.approx(4 * 0.1, rel=0.05)


def test_a_job_that_sends_nothing_has_no_slow_link() -> None:
    assert (
        rate_for(
            make_trace(steps=STEPS, ranks=1, change=lambda record: {**record, "collectives": []} if record["kind"] == "step" else record), 4
        )
        is None
    )
