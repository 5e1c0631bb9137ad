"""The judges of recovery tell outcomes apart on traces made by hand: each kind of loss is named for what it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.boundaries import Attempt, Boundary, boundaries_of, spread, survives_every_boundary
from suite.recovery.continuation import continues
from suite.recovery.restore import Restored, restores
from suite.recovery.returns import come_back
from suite.selftest.synthetic import ended_well, make_trace, sample_of

EVERY, STEPS = 4, 12


def control_run(**overrides: Any) -> Trace:
    """Twelve steps without interruption; optimizer state and a weight of its own at every step."""
    return make_trace(steps=STEPS, ranks=2, optimizer_digest=lambda rank, step: f"{step + 500:016x}", **overrides)


def resumed_run(
    step: int, change: Callable[[Record], Record | None] | None = None, steps: int = STEPS, ended: dict[str, Any] | None = None
) -> Trace:
    """A run that came back with the state of `step` and went on to the end, its own steps counted from 1."""

    def moved(record: Record) -> Record | None:
        if record["kind"] == "start":
            record = {
                **record,
                "param_digest": f"{step:016x}",
                "rng": f"{step * 100 + record['rank']:016x}",
                "optimizer_digest": f"{step + 500:016x}",
            }
        if record["kind"] == "step":
            if record["step"] <= step:
                return None
            record = {**record, "step": record["step"] - step}
        return change(record) if change else record

    return make_trace(steps=steps, ranks=2, change=moved, ended=ended, optimizer_digest=lambda rank, step: f"{step + 500:016x}")


def killed_run(done: int = 6, step: int | None = 7, operation: int | None = None) -> Trace:
    """A run whose rank 1 was killed after `done` steps."""
    fault = {
        "kind": "fault",
        "rank": 1,
        "fault": {"kind": "kill", "rank": 1, "step": step, "operation": operation},
        "step": step,
        "t_ns": 7_000_000_000,
    }
    return make_trace(steps=done, ranks=2, extra=(fault,), ended=ended_well(2, rank1=-9))


def test_equal_run_is_accepted() -> None:
    """A run that came back at the last checkpoint and repeats the control is accepted, with what was lost and what was compared."""
    finding = continues(control_run(), killed_run(), resumed_run(4), every=EVERY)

    assert finding.accepted is True
    assert finding.samples == 8
    assert "came back at step 4" in finding.explanation
    assert "2 steps of work lost" in finding.explanation
    assert [event["event"] for event in finding.details["timeline"]] == ["started", "killed", "restarted", "resumed", "finished"]


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("lr", [0.05], r"step 5 on rank 0: learning rate 0.05 instead of 0.1"),
        ("losses", [9.0], r"loss \[9.0\] instead of"),
        ("rng", "f" * 16, "RNG: the random state is not the saved one"),
        ("grad_digest", "f" * 16, "gradient: another one"),
        ("optimizer_digest", "f" * 16, "optimizer state"),
        ("param_digest", "f" * 16, "parameters are not the control's"),
        ("samples", [sample_of(index) for index in range(4)], "starts the data again from the epoch's beginning"),
        ("samples", [sample_of(24 + index) for index in range(4)], r"repeats data: it takes the batch of step 4, 1 steps back"),
        ("samples", [sample_of(900 + index) for index in range(4)], "another order of the data"),
    ],
)
def test_first_difference_is_named(part: str, value: Any, words: str) -> None:
    """Whatever differs first after the resume is named, with its step and rank."""

    def spoil(record: Record) -> Record:
        return {**record, part: value} if record["kind"] == "step" and record["step"] == 1 and record["rank"] == 0 else record

    finding = continues(control_run(), killed_run(), resumed_run(4, spoil), every=EVERY)

    assert finding.accepted is False
    assert finding.details["outcome"] == "silent_divergence"
    assert re.search(words, finding.explanation), finding.explanation


def test_causes_come_before_effects() -> None:
    """Where samples, loss and parameters all differ, the samples are named and the others follow."""

    def spoil(record: Record) -> Record:
        changed = {"samples": ["9" * 16] * 4, "losses": [7.0], "param_digest": "e" * 16}
        return {**record, **changed} if record["kind"] == "step" and record["step"] >= 2 else record

    back = come_back(control_run(), resumed_run(4, spoil), newest=4)

    assert back.parts[0] == "samples"
    assert "step 6 on rank 0" in back.words


def test_too_much_lost_work_is_rejected() -> None:
    """Coming back from far before the last due checkpoint is lost work, even if all later steps are right."""
    finding = continues(control_run(), killed_run(done=10, step=11), resumed_run(4), every=EVERY)

    assert finding.accepted is False
    assert "6 steps were lost where a checkpoint is due every 4" in finding.explanation


def test_outcomes_are_told_apart() -> None:
    """Fresh start, torn state, foreign weights, exit 0 without a step, loud failure and hang are different news."""
    fresh, nothing = resumed_run(0), make_trace(steps=0, ranks=2)
    failed = make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1, rank1=1))
    stuck = make_trace(steps=0, ranks=2, ended={**ended_well(2, rank0=-9), "ended_by": "stall", "message": "no sign of life for 30 s"})
    torn = resumed_run(
        4, lambda record: {**record, "param_digest": f"{8:016x}"} if record["kind"] == "start" and record["rank"] == 1 else record
    )
    foreign = resumed_run(4, lambda record: {**record, "param_digest": "d" * 16} if record["kind"] == "start" else record)

    outcomes = [
        come_back(control_run(), run, newest=4).outcome
        for run in (fresh, nothing, failed, stuck, torn, foreign, resumed_run(4), resumed_run(2))
    ]

    assert outcomes == [
        "fresh_start",
        "exit_0_without_resuming",
        "loud_failure",
        "hang",
        "torn",
        "silent_divergence",
        "resumed_newest",
        "resumed_previous",
    ]


def test_equal_parameters_at_several_steps_do_not_confuse() -> None:
    """A learning rate of 0 leaves the parameters be for several steps; the alignment under which the runs agree longest is taken."""

    def frozen(record: Record) -> Record:
        return {**record, "param_digest": f"{0:016x}"} if record["kind"] in {"step", "start"} and record.get("step", 0) <= 5 else record

    control = make_trace(steps=STEPS, ranks=2, change=frozen)
    resumed = resumed_run(
        4, lambda record: {**record, "param_digest": f"{0:016x}"} if record["kind"] == "start" or record.get("step") == 1 else record
    )

    back = come_back(make_trace(steps=STEPS, ranks=2, change=frozen), resumed, newest=4)

    assert control.steps["param_digest"].duplicated().any()
    assert (back.outcome, back.step) == ("resumed_newest", 4)


def test_kill_that_never_happened_is_no_evidence() -> None:
    """Without the kill there was no recovery to judge."""
    finding = continues(control_run(), make_trace(steps=STEPS, ranks=2), resumed_run(4), every=EVERY)

    assert finding.accepted is None
    assert "the kill never happened" in finding.explanation


def test_unseen_digest_is_no_evidence() -> None:
    """A job whose parameters cannot be seen is not judged equal."""
    blind = resumed_run(4, lambda record: {**record, "param_digest": None} if record["kind"] == "start" else record)

    finding = continues(control_run(), killed_run(), blind, every=EVERY)

    assert finding.accepted is None


def test_restore_is_judged_before_training_hides_it() -> None:
    """A restore that lost the optimizer state is rejected at once; one that is right is accepted, with the parts it was shown to notice."""

    def lost(record: Record) -> Record:
        return {**record, "optimizer_digest": "b" * 16} if record["kind"] == "start" else record

    good = restores(control_run(), [Restored(4, killed_run(), resumed_run(4))], every=EVERY)
    bad = restores(control_run(), [Restored(4, killed_run(), resumed_run(4, lost))], every=EVERY)

    assert good.accepted is True
    assert bad.accepted is False
    assert "optimizer state restored on rank 0" in bad.explanation


def saving(rank: int, *operations: tuple[int, str, str]) -> list[Record]:
    return [
        {"kind": "file", "rank": rank, "n": n, "op": op, "path": f"/run/ck/{path}", "step": 8, "bytes": 1} for n, op, path in operations
    ]


def test_boundaries_are_those_of_the_second_save() -> None:
    """Every operation of the second save is a boundary; a rank that writes nothing is killed in the step that follows."""
    first = [
        {**record, "step": 4, "n": record["n"] - 3}
        for record in saving(0, (4, "open", "a.tmp"), (5, "write", "a.tmp"), (6, "rename", "a.tmp"))
    ]
    control = control_run(extra=[*first, *saving(0, (4, "open", "a.tmp"), (5, "write", "a.tmp"), (6, "rename", "a.tmp"))])

    found = boundaries_of(control, every=EVERY)

    assert [(one.rank, one.n, one.op) for one in found] == [(0, 4, "open"), (0, 5, "write"), (0, 6, "rename"), (1, None, "step")]


def test_bad_boundary_is_named() -> None:
    """The operation to blame is in the sentence, and the map holds every boundary with its outcome."""
    boundary = Boundary(0, 5, "write", "ck/latest.pt", 8)
    fine = Attempt(Boundary(0, 4, "open", "ck/latest.pt", 8), killed_run(8, None, 4), resumed_run(4))
    lost = Attempt(boundary, killed_run(8, None, 5), make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1)))

    bad = survives_every_boundary(control_run(), [fine, lost], every=EVERY, existing=2)
    good = survives_every_boundary(control_run(), [fine], every=EVERY, existing=1)

    assert bad.accepted is False
    assert "rank 0 killed before file operation 5 (write latest.pt): loud failure" in bad.explanation
    assert [row["outcome"] for row in bad.details["boundaries"]] == ["resumed_previous", "loud_failure"]
    assert good.accepted is True
    assert "1 from the one before" in good.explanation


def test_untried_boundaries_are_no_pass() -> None:
    """A bound on the number of boundaries shows in the verdict."""
    fine = Attempt(Boundary(0, 4, "open", "ck/latest.pt", 8), killed_run(8, None, 4), resumed_run(4))

    finding = survives_every_boundary(control_run(), [fine], every=EVERY, existing=9)

    assert finding.accepted is None
    assert "only 1 of 9 boundaries were tried" in finding.explanation


def test_save_that_was_not_seen_is_no_pass() -> None:
    """Without file operations there is nothing to kill at, and the finding says what to check."""
    finding = survives_every_boundary(control_run(), [], every=EVERY, existing=0)

    assert finding.accepted is None
    assert "no save was seen at step 8" in finding.explanation


def test_boundaries_tried_are_spread_over_every_rank() -> None:
    """The first and the last operation of each rank are always among them; few enough are all taken."""
    boundaries = [Boundary(rank, n, "write", "x", 8) for rank, count in ((0, 20), (1, 3)) for n in range(1, count + 1)]
    chosen = spread(boundaries, 8)

    assert [(boundary.rank, boundary.n) for boundary in chosen] == [(0, 1), (0, 7), (0, 14), (0, 20), (1, 1), (1, 2), (1, 3)]
    assert spread(boundaries, 100) == tuple(boundaries)
    assert spread((), 8) == ()
    attempt = Attempt(boundaries[0], killed_run(8, None, 1), resumed_run(4))
    assert survives_every_boundary(control_run(), [attempt], every=EVERY, existing=23, chosen=1).accepted is True
    assert survives_every_boundary(control_run(), [attempt], every=EVERY, existing=23, chosen=7).accepted is None
