"""Judges of clipping, windows and losses on the planted faults that they once missed: clipped part by part or by hand, short windows, losses that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixtures.trace import Trace
from suite.equivalence.clipping import clipping_is_global
from suite.equivalence.trajectory import losses_agree
from suite.equivalence.windows import may_have_short_windows, short_windows_weigh_alike
from suite.selftest.findings import accepted, crashed, rejected, undecided
from suite.selftest.synthetic import make_trace, sample_of
from suite.selftest.test_judges_equivalence_numbers import STEPS, losses, lossy, orders

WHOLE = 8


def clipped(calls: list[dict[str, Any]], applied: list[float], ranks: int = 1) -> Trace:
    """Norms 4 and 3, clipped by several calls; the norm of the first is that of its tensors."""
    first = calls[0]["tensors"]
    norm = 5.0 if first is None else math.sqrt(sum([16.0, 9.0][place] for place in first))
    clip = {"by": "norm", "limit": 1.0, "norm_type": 2.0, "scaled_by": 1.0, **calls[0], "further": calls[1:], "applied": applied}
    return make_trace(steps=3, ranks=ranks, clip=clip, clip_norm=norm, grad_norms=[4.0, 3.0])


def part(*tensors: int, of_optimizer: bool = False) -> dict[str, Any]:
    return {"tensors": list(tensors), "of_optimizer": of_optimizer}


def test_tensors_clipped_each_by_a_norm_of_its_own_turn_the_gradient() -> None:
    each = [part(0), part(1)]
    rejected(
        clipping_is_global(clipped(each, [1.0, 1.0]), []),
        "the direction of the gradient is not kept (2 parts of it are clipped each by a norm of its own)",
    )
    accepted(clipping_is_global(clipped(each, [4.0, 3.0]), [clipped(each, [4.0, 3.0], 2)]))  # nothing was long enough to be clipped


def test_two_optimizers_that_are_each_clipped_by_themselves_keep_their_directions() -> None:
    accepted(clipping_is_global(clipped([part(0, of_optimizer=True), part(1, of_optimizer=True)], [1.0, 1.0]), []))
    rejected(
        clipping_is_global(clipped([part(0, of_optimizer=True), part(1)], [1.0, 1.0]), []), "the direction of the gradient is not kept"
    )


def test_clipping_the_whole_twice_is_clipping_the_whole() -> None:
    whole = {"tensors": None, "of_optimizer": True}
    accepted(clipping_is_global(clipped([whole, whole], [0.8, 0.6]), [clipped([whole, whole], [0.8, 0.6], 2)]))


def by_hand(
    ranks: int = 1, applied: Any = lambda step: [0.4, 0.3], left: Any = lambda step: [4.0 / step, 3.0 / step], **options: Any
) -> Trace:
    """Gradients that a job shrinks between backward and the optimizer, with no function of torch's: to a norm of 0.5 by default."""
    norm = lambda rank, step: math.hypot(*applied(step))  # noqa: E731
    values = {
        "grad_norms": lambda rank, step: applied(step),
        "grad_norm": norm,
        "left_norms": lambda rank, step: left(step) if step < 3 else None,
    }
    return make_trace(steps=4, ranks=ranks, **{"left_digest": "other", **values, **options})


def test_clipping_by_hand_to_one_norm_is_accepted() -> None:
    finding = clipping_is_global(by_hand(), [by_hand(2), by_hand(4)])
    accepted(finding)
    assert "clipped by hand to a norm of 0.5 in each of the first 2 steps" in finding.explanation


def test_shards_clipped_by_norms_of_their_own_are_found() -> None:
    rejected(
        clipping_is_global(by_hand(), [by_hand(2), by_hand(4, lambda step: [0.5, 0.4])]),
        "4 ranks: one device clips its gradient by hand to a norm of 0.5, but what rank 0 applies in step 1 has one of 0.6403: a local norm",
    )


@pytest.mark.parametrize(
    ("alone", "together"),
    [
        (by_hand(applied=lambda step: [0.4, 0.1]), by_hand(2)),  # turned: something else than clipping
        (by_hand(applied=lambda step: [4.0 / step, 3.0 / step]), by_hand(2)),  # nothing was shrunk
        (by_hand(applied=lambda step: [0.4 / step, 0.3 / step]), by_hand(2)),  # shrunk to no one norm: scaled
        (by_hand(), by_hand(2, lambda step: [0.2, 0.1])),  # below the limit: not clipped there, or too hard
        (by_hand(left_norms=None), by_hand(2)),
    ],
)
def test_other_changes_by_hand_are_left_open(alone: Trace, together: Trace) -> None:
    undecided(clipping_is_global(alone, [together]), "clipping by hand cannot be told")


def windows(counts: list[int], weight: Any, ranks: int = 1, form: str | None = "cross-entropy") -> Trace:
    """Steps of so many micro-batches of two samples; weight(count): what a micro-batch weighs in a step of so many."""

    def records(rank: int, step: int) -> list[dict[str, Any]]:
        count = counts[step - 1]
        each = [weight(count) / 2] * 2
        row = {"rows": 2, "dtype": "float32", "form": form, "norms": each, "valid": [1, 1], "low": each, "high": each}
        return [{"forward": micro + 1, "first": 2 * micro, **row} for micro in range(count)]

    def samples(rank: int, step: int) -> list[str]:
        return [sample_of(step * 1000 + rank * 100 + row) for row in range(2 * counts[step - 1])]

    return make_trace(steps=len(counts), ranks=ranks, weights=records, micro_batches=lambda rank, step: counts[step - 1], samples=samples)


def test_a_short_window_divided_by_the_full_number_is_found() -> None:
    counts = [4, 4, 2, 4]
    rejected(
        short_windows_weigh_alike([windows(counts, lambda count: 1 / count), windows(counts, lambda count: 1 / 4, ranks=2)]),
        "2 ranks: step 3 has 2 micro-batches where others have 4, and its labels weigh 0.5 together instead of 1",
    )
    accepted(short_windows_weigh_alike([windows(counts, lambda count: 1 / count), windows(counts, lambda count: 1 / count, ranks=2)]))


def test_windows_that_show_nothing() -> None:
    undecided(short_windows_weigh_alike([windows([4, 4, 4], lambda count: 1 / 4)]), "no step of fewer micro-batches")
    undecided(short_windows_weigh_alike([windows([1, 1], lambda count: 1.0)]), "no step of fewer micro-batches")
    undecided(
        short_windows_weigh_alike([windows([4, 2], lambda count: 1.0)]), "no step of fewer micro-batches"
    )  # sums: no mean whose part could be missing
    undecided(short_windows_weigh_alike([windows([4, 2], lambda count: 1 / 4, form=None)]), "no step of fewer micro-batches")
    assert short_windows_weigh_alike([crashed()]).accepted is None
    assert not may_have_short_windows(make_trace())
    assert may_have_short_windows(make_trace(samples=lambda rank, step: [sample_of(step * 10 + row) for row in range(8 - step % 2)]))


BROKEN = 5


def broken(rank: int, step: int, ranks: int, seed: int) -> list[float]:
    """Losses of which the last rank's is no number in one step, as a broken sample makes it."""
    return [math.nan] if step == BROKEN and rank == ranks - 1 else losses(seed, 1e-7)(rank, step)


def with_broken_step(ranks: int = 1, seed: int = 0, permute: int = 0, **options: Any) -> Trace:
    return lossy(ranks, permute=permute, **{"losses": lambda rank, step: broken(rank, step, ranks, seed), **options})


def in_orders() -> list[Trace]:
    return [with_broken_step(seed=seed, permute=seed) for seed in range(1, 6)]


def test_a_broken_batch_that_every_world_size_leaves_out_agrees() -> None:
    accepted(losses_agree(with_broken_step(), in_orders(), [with_broken_step(2, 7), with_broken_step(4, 8)]))


def test_a_broken_batch_that_ruins_the_weights_of_the_ranks_alone_is_rejected() -> None:
    def ruined(rank: int, step: int) -> list[float]:
        return broken(rank, step, 2, 7) if step <= BROKEN else [math.nan]

    rejected(
        losses_agree(with_broken_step(), in_orders(), [with_broken_step(2, losses=ruined)]),
        f"in step {BROKEN + 1} the loss of rank 0 is no finite number, and one device's is: an earlier step that had no finite gradient was applied",
    )


def test_ranks_that_make_no_step_behind_a_ruined_one_are_rejected() -> None:
    stopped = make_trace(
        steps=BROKEN, ranks=2, losses=lambda rank, step: broken(rank, step, 2, 7), samples=lambda rank, step: [sample_of(step)],
        grad_norm=lambda rank, step: math.nan if step == BROKEN else 1.0,
    )  # fmt: skip
    rejected(
        losses_agree(with_broken_step(), in_orders(), [stopped]),
        f"in step {BROKEN} the loss of rank 1 is no finite number, the gradient that comes of it is applied all the same, and no step is made behind it, where one device makes {STEPS}",
    )


def test_a_rank_with_nothing_to_learn_is_named() -> None:
    def nothing(rank: int, step: int) -> list[float]:
        return [math.nan] if rank == 1 and step == 3 else losses(7, 1e-7)(rank, step)

    rejected(
        losses_agree(lossy(), orders(), [lossy(2, losses=nothing)]),
        "in step 3 the loss of rank 1 is no finite number, and one device's is (0 / 0",
    )


def test_one_device_that_is_ruined_itself_decides_nothing() -> None:
    always: dict[str, Any] = {"losses": lambda rank, step: [math.nan] if step > 2 else [1.0]}
    undecided(
        losses_agree(lossy(**always), [lossy(permute=seed, **always) for seed in range(1, 6)], [lossy(2, **always)]),
        "not a finite number in every step",
    )
