"""Judges of samples and draws on the planted faults that they once took for something else: epochs of another length, splits by rank, loops that draw."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fixtures.trace import Trace
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.order import same_samples_each_step
from suite.selftest.findings import accepted, rejected, undecided
from suite.selftest.synthetic import make_trace, sample_of

STEPS = 12


def taken(batches: list[list[int]], ranks: int = 1, **options: Any) -> Trace:
    """A run whose rank r takes every ranks-th sample of each global batch."""
    return make_trace(
        steps=len(batches),
        ranks=ranks,
        samples=lambda rank, step: [sample_of(index) for index in batches[step - 1][rank::ranks]],
        **options,
    )


def dealt(length: int, steps: int, batch: int = 16, fill_to: int = 0) -> list[list[int]]:
    """Global batches of shuffled epochs, the incomplete last one dropped; `fill_to`: each epoch is first filled up with its first samples."""
    found: list[list[int]] = []
    for epoch in range(steps):
        order = random.Random(epoch).sample(range(length), length)
        order += order[: max(0, fill_to - length)]
        found += [order[first : first + batch] for first in range(0, len(order) - batch + 1, batch)]
    return found[:steps]


def test_an_epoch_that_is_longer_with_ranks_is_said_to_be() -> None:
    alone = taken(dealt(47, STEPS))
    rejected(
        each_sample_once(alone, [taken(dealt(47, STEPS, fill_to=48), 2)]),
        "an epoch of the ranks is longer than one device's: 3 steps where that makes 2 (its sampler fills up what one device drops)",
    )
    accepted(each_sample_once(alone, [taken(dealt(47, STEPS), 2)]))


def test_a_rank_that_trains_on_what_one_device_holds_back_is_named() -> None:
    batches = dealt(48, STEPS)
    other = [
        [one if place % 2 == 0 else one + 500 for place, one in enumerate(batch)] for batch in batches
    ]  # rank 1's half is of another split
    held_back = [{"kind": "evaluated", "rank": 0, "step": 4, "samples": [sample_of(index + 500) for index in range(48)], "buffers": "b"}]
    alone = taken(batches, extra=held_back)

    rejected(each_sample_once(alone, [taken(other, 2)]), "rank 1 trains on ")
    rejected(each_sample_once(alone, [taken(other, 2)]), "of which it holds back for evaluation, and ")
    rejected(
        each_sample_once(taken(batches), [taken(other, 2)]),
        "the ranks split the data with different seeds, so what one holds back another trains on",
    )
    accepted(each_sample_once(alone, [taken(batches, 2)]))


@pytest.mark.parametrize("seed", range(10))
def test_drawing_with_replacement_has_no_order_to_repeat(seed: int) -> None:
    draw = random.Random(seed)
    batches = [[draw.randrange(48) for _ in range(16)] for _ in range(STEPS)]
    finding = same_samples_each_step(taken(batches), [taken(batches, 2)])
    accepted(finding)
    assert "they are drawn with replacement" in finding.explanation
    other = [batch[::-1] if step else [0, *batch[1:]] for step, batch in enumerate(batches)]
    changed = batches[0][0] != 0
    assert same_samples_each_step(taken(batches), [taken(other, 2)]).accepted is (not changed)


def test_a_run_within_its_first_epoch_is_not_taken_for_drawing_with_replacement() -> None:
    batches = dealt(1024, STEPS)
    undecided(same_samples_each_step(taken(batches), [taken(batches, 2)]), "no epoch border is crossed")
    twice = [[index // 2 for index in batch] for batch in dealt(600, STEPS)]  # every row is there twice
    undecided(same_samples_each_step(taken(twice), [taken(twice, 2)]), "no epoch border is crossed")


def looping(ranks: int = 1, state: Any = lambda rank, step: f"{rank}.{step}", altered: bool = True, **options: Any) -> Trace:
    """A loop that draws from `noise` in every step. state: of rank and step."""

    def seen(rank: int, step: int) -> dict[str, Any]:
        return {"altered": altered if step < 4 else None, "states": {"torch": "t", "noise": state(rank, step)}}

    rows = lambda rank, step: [f"{ranks * 10000 + step * 100 + rank * 10 + row:016x}" for row in range(4)]  # noqa: E731 - strangers at every world size
    return make_trace(steps=8, ranks=ranks, **{"loop_rng": seen, "samples": rows, **options})


def alone(**options: Any) -> Trace:
    return looping(state=lambda rank, step: f"all {step}", **options)


def same(rank: int, step: int) -> str:
    return f"share {step}"


def test_ranks_that_add_the_same_noise_are_found() -> None:
    words = "ranks 0 and 1 draw the same random numbers from noise in the training loop, from step 1 on"
    rejected(ranks_draw_apart(alone(), [looping(2, same)]), words)
    rejected(ranks_draw_apart(alone(), [looping(4, lambda rank, step: f"share {step}" if rank != 1 else f"own {step}")]), "ranks 0 and 2")


def test_ranks_that_add_noise_of_their_own_are_accepted() -> None:
    finding = ranks_draw_apart(alone(), [looping(2), looping(4)])
    accepted(finding)
    assert "in the training loop" in finding.explanation


@pytest.mark.parametrize(
    "together",
    [
        looping(2, same, altered=False),  # it gives the model what the loader handed over: the draws choose samples
        looping(2, lambda rank, step: f"all {step}"),  # it draws as one device does, for the whole world
        looping(2, lambda rank, step: "still"),  # it draws nothing
        looping(
            2, same, samples=lambda rank, step: [f"{10000 + step * 100 + rank * 2 + row:016x}" for row in range(2)]
        ),  # rows of one device
    ],
)
def test_loops_that_draw_alike_for_a_reason_are_not_found(together: Trace) -> None:
    assert ranks_draw_apart(alone(), [together]).accepted is not False


def test_a_generator_that_begins_again_is_found_with_its_steps() -> None:
    again = looping(2, lambda rank, step: f"{rank}.{(step - 1) % 3}")
    rejected(
        ranks_draw_apart(alone(), [again]),
        "rank 0 draws the same random numbers from noise in the training loop of step 4 as in that of step 1 again: the generator is seeded anew",
    )
    rows: dict[str, Any] = {"samples": lambda rank, step: [f"{(step - 1) % 3 * 100 + rank * 10 + row:016x}" for row in range(4)]}
    order = looping(2, lambda rank, step: f"{rank}.{(step - 1) % 3}", **rows)  # the very rows come again: their order is what is drawn
    assert ranks_draw_apart(alone(), [order]).accepted is not False


def test_dropout_that_begins_again_is_found() -> None:
    def masks(period: int) -> Any:
        return lambda rank, step: [f"{rank}.{step % period}", f"{rank}.{step % period}.5"]

    rejected(
        ranks_draw_apart(make_trace(steps=8), [make_trace(steps=8, ranks=2, forward_rng=masks(3))]),
        "in the forward of step 4 as in that of step 1 again",
    )
    accepted(ranks_draw_apart(make_trace(steps=8), [make_trace(steps=8, ranks=2, forward_rng=masks(100))]))


def test_loops_that_were_not_looked_at_decide_nothing() -> None:
    assert ranks_draw_apart(make_trace(), [make_trace(ranks=2)]).absent
    assert ranks_draw_apart(alone(), [looping(2, same, loop_rng=None)]).absent
