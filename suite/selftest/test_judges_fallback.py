"""The judge of one device that takes over, on traces made by hand: what it restored, trained on and recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.release.fallback import takes_over
from suite.selftest.findings import accepted, rejected, undecided
from suite.selftest.synthetic import ended_well, make_trace, sample_of
from suite.selftest.test_judges_recovery import EVERY, STEPS, control_run, killed_run

TOLD: dict[str, Any] = {"steps": STEPS, "world_size": 1, "data": {"hash": "h", "rows": 96}, "notes": {}}


def alone_from(step: int, *, digest: str | None = None, row: Any = None, steps: int = STEPS, **more: Any) -> Trace:
    """One device that goes on from the control's step `step`. row(control's step): the number of its first sample."""

    def change(record: Record) -> Record | None:
        if record["kind"] == "start":
            return {**record, "param_digest": digest or f"{step:016x}"}
        return record

    def samples(rank: int, own: int) -> list[str]:
        first = row(own + step) if row else (own + step - 1) * 8
        return [sample_of(first + at) for at in range(8)]

    return make_trace(steps=steps - step, ranks=1, samples=samples, change=change, **more)


def judged(alone: Trace, *, told: Any = TOLD, done: int = 9, record: bytes | None = b"") -> Any:
    return takes_over(
        control_run(),
        killed_run(done=done, step=done + 1),
        alone,
        every=EVERY,
        record=json.dumps(told).encode() if record == b"" else record,
    )


@pytest.mark.parametrize(
    ("restored", "done", "verdict"),
    [(8, 9, True), (4, 9, True), (3, 9, False), (8, 8, True), (4, 8, True), (4, 12, False), (8, 12, True), (0, 3, False), (1, 3, True)],
)
def test_what_it_may_come_back_from(restored: int, done: int, verdict: bool) -> None:
    finding = judged(alone_from(restored), done=done)
    assert finding.accepted is verdict, finding.explanation
    assert (finding.details["restored_step"], finding.details["lost_steps"]) == (restored, done - restored)
    assert f"the world was lost after {done} of {STEPS} steps" in finding.explanation
    if verdict:
        assert (finding.value, finding.bound, finding.samples) == (0, 0, STEPS - restored)
        assert "and 5 fields of the job's own" in finding.explanation
    else:
        assert f"began with the weights of step {restored}" in finding.explanation


@pytest.mark.parametrize("step", [9, 10, 12])
def test_other_samples_in_one_step(step: int) -> None:
    rejected(
        judged(alone_from(8, row=lambda made: 900 if made == step else (made - 1) * 8)),
        f"trained on other samples than the world in 1 steps, the first step {step}",
    )
    rejected(
        judged(alone_from(8, row=lambda made: 900 if made >= step else (made - 1) * 8)),
        f"in {STEPS + 1 - step} steps, the first step {step}",
    )


def test_what_is_not_as_it_was() -> None:
    foreign = judged(alone_from(8, digest="d" * 16))
    rejected(foreign, "weights that the world never had")
    assert (foreign.details["restored_step"], foreign.details["lost_steps"]) == (None, None)
    rejected(judged(alone_from(8, steps=STEPS - 1)), "from step 8 one device alone made 3 steps where 4 were left")
    rejected(judged(alone_from(8, steps=STEPS + 1)), "made 5 steps where 4 were left")
    rejected(judged(alone_from(8, ended=ended_well(1, rank0=3))), "did not finish: rank 0 exited with code 3")
    rejected(judged(make_trace(steps=0)), "did not finish")
    undecided(takes_over(control_run(), control_run(), alone_from(8), every=EVERY, record=b"{}"), "nothing to take over from")
    undecided(
        takes_over(control_run(ended=ended_well(2, rank0=1)), killed_run(), alone_from(4), every=EVERY, record=b"{}"),
        "nothing to take over from",
    )
    undecided(takes_over(make_trace(steps=0, ranks=2), killed_run(), alone_from(4), every=EVERY, record=b"{}"), "nothing to take over from")
    accepted(judged(alone_from(8)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"steps": STEPS - 1}, f"steps is {STEPS - 1}, not {STEPS}"),
        ({"world_size": 2}, "world_size is 2, not 1"),
        ({"data": {"hash": "", "rows": 96}}, "data.hash is empty"),
        ({"data": {"hash": "h", "rows": None}}, "data.rows is empty"),
        ({"seed": None}, "seed is empty"),
    ],
)
def test_a_record_with_a_gap(changed: dict[str, Any], words: str) -> None:
    rejected(judged(alone_from(8), told={**TOLD, **changed}), f"its record is not complete: {words}")


@pytest.mark.parametrize("record", [None, b"{", b"[1]", b"3"])
def test_no_record_of_its_own(record: bytes | None) -> None:
    rejected(judged(alone_from(8), record=record), "the job wrote no record of its own")


def test_a_gap_in_what_the_probe_wrote() -> None:
    error = {"kind": "probe_error", "rank": 0, "where": "step", "error": "boom"}
    rejected(judged(alone_from(8, extra=[error])), "probe error: ")
