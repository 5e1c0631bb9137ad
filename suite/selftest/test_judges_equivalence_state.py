"""Judges of buffers, gradients that are lacking, scalers, rates, draws, workers, repeats and tiny sets, on traces made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from reports.evidence import Finding
from suite.equivalence.buffers import buffers_agree
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.overfit import tiny_set_is_learnt
from suite.equivalence.rates import rates_follow_samples
from suite.equivalence.repeats import run_repeats_itself
from suite.equivalence.reshuffling import epochs_are_reshuffled, steps_per_epoch
from suite.equivalence.scaler import scalers_agree
from suite.equivalence.unused import every_parameter_is_trained
from suite.equivalence.workers import workers_are_distinct
from suite.selftest.synthetic import ended_well, make_trace, sample_of


def with_model(**changed: Any) -> Any:
    def change(record: Record) -> Record:
        return {**record, **changed} if record["kind"] == "model" else record

    return change


def crashed() -> Trace:
    return make_trace(ranks=2, ended=ended_well(2, rank1=1))


def accepted(finding: Finding) -> None:
    assert finding.accepted is True, finding.explanation


def rejected(finding: Finding, words: str) -> None:
    assert finding.accepted is False, finding.explanation
    assert words in finding.explanation


def buffered(at: Any, behind: Any = None, **options: Any) -> Trace:
    """`at(rank, step)` is the digest of the running mean as the forward begins."""
    return make_trace(
        ranks=2, change=with_model(buffers=["norm.running_mean", "norm.count"]), buffer_digest=behind or "same",
        buffers=lambda rank, step: {"all": at(rank, step), "each": [at(rank, step), "c"]}, **options,
    )  # fmt: skip


def test_buffers_that_are_sent_round_agree_although_each_forward_moves_them_apart() -> None:
    finding = buffers_agree([buffered(lambda rank, step: f"b{step}", behind=lambda rank, step: f"own{rank}")])

    accepted(finding)
    assert "behind 6 forwards they differ by that one update" in finding.explanation
    assert finding.samples == 6


def test_equal_buffers_need_no_excuse() -> None:
    finding = buffers_agree([buffered(lambda rank, step: f"b{step}")])

    accepted(finding)
    assert "behind" not in finding.explanation


def test_a_rank_with_statistics_of_its_own_is_named() -> None:
    finding = buffers_agree([buffered(lambda rank, step: f"b{rank if step > 1 else 0}")])

    rejected(
        finding, "2 ranks: rank 1's buffers differ from rank 0's when step 2 begins (norm.running_mean): each rank keeps running statistics"
    )


def test_another_buffer_is_not_blamed_on_batch_statistics() -> None:
    trace = make_trace(ranks=2, change=with_model(buffers=["mask"]), buffers=lambda rank, step: {"all": str(rank), "each": [str(rank)]})

    rejected(buffers_agree([trace]), "(mask): something changes them on one rank alone")


def test_buffers_apart_at_an_evaluation_are_found() -> None:
    extra = [{"kind": "evaluated", "rank": rank, "step": 3, "samples": ["a"], "buffers": f"e{rank}"} for rank in (0, 1)]
    rejected(buffers_agree([buffered(lambda rank, step: "b", extra=extra)]), "rank 1 evaluates after step 3 with other buffers than rank 0")
    alone = [extra[0]]
    accepted(buffers_agree([buffered(lambda rank, step: "b", extra=alone)]))


def test_buffers_that_are_not_there_or_not_seen() -> None:
    assert buffers_agree([make_trace(ranks=2)]).absent
    unseen = buffers_agree([make_trace(ranks=2, change=with_model(buffers=["running_mean"]))])
    assert unseen.accepted is None
    assert not unseen.absent
    assert buffers_agree([make_trace(ranks=1)]).accepted is None
    assert "did not end well" in buffers_agree([crashed()]).explanation


def test_every_parameter_with_a_gradient_is_accepted() -> None:
    accepted(every_parameter_is_trained([make_trace(), make_trace(ranks=2)]))


def test_a_gradient_that_one_rank_lacks_in_one_step_is_found() -> None:
    norms: Any = lambda rank, step: [4.0, None if (rank, step) == (1, 3) else 3.0]  # noqa: E731
    rejected(
        every_parameter_is_trained([make_trace(), make_trace(ranks=2, grad_norms=norms)]),
        "2 ranks: rank 1 has no gradient for layer.bias in step 3 while rank 0",
    )


def test_a_parameter_that_never_gets_one_is_found_and_frozen_ones_are_not() -> None:
    traces = [make_trace(ranks=ranks, grad_norms=[4.0, None]) for ranks in (1, 2)]
    rejected(
        every_parameter_is_trained(traces),
        "layer.bias never gets a gradient in 6 steps at any world size: it takes no part in the loss; freeze or remove it",
    )

    def frozen(record: Record) -> Record:
        if record["kind"] != "model":
            return record
        return {**record, "parameters": [{**one, "trained": one["name"] != "layer.bias"} for one in record["parameters"]]}

    accepted(every_parameter_is_trained([make_trace(ranks=ranks, grad_norms=[4.0, None], change=frozen) for ranks in (1, 2)]))
    rejected(
        every_parameter_is_trained([make_trace(), traces[1]]), "2 ranks: layer.bias never gets a gradient, at another world size it does"
    )


def test_gradients_of_skipped_steps_and_zero_ones_do_not_count_as_lacking() -> None:
    skipped = make_trace(
        ranks=2, grad_norms=lambda rank, step: [4.0, None if (rank, step) == (1, 3) else 3.0], skipped=lambda rank, step: step == 3
    )
    accepted(every_parameter_is_trained([make_trace(), skipped]))
    accepted(every_parameter_is_trained([make_trace(grad_norms=[4.0, 0.0])]))
    assert every_parameter_is_trained([crashed()]).accepted is None
    assert every_parameter_is_trained([make_trace(grad_norms=[])]).accepted is None


def test_scalers_that_agree_and_that_do_not() -> None:
    scaled: dict[str, Any] = {"loss_scale": lambda rank, step: 256.0 / step}
    both = make_trace(ranks=2, skipped=lambda rank, step: step == 2, **scaled)
    accepted(scalers_agree([both]))
    assert "skip the same 1 of them" in scalers_agree([both]).explanation
    rejected(
        scalers_agree([make_trace(ranks=2, skipped=lambda rank, step: (rank, step) == (1, 2), **scaled)]),
        "rank 1 skips step 2 and rank 0 takes it",
    )
    rejected(
        scalers_agree([make_trace(ranks=2, skipped=lambda rank, step: (rank, step) == (0, 4), **scaled)]),
        "rank 0 skips step 4 and rank 1 takes it",
    )
    apart = make_trace(ranks=2, loss_scale=lambda rank, step: 128.0 if (rank, step) == (1, 5) else 256.0)
    rejected(scalers_agree([apart]), "rank 1 scales its loss by 128 in step 5, rank 0 by 256")
    assert scalers_agree([make_trace(ranks=2)]).absent
    assert scalers_agree([make_trace()]).accepted is None
    assert not scalers_agree([make_trace()]).absent
    assert scalers_agree([crashed()]).accepted is None


def decayed(step: int, pace: int = 1) -> list[float]:
    return [0.1 / (1 + pace * (step - 1))]


def test_rates_that_follow_the_samples_are_accepted() -> None:
    alone, ranks = make_trace(lr=lambda rank, step: decayed(step)), make_trace(ranks=2, lr=lambda rank, step: decayed(step))

    accepted(rates_follow_samples(alone, [ranks]))
    assert rates_follow_samples(alone, []).accepted is None
    assert rates_follow_samples(alone, [crashed()]).accepted is None


@pytest.mark.parametrize(
    ("lr", "schedule", "words"),
    [
        (lambda rank, step: decayed(step, 2), None, "2 ranks: the learning rate is 0.0333333 in step 2, one device's 0.05: the schedule advances 2 times as fast"),
        (lambda rank, step: [0.2 / step], None, "2 times one device's in every step: scaled with the number of ranks"),
        (lambda rank, step: [0.1 / step * 2**0.5], None, "1.414 times one device's in every step: scaled with the number of ranks"),
        (lambda rank, step: [0.3 / step], None, "3 times one device's in every step"),
        (lambda rank, step: [0.1 / step if step < 4 else 0.01], None, "the learning rate is 0.01 in step 4, one device's 0.025: the schedule depends on the number of ranks"),
        (lambda rank, step: [0.1 / step * (1 + rank)], None, "rank 1's learning rate is 0.2 in step 1, rank 0's 0.1"),
        (lambda rank, step: [0.1 / step] * 2, None, "in step 1, one device's 0.1"),
        (lambda rank, step: [0.1 if step < 3 else 0.02], lambda rank, step: 2 * (step - 1), "the schedule advances 2 times as fast: it is stepped once for each rank"),
    ],
)  # fmt: skip
def test_rates_that_do_not_are_explained(lr: Any, schedule: Any, words: str) -> None:
    alone = make_trace(lr=lambda rank, step: decayed(step), schedule=lambda rank, step: step - 1)

    rejected(rates_follow_samples(alone, [make_trace(ranks=2, lr=lr, schedule=schedule)]), words)


def test_a_schedule_stepped_by_micro_batches_is_found_on_one_device() -> None:
    pace: Any = {"lr": lambda rank, step: decayed(step, 4), "schedule": lambda rank, step: 4 * (step - 1), "micro_batches": 4}

    rejected(
        rates_follow_samples(make_trace(**pace), [make_trace(ranks=2, **pace)]),
        "one device: the schedule advances 4 steps for each optimizer step",
    )
    slow = {**pace, "schedule": lambda rank, step: 3 * (step - 1)}
    accepted(rates_follow_samples(make_trace(**slow), [make_trace(ranks=2, **slow)]))


def test_a_rate_without_a_schedule_is_not_applicable() -> None:
    assert rates_follow_samples(make_trace(), [make_trace(ranks=2)]).absent
    accepted(rates_follow_samples(make_trace(schedule=1), [make_trace(ranks=2, schedule=1)]))
    assert rates_follow_samples(make_trace(lr=[]), [make_trace(ranks=2, lr=[])]).accepted is None


def drawing(same: bool, **options: Any) -> Trace:
    return make_trace(ranks=2, forward_rng=lambda rank, step: [f"s{0 if same else rank}-{step}", f"t{rank}-{step}"], **options)


def fetch(rank: int, worker: int | None = None, n: int = 1, iterator: int = 1, state: str = "a", moves: bool = True, **more: Any) -> Record:
    before = {"torch": state, "python": "p", "dataset.rng": state}
    after = {**before, **({"dataset.rng": state + "'"} if moves else {})}
    noted = {
        "kind": "fetch",
        "rank": rank,
        "iterator": iterator,
        "worker": worker,
        "n": n,
        "before": before,
        "after": after,
        "samples": None,
        "training": True,
    }
    return {**noted, "iterable": False, **more}


def test_ranks_that_draw_apart_are_accepted_and_equal_masks_are_not() -> None:
    accepted(ranks_draw_apart(make_trace(), [drawing(same=False)]))
    rejected(
        ranks_draw_apart(make_trace(), [drawing(same=True)]), "2 ranks: ranks 0 and 1 draw the same random numbers in the forward of step 1"
    )


def test_equal_augmentation_is_found_where_the_rows_are_mapped() -> None:
    alike = [fetch(0), fetch(1)]
    rejected(
        ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=alike)]),
        "ranks 0 and 1 draw the same random numbers from dataset.rng while they load",
    )
    in_workers = [fetch(rank, worker=1) for rank in (0, 1)]
    rejected(ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=in_workers)]), "workers 1 of ranks 0 and 1 draw")
    accepted(ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=[fetch(0), fetch(1, state="b")])]))
    accepted(ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=[fetch(rank, iterable=True) for rank in (0, 1)])]))
    accepted(ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=[fetch(0), fetch(1, n=2)])]))


def test_other_initial_weights_are_found() -> None:
    def other(ranks: tuple[int, ...]) -> Any:
        return lambda record: {**record, "param_digest": "x"} if record["kind"] == "start" and record["rank"] in ranks else record

    rejected(ranks_draw_apart(make_trace(), [make_trace(ranks=2, change=other((1,)))]), "rank 1 begins from other weights than rank 0")
    rejected(ranks_draw_apart(make_trace(), [make_trace(ranks=2, change=other((0, 1)))]), "they depend on the number of ranks")
    sharded = [{"kind": "not_seen", "rank": 0, "signal": "whole_parameters", "reason": "sharded"}]
    assert ranks_draw_apart(make_trace(), [make_trace(ranks=2, change=other((1,)), extra=sharded)]).absent


def test_nothing_drawn_is_not_applicable_only_where_all_was_watched() -> None:
    assert ranks_draw_apart(make_trace(), [make_trace(ranks=2)]).absent
    dropping = ranks_draw_apart(make_trace(), [make_trace(ranks=2, change=with_model(dropouts=["Dropout 1"]))])
    blind = ranks_draw_apart(make_trace(), [make_trace(ranks=2, forward_rng=None)])
    loader = [{"kind": "loader", "rank": 0, "iterator": 1, "workers": 2, "training": True, "step": 1}]
    spawned = ranks_draw_apart(make_trace(), [make_trace(ranks=2, extra=loader)])
    for finding, words in ((dropping, "Dropout 1"), (blind, "not watched in every forward"), (spawned, "only forked ones")):
        assert finding.accepted is None
        assert not finding.absent
        assert words in finding.explanation
    assert ranks_draw_apart(make_trace(), []).accepted is None
    assert ranks_draw_apart(make_trace(), [crashed()]).accepted is None


def loaded(*fetches: Record, workers: int = 2) -> Trace:
    return make_trace(extra=[{"kind": "loader", "rank": 0, "iterator": 1, "workers": workers, "training": True, "step": 1}, *fetches])


def test_distinct_workers_are_accepted() -> None:
    finding = workers_are_distinct([loaded(fetch(0, 0, samples=["a", "b"]), fetch(0, 1, state="c", samples=["d", "e"]))])

    accepted(finding)
    assert "(1 pairs)" in finding.explanation


@pytest.mark.parametrize(
    ("fetches", "words"),
    [
        (
            [fetch(0, 0, samples=["a", "b"]), fetch(0, 1, state="c", samples=["a", "b"])],
            "worker 1 returns 2 of its first 2 samples just as worker 0 does",
        ),
        ([fetch(0, 0), fetch(0, 1)], "workers 0 and 1 draw the same random numbers from dataset.rng: the data set holds a generator"),
        ([fetch(0, 0), fetch(0, 0, iterator=2)], "rank 0: worker 0 draws in iterator 2 what it drew in iterator 1"),
    ],
)
def test_workers_that_repeat_are_explained(fetches: list[Record], words: str) -> None:
    rejected(workers_are_distinct([loaded(*fetches)]), words)


def test_workers_that_share_a_state_but_draw_nothing_are_fine() -> None:
    accepted(workers_are_distinct([loaded(fetch(0, 0, moves=False), fetch(0, 1, moves=False))]))
    accepted(workers_are_distinct([loaded(fetch(0, 0, samples=["a"] * 4), fetch(0, 1, state="c", samples=["a"] * 4))]))
    accepted(workers_are_distinct([loaded(fetch(0, 0, samples=["a", "b"]), fetch(0, 1, state="c", samples=["a", "d"]))]))


def test_workers_that_are_not_there_or_not_seen() -> None:
    assert "no torch DataLoader was iterated" in workers_are_distinct([make_trace()]).explanation
    assert workers_are_distinct([make_trace()]).absent
    assert "loads in the training process" in workers_are_distinct([loaded(workers=0)]).explanation
    assert workers_are_distinct([loaded(workers=1)]).absent
    unseen = workers_are_distinct([loaded()])
    assert unseen.accepted is None
    assert not unseen.absent
    assert workers_are_distinct([crashed()]).accepted is None


def epochs_of(orders: list[list[int]], ranks: int = 1, batch: int = 4) -> Trace:
    rows = [row for order in orders for row in order]

    def samples(rank: int, step: int) -> list[str]:
        share = batch // ranks
        first = (step - 1) * batch + rank * share
        return [sample_of(row) for row in rows[first : first + share]]

    return make_trace(steps=len(rows) // batch, ranks=ranks, samples=samples)


ORDERS = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [5, 3, 9, 1, 0, 11, 2, 7, 4, 10, 8, 6], [2, 0, 7, 9, 11, 3, 1, 5, 6, 8, 4, 10]]


def test_a_new_order_in_every_epoch_is_accepted() -> None:
    finding = epochs_are_reshuffled(epochs_of(ORDERS), [epochs_of(ORDERS, ranks=2)])

    accepted(finding)
    assert finding.samples == 4
    assert steps_per_epoch(epochs_of(ORDERS)) == 3


def test_an_order_that_comes_again_is_rejected_wherever_it_does() -> None:
    first, second, _ = ORDERS
    rejected(
        epochs_are_reshuffled(epochs_of([first, first, second])),
        "one device: epoch 2 visits the samples in the order of epoch 1 (from step 4 on)",
    )
    rejected(
        epochs_are_reshuffled(epochs_of([first, second, second])),
        "one device: epoch 3 visits the samples in the order of epoch 2 (from step 7 on)",
    )
    rejected(epochs_are_reshuffled(epochs_of(ORDERS), [epochs_of([first, first, second], ranks=2)]), "2 ranks: epoch 2 visits")


def test_epochs_that_cannot_be_judged() -> None:
    assert "no epoch border is crossed" in epochs_are_reshuffled(epochs_of(ORDERS[:1])).explanation
    assert "an epoch is one batch" in epochs_are_reshuffled(epochs_of([[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 2, 3]])).explanation
    assert epochs_are_reshuffled(epochs_of(ORDERS), fixed_order="a curriculum").absent
    assert epochs_are_reshuffled(crashed()).accepted is None
    assert steps_per_epoch(crashed()) == 0


def test_a_run_that_repeats_itself_bit_for_bit() -> None:
    finding = run_repeats_itself(make_trace(ranks=2), make_trace(ranks=2))

    accepted(finding)
    assert "the same bit for bit" in finding.explanation


def test_a_repeat_within_rounding_is_accepted_and_said() -> None:
    rounded = make_trace(
        losses=lambda rank, step: [1.0 / step + (1e-7 if step == 4 else 0)],
        param_digest=lambda rank, step: f"x{step}" if step > 2 else f"{step:016x}",
    )
    finding = run_repeats_itself(make_trace(), rounded)

    accepted(finding)
    assert "not the same bit for bit (from step 3 on)" in finding.explanation


def test_a_repeat_that_goes_elsewhere_is_explained() -> None:
    def start(record: Record) -> Record:
        return {**record, "param_digest": "x"} if record["kind"] == "start" else record

    rejected(
        run_repeats_itself(make_trace(), make_trace(losses=lambda rank, step: [1.0 / step + (0.1 if step > 2 else 0)])),
        "leaves the first run at step 3: its loss is 0.4",
    )
    rejected(
        run_repeats_itself(make_trace(), make_trace(losses=lambda rank, step: [float("nan") if step == 2 else 1.0 / step])),
        "leaves the first run at step 2",
    )
    rejected(run_repeats_itself(make_trace(), make_trace(change=start)), "begins from other weights")
    rejected(
        run_repeats_itself(make_trace(), make_trace(samples=lambda rank, step: [sample_of(step + 90)])),
        "takes other samples from step 1 on",
    )
    assert run_repeats_itself(make_trace(), crashed()).accepted is None


def tiny(losses: Any, steps: int = 40, fires: bool = True) -> Finding:
    extra = [{"kind": "fault", "rank": 0, "fault": {"kind": "tiny_set", "rows": 8}, "step": 1, "detail": ""}] if fires else []
    return tiny_set_is_learnt(make_trace(steps=steps, ranks=2, losses=lambda rank, step: [losses(step)], extra=extra), 0.1, 8)


def test_a_loss_that_falls_to_almost_nothing_is_accepted() -> None:
    finding = tiny(lambda step: 2.0 * 0.8**step)

    accepted(finding)
    assert finding.value is not None
    assert finding.value < 0.001


def test_a_loss_that_stays_is_rejected_and_one_that_still_falls_is_not() -> None:
    rejected(tiny(lambda step: 1.0), "nothing is learnt")
    rejected(tiny(lambda step: max(0.5, 1.1 - 0.1 * step)), "0.5 of it is left: it stays there")
    rejected(tiny(lambda step: float("inf") if step > 4 else 1.0), "nothing is learnt")
    falling = tiny(lambda step: 1.0 - 0.01 * step)
    assert falling.accepted is None
    assert "still falling" in falling.explanation
    assert tiny(lambda step: -1.0).accepted is None
    assert tiny(lambda step: 0.9**step, steps=7).accepted is None
    assert "could not be replaced" in tiny(lambda step: 0.5**step, fires=False).explanation
    assert tiny_set_is_learnt(crashed(), 0.1, 8).accepted is None
