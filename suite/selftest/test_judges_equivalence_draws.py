"""Judges of draws, workers, orders, repeats and tiny sets, on traces made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from reports.evidence import Finding
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.overfit import tiny_set_is_learnt
from suite.equivalence.repeats import run_repeats_itself
from suite.equivalence.reshuffling import epochs_are_reshuffled, steps_per_epoch
from suite.equivalence.workers import workers_are_distinct
from suite.selftest.findings import accepted, crashed, rejected, with_model
from suite.selftest.synthetic import make_trace, sample_of


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
