"""The judges of the sample ledger, on ledgers made by hand: each mistake is named, and no sound ledger is rejected."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from fixtures.trace import Trace
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.ledger import epochs, ledger
from suite.equivalence.order import same_samples_each_step
from suite.selftest.synthetic import ended_well, make_trace, sample_of

BATCH = 8
Order = Callable[[int], Sequence[int]]


def shuffled(length: int, seed: int = 0) -> Order:
    """The order of samples in an epoch, another one for each."""
    return lambda epoch: random.Random(1000 * seed + epoch).sample(range(length), length)


def batches(order: Order, batch: int = BATCH, drop_last: bool = False) -> list[list[int]]:
    """The global batches of many epochs."""
    found: list[list[int]] = []
    for epoch in range(40):
        indices = order(epoch)
        found += [
            list(indices[first : first + batch])
            for first in range(0, len(indices), batch)
            if not drop_last or first + batch <= len(indices)
        ]
    return found


def run(ranks: int, steps: int, made: Sequence[Sequence[int]], change: Callable[[int, int, list[int]], list[int]] | None = None) -> Trace:
    """A run in which rank r takes every ranks-th sample of each global batch, as DistributedSampler does; `change` spoils that."""

    def samples(rank: int, step: int) -> list[str]:
        own = list(made[step - 1][rank::ranks])
        return [sample_of(index) for index in (change(rank, step, own) if change else own)]

    return make_trace(steps=steps, ranks=ranks, samples=samples)


def sound(length: int, steps: int, *, drop_last: bool = False, seed: int = 0) -> tuple[Trace, list[Trace]]:
    made = batches(shuffled(length, seed), drop_last=drop_last)
    return run(1, steps, made), [run(ranks, steps, made) for ranks in (2, 4)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("length", "steps", "drop_last"), [(32, 10, False), (30, 10, False), (30, 8, True), (32, 24, False), (24, 4, False)]
)
def test_sound_ledgers_are_accepted(seed: int, length: int, steps: int, drop_last: bool) -> None:
    alone, together = sound(length, steps, drop_last=drop_last, seed=seed)

    coverage, order = each_sample_once(alone, together), same_samples_each_step(alone, together)

    assert coverage.accepted is True, coverage.explanation
    assert order.accepted is True, order.explanation


@pytest.mark.parametrize("seed", range(5))
def test_real_data_with_equal_rows_is_accepted(seed: int) -> None:
    copies = random.Random(seed).choices(range(200), k=240)
    made = [[copies[index] for index in batch] for batch in batches(shuffled(240, seed), batch=24)]
    alone, together = run(1, 23, made), [run(2, 23, made)]

    assert each_sample_once(alone, together).accepted is True
    assert epochs(ledger(alone)).whole == 2
    assert abs(epochs(ledger(alone)).samples - 240) <= 3, "rows that are equal by chance moved the epoch's end"


@pytest.mark.parametrize(
    ("length", "drop_last", "samples", "windows"),
    [(32, False, 32, [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)]), (30, True, 24, [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10,)]),
     (30, False, 30, [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)])],
)  # fmt: skip
def test_epochs_are_found_in_the_ledger_of_one_device(length: int, drop_last: bool, samples: int, windows: list[tuple[int, ...]]) -> None:
    alone, _ = sound(length, 10, drop_last=drop_last)
    found = epochs(ledger(alone))

    assert (found.samples, list(found.windows)) == (samples, windows)
    assert found.tail == ("dropped" if drop_last else "kept")


def test_an_epoch_may_end_inside_a_batch() -> None:
    order = shuffled(20)
    stream = [index for epoch in range(10) for index in order(epoch)]
    made = [stream[first : first + BATCH] for first in range(0, 160, BATCH)]
    alone, together = run(1, 10, made), [run(2, 10, made)]
    found = epochs(ledger(alone))

    assert found.samples == 20
    assert found.windows[:2] == ((1, 2, 3), (3, 4, 5))
    assert each_sample_once(alone, together).accepted is True
    assert same_samples_each_step(alone, together).accepted is True


def test_ranks_without_a_sampler_are_named() -> None:
    made = batches(shuffled(32))
    alone = run(1, 10, made)
    naive = make_trace(steps=10, ranks=2, samples=lambda rank, step: [sample_of(index) for index in made[step - 1]])

    finding = each_sample_once(alone, [naive])

    assert finding.accepted is False
    assert "rank 1 sees rank 0's samples: 80 of its 80 rows are repeated across ranks in the same step" in finding.explanation
    order = same_samples_each_step(alone, [naive])
    assert order.accepted is False
    assert "step 1 holds 16 samples where one device's holds 8 (0 missing, 8 more); 10 of 10 steps" in order.explanation


def test_same_seed_and_half_batches_are_named() -> None:
    """No sampler, but per-rank batches: both ranks walk through the same shuffled data, half a batch at a time."""
    made = batches(shuffled(32))
    halves = batches(shuffled(32), batch=4)
    finding = each_sample_once(
        run(1, 10, made), [make_trace(steps=10, ranks=2, samples=lambda rank, step: [sample_of(i) for i in halves[step - 1]])]
    )

    assert finding.accepted is False
    assert "rank 1 sees rank 0's samples" in finding.explanation


def _share_of(rank: int, epoch: int) -> Sequence[int]:
    """A sampler that shuffles with a seed of the rank's own."""
    return shuffled(64, seed=rank + 7)(epoch)[rank::2]


def test_seeds_that_differ_between_ranks_are_named() -> None:
    made = batches(shuffled(64))
    own = [batches(partial(_share_of, rank), batch=4) for rank in range(2)]
    spoiled = make_trace(steps=20, ranks=2, samples=lambda rank, step: [sample_of(index) for index in own[rank][step - 1]])

    finding = each_sample_once(run(1, 20, made), [spoiled])

    assert finding.accepted is False
    assert "the ranks shuffle with different seeds" in finding.explanation
    assert "never consumed" in finding.explanation


def test_one_repeated_sample_is_traced_to_rank_and_step() -> None:
    made = batches(shuffled(32))
    spoiled = run(2, 10, made, lambda rank, step, own: [own[0], own[0], *own[2:]] if (rank, step) == (1, 3) else own)

    finding = each_sample_once(run(1, 10, made), [spoiled])

    assert (finding.accepted, finding.value) == (False, 2)
    assert "rank 1 consumes 1 sample twice in epoch 1 (first at step 3), and 1 sample of its share is never consumed" in finding.explanation


def test_one_skipped_sample_is_traced_to_rank_and_step() -> None:
    made = batches(shuffled(32))
    spoiled = run(2, 10, made, lambda rank, step, own: own[:-1] if (rank, step) == (1, 6) else own)

    finding = each_sample_once(run(1, 10, made), [spoiled])

    assert (finding.accepted, finding.value) == (False, 1)
    assert "1 sample of epoch 2 is never consumed: rank 1 takes 3 rows at step 6" in finding.explanation


def test_padding_is_honoured_only_where_it_is_declared() -> None:
    order = shuffled(30)
    made = batches(order)
    padded = batches(lambda epoch: [*order(epoch), *order(epoch)[:2]])
    alone, together = run(1, 10, made), [run(4, 10, padded)]

    refused, declared = each_sample_once(alone, together), each_sample_once(alone, together, padding="DistributedSampler fills up")

    assert refused.accepted is False
    assert "filled up with 2 samples consumed before; declare it" in refused.explanation
    assert declared.accepted is True
    assert same_samples_each_step(alone, together).accepted is False
    assert same_samples_each_step(alone, together, padding="DistributedSampler fills up").accepted is True


def test_declared_padding_excuses_nothing_else() -> None:
    made = batches(shuffled(32))
    spoiled = run(2, 10, made, lambda rank, step, own: [*own, own[0]] if (rank, step) == (1, 3) else own)

    assert each_sample_once(run(1, 10, made), [spoiled], padding="declared").accepted is False
    assert same_samples_each_step(run(1, 10, made), [spoiled], padding="declared").accepted is False


def test_workers_that_each_read_everything_are_named_on_one_device_already() -> None:
    made = [batch for batch in batches(shuffled(32)) for _ in range(2)]  # worker 0's batch, then worker 1's
    alone, together = run(1, 20, made), [run(2, 20, made)]

    finding = each_sample_once(alone, together)

    assert finding.accepted is False
    assert "every sample 2 times in an epoch: each loader worker reads the whole data set" in finding.explanation


def twice(rank: int, step: int, own: list[int]) -> list[int]:
    return [*own, *own]


def test_a_batch_that_the_model_is_given_twice_counts_once() -> None:
    made = batches(shuffled(32))
    spoiled = run(2, 10, made, lambda rank, step, own: [own[0], own[0], *own[2:]] * 2 if (rank, step) == (1, 2) else [*own, *own])

    accepted = each_sample_once(run(1, 10, made, twice), [run(2, 10, made, twice)])
    rejected = each_sample_once(run(1, 10, made, twice), [spoiled])

    assert accepted.accepted is True, accepted.explanation
    assert rejected.accepted is False
    assert "rank 1 consumes 1 sample twice in epoch 1 (first at step 2)" in rejected.explanation
    order = same_samples_each_step(run(1, 10, made, twice), [spoiled])
    assert "in step 2 1 of 8 samples of the global batch is missing" in order.explanation
    assert same_samples_each_step(run(1, 10, made, twice), [run(2, 10, made)]).accepted is False, "given once by the ranks"


def test_rows_repeated_in_several_backward_passes_of_a_step_decide_nothing() -> None:
    made = batches(shuffled(32))
    alone = make_trace(steps=10, micro_batches=2, samples=lambda rank, step: [sample_of(index) for index in made[step - 1] * 2])

    finding = each_sample_once(alone, [run(2, 10, made, twice)])

    assert finding.accepted is None
    assert "every row 2 times within a step" in finding.explanation


def test_a_forgotten_set_epoch_is_named() -> None:
    order = shuffled(32)
    fixed = batches(lambda epoch: order(0))

    finding = same_samples_each_step(run(1, 10, batches(order)), [run(2, 10, fixed)])

    assert finding.accepted is False
    assert (
        "epoch 2 repeats the order of epoch 1 while one device reshuffles: the sampler's set_epoch is never called" in finding.explanation
    )


def test_an_order_that_never_changes_must_be_declared() -> None:
    fixed = batches(lambda epoch: shuffled(32)(0))
    alone, together = run(1, 10, fixed), [run(2, 10, fixed)]

    assert "set_epoch is never called" in same_samples_each_step(alone, together).explanation
    assert same_samples_each_step(alone, together).accepted is False
    assert same_samples_each_step(alone, together, fixed_order="documents are read in file order").accepted is True


def test_an_order_that_depends_on_the_world_size_is_named() -> None:
    finding = same_samples_each_step(run(1, 10, batches(shuffled(32))), [run(2, 10, batches(shuffled(32, seed=5)))])

    assert finding.accepted is False
    assert "the order depends on the world size" in finding.explanation


def test_a_foreign_sample_is_counted() -> None:
    made = batches(shuffled(32))
    spoiled = run(2, 10, made, lambda rank, step, own: [99, *own[1:]] if (rank, step) == (0, 4) else own)

    finding = same_samples_each_step(run(1, 10, made), [spoiled])

    assert (finding.accepted, finding.value) == (False, 1)
    assert "in step 4 1 of 8 samples of the global batch is missing, others stand in" in finding.explanation


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
def test_a_run_within_one_epoch_decides_nothing(judge: Callable[..., object]) -> None:
    alone, together = sound(800, 6)
    finding = judge(alone, together)

    assert finding.accepted is None  # type: ignore[attr-defined]
    assert "raise [job] steps" in finding.explanation  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_sampling_with_replacement_is_not_judged(seed: int) -> None:
    rng = random.Random(seed)
    made = [rng.choices(range(64), k=BATCH) for _ in range(40)]

    finding = each_sample_once(run(1, 40, made), [run(2, 40, made)])

    assert finding.accepted is None
    assert "with replacement" in finding.explanation


def noisy(ranks: int, made: Sequence[Sequence[int]], kinds: int) -> Trace:
    """Each row in one of `kinds` random versions, drawn otherwise on each rank."""
    draws = [random.Random(100 * ranks + rank) for rank in range(ranks)]
    return run(ranks, 10, made, lambda rank, step, own: [1000 * index + draws[rank].randrange(kinds) for index in own])


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
@pytest.mark.parametrize("kinds", [2, 1000])
def test_rows_that_are_random_per_rank_decide_nothing(judge: Callable[..., object], kinds: int) -> None:
    made = batches(shuffled(32))

    finding = judge(noisy(1, made, kinds), [noisy(2, made, kinds)])

    assert finding.accepted is None  # type: ignore[attr-defined]
    assert "random per rank or epoch" in finding.explanation  # type: ignore[attr-defined]
    assert 'declare it under [capabilities] as "equivalence.data_' in finding.explanation  # type: ignore[attr-defined]


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
def test_random_rows_that_two_ranks_share_are_a_mistake(judge: Callable[..., object]) -> None:
    made = batches(shuffled(32))
    shared = make_trace(steps=10, ranks=2, samples=lambda rank, step: [sample_of(1000 * step + row) for row in range(BATCH // 2)])

    assert judge(noisy(1, made, 1000), [shared]).accepted is False  # type: ignore[attr-defined]


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
def test_a_rank_that_reads_other_data_than_one_device_is_rejected(judge: Callable[..., object]) -> None:
    made = batches(shuffled(32))
    foreign = run(2, 10, made, lambda rank, step, own: [index + 500 * rank for index in own])

    assert judge(run(1, 10, made), [foreign]).accepted is False  # type: ignore[attr-defined]


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
def test_what_cannot_be_seen_decides_nothing(judge: Callable[..., object]) -> None:
    alone, _ = sound(32, 10)
    blind = make_trace(
        ranks=2, samples=None, extra=[{"kind": "not_seen", "rank": 1, "signal": "samples", "reason": "the inputs hold no rows"}]
    )
    dead = make_trace(ranks=2, ended=ended_well(2, rank1=7))

    for traces, words in [([blind], "the inputs hold no rows"), ([dead], "rank 1 exited with code 7"), ([], "only one device")]:
        finding = judge(alone, traces)
        assert finding.accepted is None  # type: ignore[attr-defined]
        assert words in finding.explanation  # type: ignore[attr-defined]
