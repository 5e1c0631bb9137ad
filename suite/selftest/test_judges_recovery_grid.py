"""Judges of recovery on a grid of small changes: one part of one rank's state in one step is changed, and just that is named."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.alignment import (
    CAUSES,
    WORDS,
    best_alignment,
    compare_from,
    draws_at_most_steps,
    epoch_starts,
    explain,
    states_of,
    steps_restored,
)
from suite.recovery.boundaries import Attempt, Boundary, boundaries_of, spread, survives_every_boundary
from suite.recovery.ends import first_to_fail, how_it_ended, hung, last_line, lost_a_peer_on_purpose
from suite.recovery.returns import come_back
from suite.recovery.saving import changes_nothing, optimal_interval_s, save_share, sleep_to_exceed
from suite.selftest.synthetic import SECOND_NS, ended_well, make_trace, sample_of
from suite.selftest.test_judges_recovery import EVERY, STEPS, control_run, killed_run, resumed_run

PARTS: dict[str, Any] = {
    "samples": ["9" * 16] * 4, "lr": [0.05], "scales": [[2.0, 1]], "rng": "f" * 16, "losses": [9.0], "grad_digest": "f" * 16, "optimizer_digest": "f" * 16,
    "buffer_digest": "f" * 16, "copy_digest": "f" * 16, "param_digest": "f" * 16,
}  # fmt: skip
PLACES = ((0, 5), (1, 5), (0, 9), (1, 12))


def spoilt(part: str, rank: int, step: int, back: int = 4) -> Trace:
    """A run that came back at `back`, in which one part of one rank differs in the control's step `step`."""

    def spoil(record: Record) -> Record:
        here = record["kind"] == "step" and (record["rank"], record["step"] + back) == (rank, step)
        return {**record, part: PARTS[part]} if here else record

    return resumed_run(back, spoil)


@pytest.mark.parametrize(("rank", "step"), PLACES)
@pytest.mark.parametrize("part", [part for part in CAUSES if part not in {"scales", "copy_digest"}])
def test_one_part_of_one_rank(part: str, rank: int, step: int) -> None:
    control, resumed = states_of(control_run()), states_of(spoilt(part, rank, step))

    found = compare_from(control, resumed, 4)

    assert found.difference is not None
    assert (found.difference.step, found.difference.rank, found.difference.parts) == (step, rank, (part,))
    assert (found.step, found.compared, found.unseen) == (4, step - 4, ())
    said = explain(found.difference, control)
    assert said.startswith(f"step {step} on rank {rank}: ")
    back = come_back(control_run(), spoilt(part, rank, step), newest=4)
    assert (back.outcome, back.step, back.parts) == ("silent_divergence", 4, (part,))


@pytest.mark.parametrize("part", ["scales", "copy_digest"])
@pytest.mark.parametrize("missing", [False, True])
def test_parts_that_not_every_job_has(part: str, missing: bool) -> None:
    own: dict[str, Any] = {part: PARTS[part], "optimizer_digest": "o"}
    control = states_of(make_trace(ranks=2, **own))
    theirs: dict[str, Any] = {} if missing else {part: [[3.0, 0]] if part == "scales" else "e"}
    other = states_of(make_trace(ranks=2, optimizer_digest="o", **theirs))
    found = compare_from(control, other, 0)
    assert found.unseen == ((part,) if missing else ())
    assert (found.difference is None) is missing
    if found.difference is not None:
        assert found.difference.root == part
    assert compare_from(states_of(make_trace()), states_of(make_trace()), 0).unseen == ("optimizer_digest",)


def test_the_rank_where_a_difference_begins_is_named() -> None:
    def spoil(record: Record) -> Record:
        if record["kind"] != "step" or record["step"] != 3:
            return record
        return {**record, "param_digest": "x"} if record["rank"] == 0 else {**record, "losses": [8.0], "param_digest": "x"}

    found = compare_from(states_of(control_run()), states_of(resumed_run(4, spoil)), 4)
    assert found.difference is not None
    assert (found.difference.rank, found.difference.parts) == (1, ("losses", "param_digest"))
    assert explain(found.difference, states_of(control_run())).endswith(f"(then also {WORDS['param_digest']})")


@pytest.mark.parametrize("step", range(1, STEPS))
def test_where_a_run_came_back(step: int) -> None:
    control, resumed = states_of(control_run()), states_of(resumed_run(step))
    assert [steps_restored(control, resumed, rank) for rank in (0, 1)] == [(step,), (step,)]
    for newest, outcome in ((step, "resumed_newest"), (step + 1, "resumed_previous"), (step - 1, "resumed_newest")):
        back = come_back(control_run(), resumed_run(step), newest=newest)
        assert (back.outcome, back.step, back.compared) == (outcome, step, STEPS - step)
    best = best_alignment(control, resumed, (step - 1, step))
    assert (best.step, best.difference) == (step, None)
    further = come_back(control_run(), resumed_run(step, steps=STEPS + 1), newest=4)
    assert (further.outcome, further.parts) == ("silent_divergence", ("steps",))
    assert f"went on to step {STEPS + 1}, where the uninterrupted run ends with step {STEPS}" in further.words
    if step < STEPS - 1:
        short = come_back(control_run(), resumed_run(step, steps=STEPS - 1), newest=4)
        assert (short.outcome, short.parts) == ("silent_divergence", ("steps",))
        assert (
            f"came back at step {step} and ended with step {STEPS - 1}, where the uninterrupted run ends with step {STEPS}" in short.words
        )
    crashed = come_back(control_run(), resumed_run(step, ended=ended_well(2, rank1=3)), newest=4)
    assert (crashed.outcome, crashed.step) == ("loud_failure", step)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("other", [2, 6, 12])
def test_states_of_two_steps_mixed(rank: int, other: int) -> None:
    def optimizer(record: Record) -> Record:
        return {**record, "optimizer_digest": f"{other + 500:016x}"} if record["kind"] == "start" and record["rank"] == rank else record

    back = come_back(control_run(), resumed_run(4, optimizer), newest=4)
    assert (back.outcome, back.step) == ("torn", None)
    assert f"rank {rank} came back with the parameters of step 4 and the optimizer state of step {other}" in back.words

    def weights(record: Record) -> Record:
        return {**record, "param_digest": f"{other:016x}"} if record["kind"] == "start" and record["rank"] == rank else record

    torn = come_back(control_run(), resumed_run(4, weights), newest=4)
    assert (torn.outcome, torn.parts) == ("torn", ("param_digest",))
    assert f"rank {rank} the state of step {other}" in torn.words
    assert f"rank {1 - rank} the state of step 4" in torn.words


def test_random_numbers_that_are_drawn_now_and_then() -> None:
    def states(drawn: list[str]) -> dict[int, dict[str, Any]]:
        return {step: {"rng": value} for step, value in enumerate(drawn)}

    assert draws_at_most_steps(states(["s", "a", "b", "b"]))
    assert not draws_at_most_steps(states(["s", "a", "b", "b", "b"]))
    assert draws_at_most_steps(states(["s", "a", "b", "c", "c", "c"]))
    assert not draws_at_most_steps(states(["s", "a"]))
    still = states_of(make_trace(ranks=2, rng="r"))
    assert compare_from(still, still, 0).unseen == ("optimizer_digest", "rng")
    assert compare_from(still, states_of(make_trace(ranks=2, rng="q")), 0).difference is None


@pytest.mark.parametrize("size", [8, 12, 16, 24])
def test_epochs_begin_where_samples_come_again(size: int) -> None:
    def samples(rank: int, step: int) -> list[str]:
        return [sample_of(((step - 1) * 8 + rank * 4 + row) % size) for row in range(4)]

    control = states_of(make_trace(steps=STEPS, ranks=2, samples=samples))
    first = [step for step in range(1, STEPS + 1) if (step - 1) * 8 % size == 0 or step == 1]
    if size % 8 == 0:
        assert list(epoch_starts(control)) == first
    else:
        assert epoch_starts(control)[:2] == (1, 2)
    moved = {step: tuple(samples(0, step)) for step in range(1, STEPS + 1)}
    assert len(moved) == STEPS


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([24, 25, 26, 27], "repeats data: it takes the batch of step 4, 1 steps back"),
        ([48, 49, 50, 51], "skips data: it takes the batch of step 7, 2 steps ahead"),
        ([32, 33], "only 2 of the 4 samples of that step"),
        ([35, 34, 33, 32], "the same samples in another order"),
        ([32, 33, 90, 901], "no step of the uninterrupted run has this batch (3 of its 4 samples"),
        ([0, 1, 2, 3], "starts the data again from the epoch's beginning (the batch of step 1 instead of that of step 5)"),
        ([32, 33, 34, 34], "another order of the data"),
        ([32, 40], "another order of the data"),
    ],
)
def test_samples_of_another_step(seen: list[int], words: str) -> None:
    def spoil(record: Record) -> Record:
        here = record["kind"] == "step" and (record["rank"], record["step"]) == (0, 1)
        return {**record, "samples": [sample_of(row) for row in seen]} if here else record

    assert words in come_back(control_run(), resumed_run(4, spoil), newest=4).words


def operation(rank: int, n: int, step: int, op: str = "write") -> Record:
    return {
        "kind": "file",
        "rank": rank,
        "n": n,
        "op": op,
        "path": f"/a/checkpoints/{step}/r{rank}.pt",
        "step": step,
        "t_ns": step * SECOND_NS,
    }


@pytest.mark.parametrize("late", [0, 1])
def test_boundaries_of_the_second_save(late: int) -> None:
    files = [operation(0, n, step) for step, numbers in ((4 + late, (1, 2, 3)), (8 + late, (4, 5, 6)), (12, (7,))) for n in numbers]
    found = boundaries_of(control_run(extra=files), every=EVERY)
    assert [(one.rank, one.n, one.step) for one in found] == [(0, 4, 8 + late), (0, 5, 8 + late), (0, 6, 8 + late), (1, None, 9)]
    assert found[0].path == f"{8 + late}/r0.pt"
    assert found[0].words == "rank 0 killed before file operation 4 (write r0.pt)"
    assert found[3].words.startswith("rank 1 killed in step 9")
    both = [*files, operation(1, 1, 9 - late), operation(1, 2, 9 - late), operation(1, 3, 9 - late), operation(1, 4, 9 - late)]
    assert {one.step for one in boundaries_of(control_run(extra=both), every=EVERY)} == {9 - late, 9} if late else {9}
    assert boundaries_of(control_run(), every=EVERY) == ()


@pytest.mark.parametrize("most", [2, 4, 5, 7, 20])
def test_boundaries_are_spread_over_the_ranks(most: int) -> None:
    every = [Boundary(rank, n, "write", "a", 8) for rank, count in ((0, 9), (1, 3), (2, 1)) for n in range(1, count + 1)]
    chosen = spread(every, most)
    for rank, last in ((0, 9), (1, 3), (2, 1)):
        mine = [one.n for one in chosen if one.rank == rank]
        assert mine[0] == 1
        assert mine[-1] == last
        assert mine == sorted(set(mine), key=lambda n: n or 0)
    assert len(chosen) <= max(most, 5)


@pytest.mark.parametrize("bad", [None, 0, 2])
@pytest.mark.parametrize("existing", [3, 5])
def test_attempts_are_counted(bad: int | None, existing: int) -> None:
    tried = [Boundary(1, n, "write", "a/b", 8) for n in (1, 2, 3)]
    resumed = [resumed_run(8), resumed_run(4), resumed_run(8)]
    if bad is not None:
        resumed[bad] = resumed_run(0)
    attempts = [Attempt(boundary, killed_run(done=9, step=10), one) for boundary, one in zip(tried, resumed, strict=True)]
    finding = survives_every_boundary(control_run(), attempts, every=EVERY, existing=existing)
    rows = finding.details["boundaries"]
    assert [row["lost_steps"] for row in rows] == [9 if bad == 0 else 1, 5, 9 if bad == 2 else 1]
    assert finding.samples == 3
    if bad is not None:
        assert (finding.accepted, finding.value, finding.bound) == (False, 1, 0)
        assert f"rank 1 killed before file operation {bad + 1}" in finding.explanation
        assert "(1 of 3 boundaries tried end badly" in finding.explanation
        assert "1 fresh start" in finding.explanation
    else:
        assert finding.accepted is (True if existing == 3 else None)
        assert survives_every_boundary(control_run(), attempts, every=EVERY, existing=existing, chosen=3).accepted is True
    assert finding.details["outcomes"].get("resumed_previous") == 1
    alive = [Attempt(tried[0], control_run(), resumed_run(8)), *attempts[1:2]]
    assert survives_every_boundary(control_run(), alive, every=EVERY, existing=2).accepted is None
    assert survives_every_boundary(control_run(ended=ended_well(2, rank0=1)), attempts, every=EVERY, existing=3).accepted is None
    assert survives_every_boundary(control_run(), [], every=EVERY, existing=0).accepted is None


def test_which_rank_is_quoted() -> None:
    def ended(*ends: dict[str, Any], by: str = "exit") -> Trace:
        full = [{"rank": rank, "exit_code": 0, "signal": None, "killed_by_us": False, **end} for rank, end in enumerate(ends)]
        return make_trace(ranks=len(ends), ended={**ended_well(len(ends)), "ranks": full, "ended_by": by, "message": "too long"})

    assert first_to_fail(ended({}, {})) is None
    assert how_it_ended(ended({}, {})) == "every rank exited with code 0"
    assert how_it_ended(ended({}, {"exit_code": 3})) == "rank 1 exited with code 3 and wrote nothing"
    assert how_it_ended(ended({"exit_code": 2}, {"exit_code": 3})) == "rank 0 exited with code 2 and wrote nothing"
    ours = ended({"exit_code": None, "signal": 15, "killed_by_us": True}, {"exit_code": None, "signal": 9})
    assert how_it_ended(ours) == "rank 1 was ended by signal 9 and wrote nothing"
    assert how_it_ended(ended({}, {"exit_code": 0, "signal": 9})) == "rank 1 was ended by signal 9 and wrote nothing"
    for by in ("stall", "deadline", "exit"):
        assert hung(ended({}, by=by)) is (by != "exit")
    assert how_it_ended(ended({}, by="stall")) == "it hung (too long)"
    assert last_line(ended({}), 0) == ""
    exit_ = {"kind": "exit", "rank": 0, "step": 1, "reason": "ended by a fault", "t_ns": 1}
    assert lost_a_peer_on_purpose(make_trace(extra=[exit_]))
    assert not lost_a_peer_on_purpose(make_trace())
    assert not lost_a_peer_on_purpose(make_trace(ranks=2, extra=[exit_], ended=ended_well(2, rank1=1)))


def saving(cost_ms: float, *, change: Any = None, **more: Any) -> Trace:
    files = [operation(0, n, step) for n, step in enumerate((4, 8), 1)]
    return make_trace(
        steps=STEPS,
        ranks=2,
        extra=files,
        step_ms=lambda rank, step: 100.0 + (cost_ms if step in (5, 9) else 0.0) + 50.0 * (step == 1),
        change=change,
        **more,
    )


@pytest.mark.parametrize(("cost_ms", "planned"), [(40.0, 4), (40.0, 100), (0.0, 4), (250.0, 7)])
def test_the_share_of_a_save(cost_ms: float, planned: int) -> None:
    share = cost_ms / (cost_ms + planned * 100.0)
    for bound in (share + 1e-12, share * 0.99 if share else -0.01, share * 1.01 + 0.01):
        finding = save_share([saving(cost_ms)] * 2, every=4, planned=planned, bound=bound, mean_interruption_h=2.0, assumed=True)
        assert finding.value == pytest.approx(share)
        assert finding.accepted is (bound >= share)
        assert finding.samples == 4
    assert finding.details["save_s"] == pytest.approx(cost_ms / 1e3)
    assert finding.details["step_s"] == pytest.approx(0.1)
    assert save_share([make_trace()], every=4, planned=4, bound=0.1, mean_interruption_h=2.0, assumed=True).accepted is None
    mixed = save_share([saving(10.0), saving(10.0), saving(90.0)], every=4, planned=4, bound=0.1, mean_interruption_h=2.0, assumed=False)
    assert mixed.interval == pytest.approx((10 / 410, 90 / 490))
    assert mixed.accepted is None
    assert sleep_to_exceed([saving(40.0)], every=4, bound=0.2) == pytest.approx(1.5e3 * 4 * 0.1 * 0.25)
    assert sleep_to_exceed([saving(40.0)], every=4, bound=0.95) == pytest.approx(1.5e3 * 4 * 0.1 * 9.0, abs=1)
    assert sleep_to_exceed([make_trace()], every=4, bound=0.2) == 1000.0


@pytest.mark.parametrize(
    ("save_s", "mean_s", "best_s"),
    [(2.0, 3600.0, 118.678), (0.0, 3600.0, 0.0), (200.0, 100.0, 100.0), (199.0, 100.0, 199.0), (30.0, 600.0, 170.07)],
)
def test_the_best_interval(save_s: float, mean_s: float, best_s: float) -> None:
    assert optimal_interval_s(save_s, mean_s) == pytest.approx(best_s, abs=0.6)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [4, 8])
@pytest.mark.parametrize(
    ("part", "word"),
    [("param_digest", "parameters"), ("optimizer_digest", "optimizer state"), ("buffer_digest", "buffers"), ("rng", "RNG")],
)
def test_a_save_that_changes_something(rank: int, step: int, part: str, word: str) -> None:
    def begin(own: int, at: int) -> dict[str, Any]:
        same = {
            "param_digest": f"{at - 1:016x}",
            "optimizer_digest": f"o{at - 1}",
            "buffer_digest": f"{0:016x}",
            "rng": f"{(at - 1) * 100 + own:016x}",
        }
        return {**same, part: "other"} if (own, at) == (rank, step + 1) else same

    control = saving(0.0, begin=begin, optimizer_digest=lambda own, at: f"o{at}")
    finding = changes_nothing(control, None)
    assert (finding.accepted, finding.value, finding.bound, finding.samples) == (False, 1, 0, 4)
    assert finding.explanation == f"the save after step {step} changed {word} on rank {rank}"
    sound = saving(
        0.0,
        begin=lambda own, at: {**begin(own, at), part: begin(own, at)[part].replace("other", "") or None},
        optimizer_digest=lambda own, at: f"o{at}",
    )
    assert changes_nothing(sound, None).accepted is True
    without = make_trace(steps=STEPS, ranks=2, param_digest=lambda own, at: "x" if (own, at) == (rank, step) else f"{at:016x}")
    apart = changes_nothing(sound, without)
    assert apart.accepted is False
    assert f"the parameters of rank {rank} differ from step {step} on" in apart.explanation
    assert changes_nothing(sound, make_trace(steps=STEPS, ranks=2)).accepted is True
    drawing = saving(0.0, begin=lambda own, at: {**begin(own, at), "rng": f"r{at}"}, optimizer_digest=lambda own, at: f"o{at}")
    assert (changes_nothing(drawing, None).accepted is True) is (part == "rng")
