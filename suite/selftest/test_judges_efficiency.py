"""The judges of speed, on times made by hand: who is slow, in what, and when nothing can be said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fixtures.trace import Trace
from suite.efficiency.breakdown import accounted_for
from suite.efficiency.scaling import Room, scales
from suite.efficiency.work import same_work
from suite.selftest.synthetic import ended_well, make_trace, sample_of

ROOM = Room(4, "cores")
STEPS = 12
PHASES = {"data_wait_ms": 2.0, "forward_ms": 30.0, "backward_ms": 50.0, "optimizer_ms": 10.0, "other_ms": 8.0}
Extra = Callable[[int], dict[str, float]]


def timed(
    ranks: int, repeat: int = 0, extra: Extra = lambda rank: {}, exposed_ms: float = 4.0, noise: float = 0.01, share: float | None = None
) -> Trace:
    """A run whose work is split evenly (or `share` of it is left per rank), plus what `extra` adds to a rank's phases.

    All ranks' steps last as long as the slowest one's: the others wait in backward.
    """
    rng = np.random.default_rng(1000 * ranks + repeat)
    split = 1.0 / ranks if share is None else share
    factor = 1.0 + noise * rng.normal()
    own = {rank: {name: split * factor * value + extra(rank).get(name, 0.0) for name, value in PHASES.items()} for rank in range(ranks)}
    slowest = max(sum(phases.values()) for phases in own.values())

    def change(record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] != "step":
            return record
        mine = dict(own[record["rank"]])
        waits = slowest - sum(mine.values()) + (exposed_ms if ranks > 1 else 0.0)
        mine["backward_ms"] += waits
        return {**record, **mine, "exposed_ms": waits, "step_ms": sum(mine.values())}

    return make_trace(steps=STEPS, ranks=ranks, change=change)


def repeats(ranks: int, **options: Any) -> list[Trace]:
    return [timed(ranks, repeat, **options) for repeat in range(6)]


def worked(ranks: int, rows: Callable[[int, int], int] = lambda rank, step: 0, **options: Any) -> Trace:
    """A run whose ranks consume these numbers of rows (0: their even share of 8)."""
    return make_trace(
        steps=STEPS, ranks=ranks, samples=lambda rank, step: [sample_of(row) for row in range(rows(rank, step) or 8 // ranks)], **options
    )


WORK = [worked(1), worked(2), worked(4)]


@pytest.mark.parametrize("bound", [0.7, 0.85])
def test_a_job_that_scales_is_accepted(bound: float) -> None:
    finding = scales(repeats(1), [repeats(2), repeats(4)], WORK, bound, ROOM)

    assert finding.accepted is True, finding.explanation
    assert [point["world_size"] for point in finding.details["scaling"]] == [1, 2, 4]
    assert finding.details["scaling"][0]["efficiency"] == 1.0
    assert finding.value == pytest.approx(100 / 4 / (100 / 4 + 4), abs=0.03)
    assert finding.details["scaling"][1]["samples_per_s"] == pytest.approx(8 / 54 * 1000, rel=0.05)


def test_a_slow_rank_is_named_with_its_phase() -> None:
    slow = repeats(2, extra=lambda rank: {"forward_ms": 60.0} if rank == 1 else {})
    finding = scales(repeats(1), [slow], WORK, 0.7, ROOM)

    assert finding.accepted is False
    assert "rank 1 takes 75" in finding.explanation
    assert "ms in forward where the others take 15" in finding.explanation


def test_blocking_reductions_after_backward_are_communication() -> None:
    """A job that reduces each gradient by hand waits outside of backward, in time that has no name of its own."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] != "step":
            return record
        waits = [["allreduce", 36, record["t_ns"] - 70_000_000, record["t_ns"], "between"]]
        return {**record, "other_ms": 75.0, "exposed_ms": 70.0, "step_ms": 170.0, "collectives": waits}

    reducing = [make_trace(steps=STEPS, ranks=2, change=change) for _ in range(6)]

    assert "exposed communication loses most" in scales(repeats(1), [reducing], WORK, 0.7, ROOM).explanation
    assert (
        "the bottleneck is exposed communication: rank 0 of 2 waits for communication for 41%"
        in accounted_for([reducing], 0.1, 0.3, ROOM).explanation
    )


def test_work_that_grows_with_the_world_is_named() -> None:
    finding = scales(repeats(1), [repeats(2, share=1.0)], [worked(1), worked(2, lambda rank, step: 8)], 0.7, ROOM)

    assert finding.accepted is False
    assert (
        "a step of 2 ranks processes 16 samples where one of one rank processes 8: the work grows with the world size"
        in finding.explanation
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [({"exposed_ms": 60.0}, "exposed communication loses most, 60 ms"), ({"extra": lambda rank: {"data_wait_ms": 60.0}}, "data wait loses most, 60 ms"),
     ({"share": 1.0}, "compute per rank does not shrink")],
)  # fmt: skip
def test_the_phase_that_loses_most_is_named(options: dict[str, Any], words: str) -> None:
    finding = scales(repeats(1), [repeats(2, **options)], WORK, 0.7, ROOM)

    assert finding.accepted is False
    assert words in finding.explanation


def test_an_interval_across_the_bound_is_undecided_and_says_how_many_runs_it_takes() -> None:
    finding = scales(repeats(1, noise=0.1), [repeats(2, noise=0.1)], WORK, 0.9, ROOM)

    assert finding.accepted is None
    assert "undecided, needs about" in finding.explanation
    assert finding.interval is not None
    assert finding.interval[0] < 0.9 < finding.interval[1]


def test_oversubscribed_cores_allow_no_claim() -> None:
    finding = scales(repeats(1), [repeats(4)], WORK, 0.7, Room(2, "cores"))

    assert finding.accepted is None
    assert finding.explanation == "4 ranks on 2 cores are oversubscribed: no scaling claim can be made here"
    assert accounted_for([repeats(4)], 0.1, 0.3, Room(2, "cores")).explanation == finding.explanation


def test_a_compute_bound_step_is_accepted() -> None:
    finding = accounted_for([repeats(1), repeats(2)], 0.1, 0.3, ROOM)

    assert finding.accepted is True, finding.explanation
    assert len(finding.details["breakdown"]) == 3
    assert "spend 5" in finding.explanation
    assert "in backward" in finding.explanation


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra": lambda rank: {"data_wait_ms": 60.0}}, "the bottleneck is data wait: rank "),
        ({"exposed_ms": 60.0}, "the bottleneck is exposed communication: rank "),
        ({"extra": lambda rank: {"other_ms": 60.0}}, "the bottleneck is code outside the named phases: rank "),
        (
            {"extra": lambda rank: {"data_wait_ms": 60.0} if rank == 1 else {}},
            "the bottleneck is data wait: rank 1 of 2 waits for its input for 5",
        ),
    ],
)
def test_the_bottleneck_is_named(options: dict[str, Any], words: str) -> None:
    finding = accounted_for([repeats(1), repeats(2, **options)], 0.1, 0.3, ROOM)

    assert finding.accepted is False
    assert words in finding.explanation


def test_a_save_in_some_steps_is_no_part_of_a_step_but_a_stalling_loader_is() -> None:
    def stretched(phase: str) -> list[Trace]:
        """Every fourth step takes 100 ms more in this phase."""

        def change(record: dict[str, Any]) -> dict[str, Any]:
            if record["kind"] != "step" or record["step"] % 4:
                return record
            return {**record, phase: record[phase] + 100.0, "step_ms": record["step_ms"] + 100.0}

        return [make_trace(steps=STEPS, ranks=2, change=change) for _ in range(6)]

    assert accounted_for([stretched("other_ms")], 0.1, 0.3, ROOM).accepted is True
    stalling = accounted_for([stretched("data_wait_ms")], 0.1, 0.3, ROOM)
    assert stalling.accepted is False
    assert "the bottleneck is data wait" in stalling.explanation


def test_phases_that_do_not_add_up_decide_nothing() -> None:
    torn = make_trace(steps=STEPS, ranks=2, other_ms=-20.0)

    finding = accounted_for([[torn] * 6], 0.1, 0.3, ROOM)

    assert finding.accepted is None
    assert "do not add up" in finding.explanation


def test_equal_work_is_accepted() -> None:
    finding = same_work(WORK[0], WORK[1:])

    assert (finding.accepted, finding.value) == (True, 1.0)
    assert [row[:4] for row in finding.details["table"]["rows"]] == [[1, 12, 96, 8.0], [2, 12, 96, 8.0], [4, 12, 96, 8.0]]


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (
            worked(2, lambda rank, step: 8),
            "2 ranks process 16 samples per step where one device processes 8: the work grows with the world size",
        ),
        (
            worked(2, lambda rank, step: 3 if (rank, step) == (1, 5) else 0),
            "2 ranks process 7 samples in step 5 where one device processes 8: samples are lost",
        ),
        (worked(2, micro_batches=lambda rank, step: 2 if rank else 1), "in step 1 rank 1 accumulates 2 micro-batches and rank 0 1"),
        (make_trace(steps=STEPS - 2, ranks=2), "2 ranks make 10 optimizer steps where one device makes 12"),
    ],
)
def test_other_work_is_named(trace: Trace, words: str) -> None:
    finding = same_work(WORK[0], [trace])

    assert finding.accepted is False
    assert words in finding.explanation


def test_padding_is_work_only_at_the_declared_end_of_an_epoch() -> None:
    def padded(ranks: int) -> Trace:
        """Epochs of 20 samples in three steps; two ranks fill up the last one with a sample seen before."""

        def samples(rank: int, step: int) -> list[str]:
            first = (step - 1) % 3 * 7
            rows = [*range(first, min(first + 7, 20))]
            rows += [0] if ranks == 2 and len(rows) == 6 else []
            return [sample_of(row) for row in rows[rank::ranks]]

        return make_trace(steps=STEPS, ranks=ranks, samples=samples)

    assert same_work(padded(1), [padded(2)]).accepted is False
    assert same_work(padded(1), [padded(2)], padding="DistributedSampler fills up").accepted is True


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (make_trace(steps=STEPS, ranks=2, ended=ended_well(2, rank1=3)), "rank 1 exited with code 3"),
        (make_trace(steps=3, ranks=2), "raise [job] steps"),
        (make_trace(steps=0, ranks=2), "no optimizer step was seen"),
    ],
)
def test_what_cannot_be_timed_decides_nothing(broken: Trace, words: str) -> None:
    for finding in (scales(repeats(1), [[broken] * 6], WORK, 0.7, ROOM), accounted_for([[broken] * 6], 0.1, 0.3, ROOM)):
        assert finding.accepted is None
        assert words in finding.explanation


def test_one_rank_alone_decides_nothing() -> None:
    assert scales(repeats(1), [], WORK[:1], 0.7, ROOM).accepted is None
    assert same_work(WORK[0], []).accepted is None
    assert same_work(WORK[0], [make_trace(ranks=2, samples=None)]).accepted is None
