"""The judges of recovery on traces made by hand: what is right is accepted, each kind of wrong is named, what was not seen decides nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.cases import Case, all_come_back
from suite.recovery.continuation import continues_everywhere
from suite.recovery.corruption import never_loaded_silently
from suite.recovery.elastic import Change, goes_on_elastically, spliced
from suite.recovery.kills import epoch_end
from suite.recovery.lost_work import loses_at_most
from suite.recovery.preemption import ends_on_request
from suite.recovery.recovery_time import back_in_time
from suite.recovery.restore import idle_part
from suite.recovery.returns import GOOD, come_back
from suite.recovery.second_save import cuts
from suite.recovery.store_failure import survives_failing_store, tells_missing_store
from suite.selftest.synthetic import ended_well, make_trace, sample_of
from suite.selftest.test_judges_recovery import EVERY, STEPS, control_run, killed_run, resumed_run, saving

FRESH = {"kind": "start", "param_digest": f"{0:016x}"}


def foreign(record: Record) -> Record:
    """Weights that the control never had, from the start."""
    return {**record, "param_digest": "d" * 16} if record["kind"] == "start" else record


def fault(kind: str, rank: int = 0, step: int = 8, **values: Any) -> Record:
    return {"kind": "fault", "rank": rank, "fault": {"kind": kind, **values}, "step": step, "t_ns": 8_000_000_000, "detail": "by hand"}


def logged(trace: Trace, folder: Path, said: str) -> Trace:
    """The same trace, whose rank 0 printed something."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rank0.log").write_text(said)
    return replace(trace, folder=folder)


def damaged(trace: Trace, *names: str, why_not: str = "") -> Trace:
    report = {"altered": list(names), "planted": bool(names), "nothing_to_damage": why_not}
    return replace(trace, spec={**trace.spec, "damage_report": report})


@pytest.mark.parametrize(
    ("resumed", "changes", "accepted", "words"),
    [
        (resumed_run(4), {}, True, "came back at step 4"),
        (resumed_run(4), {"least": 8}, False, "had to come back at step 8 or later"),
        (resumed_run(4, foreign), {}, False, "weights that the uninterrupted run never had"),
        (make_trace(steps=0, ranks=2), {}, False, "exit 0 without resuming"),
        (make_trace(steps=0, ranks=2), {"allowed": (*GOOD, "exit_0_without_resuming")}, True, "exit 0 without resuming"),
        (make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1)), {}, False, "loud failure"),
        (resumed_run(4), {"unproven": "the kill never happened"}, None, "the kill never happened"),
    ],
)
def test_a_case_is_right_only_by_its_own_rules(resumed: Trace, changes: dict[str, Any], accepted: bool | None, words: str) -> None:
    finding = all_come_back(control_run(), [Case("killed", resumed, newest=4, **changes)])

    assert finding.accepted is accepted
    assert words in finding.explanation


def test_no_case_is_no_pass() -> None:
    finding = all_come_back(control_run(), [], nothing="no save was seen")

    assert finding.accepted is None
    assert finding.explanation == "no save was seen"


def test_steps_beyond_the_last_and_steps_that_are_missing_are_named() -> None:
    """A job that trains one step more after a restart, or ends early with exit code 0, did not continue the run."""
    longer = come_back(control_run(), resumed_run(4, steps=STEPS + 1), newest=4)
    shorter = come_back(control_run(), resumed_run(4, steps=STEPS - 2), newest=4)
    only_more = come_back(control_run(), resumed_run(STEPS, steps=STEPS + 1), newest=STEPS)

    assert (longer.outcome, longer.parts) == ("silent_divergence", ("steps",))
    assert "went on to step 13, where the uninterrupted run ends with step 12" in longer.words
    assert "ended with step 10" in shorter.words
    assert "went on to step 13" in only_more.words


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("scales", [[1.0, 0.0]], "loss scale and growth count"),
        ("copy_digest", "c" * 16, "averaged weights"),
        ("copy_digest", None, "bit for bit"),
    ],
)
def test_state_beside_the_model_is_compared_where_there_is_any(part: str, value: Any, words: str) -> None:
    """A loss scaler or averaged weights that differ are named; a job that has none is not held to them."""
    has: dict[str, Any] = {} if value is None else {"scales": [[65536.0, 3.0]], "copy_digest": "a" * 16}

    def spoil(record: Record) -> Record:
        return {**record, **has, part: value} if record["kind"] == "step" else record

    back = come_back(make_trace(steps=STEPS, ranks=2, **has), resumed_run(4, spoil), newest=4)

    assert words in back.words


def test_further_kills_count_as_the_first_does() -> None:
    first = (control_run(), killed_run(), resumed_run(4))
    good, bad = Case("killed again", resumed_run(4), newest=4), Case("killed again", resumed_run(4, foreign), newest=4)

    assert continues_everywhere(*first, [good], every=EVERY, left_out=["no epoch ends"]).accepted is True
    assert continues_everywhere(*first, [bad], every=EVERY).accepted is False
    assert "no epoch ends" in continues_everywhere(*first, [good], every=EVERY, left_out=["no epoch ends"]).explanation
    assert continues_everywhere(control_run(), killed_run(), resumed_run(4, foreign), [good], every=EVERY).accepted is False


def test_lost_work_is_the_worst_case_against_the_cadence() -> None:
    def lost(step: int, done: int) -> Case:
        return Case(f"killed in step {done + 1}", resumed_run(step), newest=step, done=done)

    good = loses_at_most(control_run(), [lost(4, 7), lost(8, 9)], every=EVERY)
    bad = loses_at_most(control_run(), [lost(8, 9), lost(4, 10)], every=EVERY)
    gone = loses_at_most(control_run(), [Case("killed", make_trace(steps=0, ranks=2), newest=4, done=9)], every=EVERY)

    assert (good.accepted, good.value) == (True, 3)
    assert (bad.accepted, bad.value) == (False, 6)
    assert "6 of them were lost" in bad.explanation
    assert (gone.accepted, gone.value) == (False, 9)
    assert loses_at_most(control_run(), [], every=EVERY).accepted is None


def test_damage_may_be_refused_or_passed_over_but_not_loaded() -> None:
    refused = make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1))
    over, silent = resumed_run(4), resumed_run(8, foreign)

    def judge(found: Trace, intact: Trace | None = None) -> Any:
        return never_loaded_silently(control_run(), intact or resumed_run(8), {"checkpoint_flip": found}, newest=8)

    assert judge(damaged(refused, "model.pt")).accepted is True
    assert judge(damaged(over, "model.pt")).accepted is True
    rejected = judge(damaged(silent, "model.pt"))
    assert rejected.accepted is False
    assert "one bit flipped (model.pt): parameters: the resumed run began with weights" in rejected.explanation
    nothing = judge(damaged(over, why_not="one file only"))
    assert nothing.accepted is None
    assert "one file only" in nothing.explanation
    assert judge(damaged(over, "model.pt"), resumed_run(8, foreign)).accepted is False


def failing(folder: Path, said: str, *, done: int = 8, code: int = 2, kind: str = "store_full") -> Trace:
    """A run whose store failed in step 8, and which then ended."""
    ended = ended_well(2, rank0=code, rank1=code) if code else ended_well(2)
    extra = (fault(kind),) if kind else ()
    trace = make_trace(steps=done, ranks=2, optimizer_digest=lambda rank, step: f"{step + 500:016x}", extra=extra, ended=ended)
    return logged(trace, folder, said)


def test_a_failing_store_must_be_told_and_survived(tmp_path: Path) -> None:
    """Stopping loudly and going on with a warning are both right; silence, an early end with code 0, and a hang are not."""

    def judge(found: Trace, resumed: Trace) -> Any:
        return survives_failing_store(control_run(), found, resumed, kind="store_full", every=EVERY)

    told, silent = failing(tmp_path / "a", "OSError: [Errno 28] No space left on device"), failing(tmp_path / "b", "Killed")
    plain = failing(tmp_path / "t", "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 10240 vs 10128")
    warned = failing(tmp_path / "c", "warning: write failed, no space", done=STEPS, code=0)
    early = failing(tmp_path / "d", "no space left", code=0)
    stuck = replace(told, ended={**told.ended, "ended_by": "stall", "message": "no sign of life"})

    assert judge(told, resumed_run(4)).accepted is True
    assert judge(plain, resumed_run(4)).accepted is True, "torch.save's own words for a write that did not go through"
    assert judge(warned, resumed_run(4)).accepted is True
    assert judge(silent, resumed_run(8)).accepted is True, "the save was there after all: the job made room"
    for found, resumed, words in (
        (silent, resumed_run(4), "without a word"),
        (early, resumed_run(4), "though its work was not done"),
        (stuck, resumed_run(4), "never ends"),
        (told, resumed_run(0), "fresh start"),
        (told, resumed_run(4, foreign), "never had"),
    ):
        rejected = judge(found, resumed)
        assert rejected.accepted is False
        assert words in rejected.explanation
    assert judge(failing(tmp_path / "e", "no space left", kind=""), resumed_run(4)).accepted is None
    made_room = judge(failing(tmp_path / "f", "", done=STEPS, code=0), make_trace(steps=0, ranks=2))
    assert made_room.accepted is None
    assert "its saves went through all the same" in made_room.explanation


@pytest.mark.parametrize(
    ("said", "step", "accepted", "words"),
    [
        ("no complete checkpoint: starting from step 0", 0, True, "it said 'no complete checkpoint"),
        ("missing: 0 hours of weather", 0, False, "its output says nothing of it"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'checkpoints'", None, True, "loud failure"),
        ("resumed from step 4", 4, False, "came back at step 4"),
    ],
)
def test_a_missing_store_is_told(tmp_path: Path, said: str, step: int | None, accepted: bool, words: str) -> None:
    resumed = resumed_run(step) if step is not None else make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1))

    finding = tells_missing_store(control_run(), damaged(logged(resumed, tmp_path, said), "."))

    assert finding.accepted is accepted
    assert words in finding.explanation
    assert tells_missing_store(control_run(), damaged(resumed, why_not="no such folder")).accepted is None


def asked(done: int, **ended: int) -> Trace:
    return make_trace(steps=done, ranks=2, extra=(fault("preempt", step=6),), ended=ended_well(2, **ended) if ended else ended_well(2))


def test_ending_on_request_loses_nothing() -> None:
    good = ends_on_request(control_run(), asked(7), resumed_run(7))
    coded = ends_on_request(control_run(), asked(7, rank0=143, rank1=143), resumed_run(7))

    assert good.accepted is True
    assert coded.accepted is True
    for found, resumed, words in (
        (asked(7), resumed_run(4), "3 finished steps were lost"),
        (asked(7), resumed_run(0), "fresh start"),
        (asked(7, rank0=1), resumed_run(7), "did not end by itself"),
        (asked(STEPS), resumed_run(8), "as if nothing had been said"),
    ):
        rejected = ends_on_request(control_run(), found, resumed)
        assert rejected.accepted is False
        assert words in rejected.explanation
    assert ends_on_request(control_run(), make_trace(steps=7, ranks=2), resumed_run(7)).accepted is None


def test_recovery_time_is_noticing_restoring_and_doing_again() -> None:
    killed = replace(killed_run(6), ended={**killed_run(6).ended, "wall_s": 8.0})

    good = back_in_time(killed, [resumed_run(4)] * 3, every=EVERY, bound_s=5.0)
    bad = back_in_time(killed, [resumed_run(4)] * 3, every=EVERY, bound_s=1.0)
    dead = back_in_time(killed, [make_trace(steps=0, ranks=2, ended=ended_well(2, rank0=1))], every=EVERY, bound_s=5.0)

    assert good.value == pytest.approx(
        1.0 + 0.5 + 2 * 0.1
    )  # killed at 7 of 8 s; first step begins 0.5 s after the start; two steps of 0.1 s
    assert (good.accepted, bad.accepted, dead.accepted) == (True, False, False)
    assert "it never came back" in dead.explanation
    assert back_in_time(make_trace(steps=6, ranks=2), [resumed_run(4)], every=EVERY, bound_s=5.0).accepted is None


def rows(ranks: int, reverse: bool = False) -> Any:
    """What a rank takes in each step: epochs of six steps, always in one order."""

    def taken(rank: int, step: int) -> list[str]:
        each = 8 // ranks
        found = [sample_of((step - 1) % 6 * 8 + rank * each + row) for row in range(each)]
        return found[::-1] if reverse else found

    return taken


def noisy(seed: int) -> Trace:
    """One device on the same samples in another order, its losses off by rounding."""
    return make_trace(steps=STEPS, ranks=1, samples=rows(1, reverse=True), losses=lambda rank, step: [1.0 / step * (1 + seed * 1e-8)])


def stopped(done: int = 6, *, killed: bool = True) -> Trace:
    """Two ranks that were killed after `done` steps."""
    extra = (fault("kill", step=done + 1),) if killed else ()
    return make_trace(steps=done, ranks=2, samples=rows(2), extra=extra, ended=ended_well(2, rank1=-9))


def continued(step: int, change: Any = None, *, times: float = 1.0) -> Trace:
    """One device that goes on where two ranks stopped."""

    def moved(record: Record) -> Record | None:
        if record["kind"] == "start":
            record = {**record, "param_digest": f"{step:016x}"}
        if record["kind"] == "step":
            if record["step"] <= step:
                return None
            record = {**record, "step": record["step"] - step, "losses": [loss * times for loss in record["losses"]]}
        return change(record) if change else record

    return make_trace(steps=STEPS, ranks=1, samples=rows(1), change=moved)


def test_a_changed_world_is_held_to_one_device() -> None:
    """Its samples step by step, its loss within the noise, and where it began."""
    controls = [noisy(seed) for seed in range(1, 6)]
    alone = make_trace(steps=STEPS, ranks=1, samples=rows(1))

    def judge(resumed: Trace) -> Any:
        return goes_on_elastically(alone, controls, [Change(2, 1, stopped(), resumed)], fixed_order="synthetic")

    def skipped(record: Record) -> Record:
        return {**record, "samples": ["9" * 16, *record["samples"][1:]]} if record["kind"] == "step" and record["step"] == 1 else record

    assert judge(continued(4)).accepted is True
    assert list(spliced(stopped(), continued(4), 4).steps["step"].unique()) == list(range(1, STEPS + 1))
    for resumed, words in (
        (continued(4, skipped), r"from 2 to 1 rank: resumed at step 4, one device: in step 5 1 of 8 samples"),
        (continued(4, times=1.01), "the loss leaves the noise"),
        (continued(4, foreign), "weights that the killed run never had"),
        (continued(0), "began again from step 0"),
        (make_trace(steps=0, ranks=1, ended=ended_well(1, rank0=1)), "did not finish"),
    ):
        rejected = judge(resumed)
        assert rejected.accepted is False, rejected.explanation
        assert re.search(words, rejected.explanation)
    unkilled = goes_on_elastically(alone, controls, [Change(2, 1, stopped(killed=False), continued(4))])
    assert unkilled.accepted is None
    assert goes_on_elastically(alone, controls, [], left_out=["17 does not divide"]).accepted is None


def test_cuts_are_the_first_a_middle_and_the_last_operation() -> None:
    files = [{**record, "t_ns": record["n"]} for record in saving(0, *((n, "write", f"{n}.bin") for n in range(4, 11)))]

    assert [cut.n for cut in cuts(control_run(extra=files), step=8)] == [4, 7, 10]
    assert cuts(control_run(), step=8) == []


def test_a_part_that_the_job_has_not_is_idle() -> None:
    """A twin that cannot fire on this job says why; one that fired is never excused."""
    lacks = resumed_run(4)
    lacks = replace(
        lacks, records=(*lacks.records, {"kind": "not_seen", "rank": 0, "signal": "fault forget scaler", "reason": "no scaler"})
    )
    fired = replace(lacks, records=(*lacks.records, fault("forget", part="scaler")))
    still = control_run(rng="a" * 16)

    assert idle_part(control_run(), lacks, "scaler") == "no scaler"
    assert idle_part(control_run(), fired, "scaler") == ""
    assert "draws no random numbers" in idle_part(still, fired, "rng")
    assert idle_part(control_run(), fired, "rng") == ""


def test_the_end_of_an_epoch_is_found_among_the_checkpoints() -> None:
    """Samples that come round again mark it."""

    class Asked:
        job = type("Job", (), {"steps": STEPS, "checkpoint": type("Checkpoint", (), {"every": EVERY})})

    def epoch_of(length: int) -> Trace:
        return control_run(samples=lambda rank, step: [f"{(step - 1) % length * 10 + rank:016x}"])

    assert epoch_end(Asked(), epoch_of(8)) == (8, "killed after the checkpoint of step 8, with which an epoch ends")  # type: ignore[arg-type]
    assert epoch_end(Asked(), epoch_of(7)) == (4, "killed after the checkpoint of step 4, before the epoch that ends with step 7")  # type: ignore[arg-type]
    assert epoch_end(Asked(), control_run()) is None  # type: ignore[arg-type]
