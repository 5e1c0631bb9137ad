"""Judges of buffers, gradients that are lacking, scalers and rates, on traces made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.equivalence.buffers import buffers_agree
from suite.equivalence.rates import rates_follow_samples
from suite.equivalence.scaler import scalers_agree
from suite.equivalence.unused import every_parameter_is_trained
from suite.selftest.findings import accepted, crashed, rejected, with_model
from suite.selftest.synthetic import make_trace


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
