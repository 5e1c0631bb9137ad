"""Judges of recovery at their bounds, over several cases of which one is off: that one is named and counted."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.cases import Case, all_come_back, finished_steps, judged
from suite.recovery.continuation import compared_parts, continues, continues_everywhere, losses, timeline
from suite.recovery.lost_work import loses_at_most
from suite.recovery.preemption import ends_on_request
from suite.recovery.recovery_time import back_in_time, restored_s
from suite.recovery.restore import Restored, restores
from suite.recovery.returns import come_back
from suite.selftest.synthetic import SECOND_NS, ended_well, make_trace
from suite.selftest.test_judges_recovery import EVERY, STEPS, control_run, killed_run, resumed_run

NOT_SEEN = make_trace(steps=4, ranks=2, change=lambda record: None if record["kind"] == "start" else record)


def spoilt(part: str, at: int, back: int = 4) -> Trace:
    return resumed_run(
        back,
        lambda record: (
            {**record, part: [9.0] if part == "losses" else "x"} if record["kind"] == "step" and record["step"] == at else record
        ),
    )


@pytest.mark.parametrize("bad", [None, 0, 1, 2])
def test_one_restore_of_three(bad: int | None) -> None:
    sound = [Restored(step, killed_run(done=step + 1, step=step + 2), resumed_run(step)) for step in (2, 4, 8)]
    wrong = Restored((2, 4, 8)[bad or 0], killed_run(done=9, step=10), resumed_run(0))
    tried = [wrong if place == bad else one for place, one in enumerate(sound)]
    finding = restores(control_run(), tried, every=EVERY)
    rows = finding.details["table"]["rows"]
    assert [row[0] for row in rows] == [2, 4, 8]
    if bad is None:
        assert (finding.accepted, finding.value, finding.bound, finding.samples) == (True, 0, 0, 3)
        assert "the checkpoints of steps 2, 4, 8 each brought back" in finding.explanation
    else:
        assert (finding.accepted, finding.value, finding.bound) == (False, 1, 0)
        assert finding.explanation.startswith(f"checkpoint of step {(2, 4, 8)[bad]}: ")
        assert "(1 of 3 restores wrong)" in finding.explanation
    unsure = [Restored(6, control_run(), resumed_run(6)), Restored(7, killed_run(), NOT_SEEN)]
    for place in (0, 1):
        told = restores(control_run(), [sound[0], unsure[place]], every=EVERY)
        assert told.accepted is None
        assert told.explanation.startswith(f"checkpoint of step {6 + place}: ")
    assert restores(control_run(), [], every=EVERY).accepted is None
    for broken in (control_run(ended=ended_well(2, rank0=1)), make_trace(steps=0, ranks=2)):
        assert restores(broken, sound, every=EVERY).accepted is None


@pytest.mark.parametrize(("done", "verdict"), [(8, True), (9, False)])
def test_a_restore_that_comes_back_too_early(done: int, verdict: bool) -> None:
    finding = restores(control_run(), [Restored(8, killed_run(done=done, step=done + 1), resumed_run(4))], every=EVERY)
    assert finding.accepted is verdict
    assert (f"{done} steps were done and a checkpoint is due every 4" in finding.explanation) is not verdict
    none = restores(
        control_run(),
        [
            Restored(
                8, killed_run(), resumed_run(4, lambda record: {**record, "param_digest": "d"} if record["kind"] == "start" else record)
            )
        ],
        every=EVERY,
    )
    assert none.accepted is False
    assert none.details["table"]["rows"][0][1] is None


@pytest.mark.parametrize("part", ["losses", "grad_digest", "optimizer_digest", "buffer_digest", "rng"])
@pytest.mark.parametrize(("at", "verdict"), [(1, False), (2, False), (3, True)])
def test_only_the_first_two_steps_show_what_was_restored(part: str, at: int, verdict: bool) -> None:
    finding = restores(control_run(), [Restored(4, killed_run(), spoilt(part, at))], every=EVERY)
    assert finding.accepted is verdict
    assert (f"first difference in step {4 + at} on rank 0" in finding.explanation) is not verdict
    held = resumed_run(
        4, lambda record: {**record, "optimizer_digest": "x"} if record["kind"] == "start" and record["rank"] == 1 else record
    )
    assert (
        "optimizer state restored on rank 1 is not the saved one"
        in restores(control_run(), [Restored(4, killed_run(), held)], every=EVERY).explanation
    )


def restarted(began_s: float, step_ms: float = 500.0) -> Trace:
    """A restart whose last rank begins its first step after so many seconds."""

    def change(record: Record) -> Record:
        if record["kind"] == "meta":
            return {**record, "t_ns": SECOND_NS * (1 + record["rank"])}
        return (
            {**record, "t_ns": int((1 + began_s - (0.5 if record["rank"] == 0 else 0.0)) * SECOND_NS)}
            if record["kind"] == "start"
            else record
        )

    return make_trace(steps=6, ranks=2, change=change, step_ms=lambda rank, step: step_ms - 100.0 * (rank == 0))


def lost_world(done: int = 6, wall_s: float = 10.0, launcher: str = "cold") -> Trace:
    killed = killed_run(done=done, step=done + 1)
    extra = [{**record, "t_ns": t} for t in (7 * SECOND_NS, 8 * SECOND_NS) for record in killed.faults()]
    return make_trace(steps=done, ranks=2, extra=extra, spec={"launcher": launcher}, ended={**ended_well(2, rank1=-9), "wall_s": wall_s})


@pytest.mark.parametrize("every", [4, 5, 6])
def test_the_time_to_come_back(every: int) -> None:
    lost = 6 % every
    total = 3.0 + 2.0 + lost * 0.5
    for bound, verdict in ((total, True), (total - 1e-6, False), (total + 1e-6, True)):
        finding = back_in_time(lost_world(), [restarted(2.0)], every=every, bound_s=bound)
        assert (finding.accepted, finding.samples, finding.bound) == (verdict, 1, bound)
        assert finding.value == pytest.approx(total)
    assert restored_s(restarted(2.0)) == pytest.approx(2.0)
    assert finding.details == {
        "noticed_s": 3.0,
        "restored_s": [pytest.approx(2.0)],
        "redone_s": [pytest.approx(lost * 0.5)],
        "lost_steps": lost,
    }
    three = back_in_time(lost_world(launcher="warm"), [restarted(one) for one in (1.0, 2.0, 4.0)], every=every, bound_s=total + 1.0)
    assert three.interval == pytest.approx((total - 1, total + 2))
    assert three.accepted is None
    assert "(Python and torch were imported already)" in three.explanation
    edge = back_in_time(lost_world(), [restarted(one) for one in (1.0, 2.0, 4.0)], every=every, bound_s=total - 1.0)
    assert edge.accepted is None
    assert back_in_time(lost_world(), [restarted(one) for one in (1.0, 2.0, 4.0)], every=every, bound_s=total + 2.0).accepted is True
    two = back_in_time(lost_world(), [restarted(one) for one in (1.0, 2.0)], every=every, bound_s=total + 2.0)
    assert two.interval == pytest.approx((total - 0.5, total - 0.5))
    assert back_in_time(control_run(), [restarted(1.0)], every=every, bound_s=9.0).accepted is None
    assert back_in_time(lost_world(), [restarted(1.0), make_trace(steps=0)], every=every, bound_s=9.0).accepted is False
    assert back_in_time(lost_world(), [resumed_run(4, ended=ended_well(2, rank1=1))], every=every, bound_s=9.0).accepted is False


def asked(done: int, codes: tuple[int, int] = (0, 143), by: str = "exit", steps: tuple[int, ...] = (5, 6)) -> Trace:
    extra = [{"kind": "fault", "rank": 0, "fault": {"kind": "preempt"}, "step": step, "t_ns": 1} for step in steps]
    other = {"kind": "fault", "rank": 0, "fault": {"kind": "sleep"}, "step": 11, "t_ns": 1}
    return make_trace(
        steps=done, ranks=2, extra=[*extra, other], ended={**ended_well(2, rank0=codes[0], rank1=codes[1]), "ended_by": by, "message": "m"}
    )


def test_a_job_that_is_asked_to_end() -> None:
    fine = ends_on_request(control_run(), asked(6), resumed_run(6))
    assert (fine.accepted, fine.value, fine.bound, fine.samples) == (True, 0, 0, 6)
    assert "asked to end in step 6, every rank ended by itself after step 6" in fine.explanation
    behind = ends_on_request(control_run(), asked(8), resumed_run(4))
    assert (behind.accepted, behind.value, behind.samples) == (False, 4, 8)
    assert "4 finished steps were lost" in behind.explanation
    for run, words in (
        (asked(6, (0, 1)), "did not end by itself: rank 1"),
        (asked(6, by="stall"), "it hung"),
        (asked(STEPS), f"went on to its last step, {STEPS}"),
    ):
        finding = ends_on_request(control_run(), run, resumed_run(6))
        assert finding.accepted is False
        assert words in finding.explanation
    assert ends_on_request(control_run(), killed_run(), resumed_run(6)).accepted is None
    assert ends_on_request(control_run(), asked(6), NOT_SEEN).accepted is None
    assert ends_on_request(make_trace(steps=0), asked(6), resumed_run(6)).accepted is None
    ours = asked(6)
    taken = make_trace(
        steps=6,
        ranks=2,
        extra=list(ours.faults()),
        ended={**ended_well(2), "ranks": [{"rank": 0, "exit_code": 0, "signal": None, "killed_by_us": True}]},
    )
    assert ends_on_request(control_run(), taken, resumed_run(6)).accepted is False


@pytest.mark.parametrize("bad", [None, 0, 1, 2])
def test_one_case_of_three(bad: int | None) -> None:
    cases = [Case(f"case {place}", resumed_run(0 if place == bad else 4), 4, done=done) for place, done in enumerate((6, 7, 5))]
    finding = all_come_back(control_run(), cases)
    assert finding.samples == 3
    assert [row[3] for row in finding.details["table"]["rows"]] == [
        done if place == bad else done - 4 for place, done in enumerate((6, 7, 5))
    ]
    cost = loses_at_most(control_run(), cases, every=3)
    most = 3 if bad is None else (6, 7, 5)[bad]
    assert (cost.accepted, cost.value, cost.bound, cost.samples) == (bad is None, most, 3, 3)
    assert f"case {1 if bad is None else bad}" in cost.explanation
    assert loses_at_most(control_run(), cases, every=2).accepted is False
    everywhere = continues_everywhere(control_run(), killed_run(), resumed_run(4), cases, every=EVERY)
    assert everywhere.accepted is (bad is None)
    if bad is None:
        assert (finding.accepted, finding.value, finding.bound, everywhere.samples, everywhere.value) == (True, 0, 0, 8 + 3, 0)
    else:
        assert (finding.accepted, finding.value, finding.bound) == (False, 1, 0)
        assert f"case {bad}: fresh start" in finding.explanation
        assert everywhere.unit == "steps that differ"
    for least, right in ((4, True), (5, False)):
        one = judged(control_run(), [Case("late", resumed_run(4), 4, least=least)])[0]
        assert (one.right, one.lost) == (right, None)
        assert ("had to come back at step 5 or later" in one.words) is not right
    doubtful = [*cases[:1], Case("unproven", resumed_run(4), 4, unproven="it did not happen"), Case("unseen", NOT_SEEN, 4)]
    if bad != 0:
        assert all_come_back(control_run(), doubtful).explanation == "unproven: it did not happen"
        assert loses_at_most(control_run(), doubtful, every=9).explanation == "unproven: it did not happen"
    assert all_come_back(control_run(), []).accepted is None
    assert loses_at_most(control_run(), [], every=9).accepted is None
    assert finished_steps(make_trace(steps=0)) == 0
    assert finished_steps(killed_run()) == 6


@pytest.mark.parametrize(("done", "verdict"), [(6, True), (8, True), (9, False)])
def test_how_much_work_may_be_lost(done: int, verdict: bool) -> None:
    finding = continues(control_run(), killed_run(done=done, step=done + 1), resumed_run(4), every=EVERY)
    assert finding.accepted is verdict
    assert (finding.details["lost_steps"], finding.details["resumed_step"], finding.details["compared_steps"]) == (done - 4, 4, 8)
    assert finding.details["losses"]["resumed"]["steps"] == list(range(5, 13))
    assert finding.value == (0 if verdict else done - 4)
    back = come_back(control_run(), resumed_run(4), newest=4)
    events = timeline(killed_run(), resumed_run(4), back)
    assert [(one["event"], one["t_s"], one["step"], one["rank"]) for one in events] == [
        ("started", 0.0, 0, None), ("killed", 6.5, 7, 1), ("restarted", 6.5, None, None), ("resumed", 7.0, 4, None), ("finished", 18.5, 12, None),
    ]  # fmt: skip
    assert losses(control_run(), 3)["steps"][0] == 4
    assert compared_parts(control_run(), back) == "samples, learning rate, RNG, loss, gradient, optimizer state, buffers, parameters"
    whole: dict[str, Any] = {"scales": [[1.0, 0]], "copy_digest": "c"}
    assert "loss scale" in compared_parts(control_run(**whole), back)
    assert continues(control_run(), killed_run(), NOT_SEEN, every=EVERY).accepted is None
