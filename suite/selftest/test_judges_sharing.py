"""Judges of samples, weights, evaluations and draws where ranks hold parts of the same layers, or draw their samples at random: on traces made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.trace import Record, Trace, load_trace
from suite.efficiency.work import same_work
from suite.equivalence.batch_size import batch_leaves_the_scale
from suite.equivalence.cause import why_gradients_differ
from suite.equivalence.clipping import clipping_is_global
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.evaluation import metric_is_independent
from suite.equivalence.order import same_samples_each_step
from suite.equivalence.overfit import tiny_set_is_learnt
from suite.equivalence.sharing import holding_parts, once, sharing, strayed
from suite.equivalence.unused import every_parameter_is_trained
from suite.selftest.findings import accepted, rejected, undecided
from suite.selftest.synthetic import make_trace, sample_of, write_trace

LENGTH, BATCH, STEPS = 32, 8, 10
Groups = Mapping[int, Sequence[int]]
PAIRS: Groups = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}


def rows_of(step: int) -> list[int]:
    """The global batch of a step: another order in each epoch of 32."""
    epoch, place = divmod((step - 1) * BATCH, LENGTH)
    return random.Random(epoch).sample(range(LENGTH), LENGTH)[place : place + BATCH]


def mesh(groups: Groups, data: int, part: Callable[[int], int], change: Any = None, told: bool = True, **options: Any) -> Trace:
    """Ranks of which `part(rank)` is the share of the batch, of `data` shares; told: the mesh of the parameters shows who holds parts of the same layers."""

    def samples(rank: int, step: int) -> list[str]:
        own = rows_of(step)[part(rank) :: data]
        return [sample_of(index) for index in (change(rank, step, own) if change else own)]

    def model(record: Record) -> Record:
        return {**record, "sharing": list(groups[record["rank"]])} if told and record["kind"] == "model" else record

    return make_trace(steps=STEPS, ranks=len(groups), samples=samples, change=model, **options)


def alone() -> Trace:
    return mesh({0: (0,)}, 1, lambda rank: 0)


def tensor(**options: Any) -> Trace:
    """Two ranks that hold parts of the same layers and take the same samples."""
    return mesh({0: (0, 1), 1: (0, 1)}, 1, lambda rank: 0, **options)


def both(**options: Any) -> Trace:
    """Four ranks: two shares of the batch, each computed by two ranks together."""
    return mesh(PAIRS, 2, lambda rank: rank // 2, **options)


def other_row(rank: int, step: int, own: list[int]) -> list[int]:
    return [own[0], own[0], *own[2:]] if (rank, step) == (1, 2) else own


@pytest.mark.parametrize("trace", [tensor(), both()])
def test_samples_shared_on_purpose_count_once(trace: Trace) -> None:
    for judge in (each_sample_once, same_samples_each_step, same_work):
        accepted(judge(alone(), [trace]))
    assert len(once(trace)) == STEPS * BATCH


def test_what_the_mesh_does_not_show_is_never_taken_for_purpose() -> None:
    """The same samples on ranks whose parameters say nothing: the commonest mistake of all."""
    unseen = tensor(told=False)
    assert holding_parts(unseen) == ()
    rejected(each_sample_once(alone(), [unseen]), "rank 1 sees rank 0's samples")
    rejected(same_samples_each_step(alone(), [unseen]), "holds 16 samples where one device's holds 8")
    rejected(same_work(alone(), [unseen]), "the work grows with the world size")


def test_ranks_that_hold_parts_of_layers_but_take_other_samples_are_data_parallel_too() -> None:
    """Experts, or parts of a sequence: each rank brings samples of its own."""
    experts = mesh({0: (0, 1), 1: (0, 1)}, 2, lambda rank: rank)
    assert holding_parts(experts) == ((0, 1),)
    assert sharing(experts) == ()
    accepted(each_sample_once(alone(), [experts]))


def test_a_short_batch_is_not_hidden_by_counting_once() -> None:
    """Ranks that should bring shares of their own and all bring the first: half of the batch is missing."""
    same = mesh({0: (0, 1), 1: (0, 1)}, 2, lambda rank: 0)
    rejected(same_samples_each_step(alone(), [same]), "holds 4 samples where one device's holds 8 (4 missing")


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step, same_work])
@pytest.mark.parametrize("make", [tensor, both])
def test_a_rank_that_strays_from_its_group_is_named(judge: Callable[..., Any], make: Callable[..., Trace]) -> None:
    rejected(judge(alone(), [make(change=other_row)]), "rank 1 takes other samples than rank 0 in step 2 (1 of ")


def test_groups_meet_over_any_member() -> None:
    trace = mesh({0: (0, 1), 1: (0, 1, 2), 2: (1, 2)}, 1, lambda rank: 0)
    assert holding_parts(trace) == ((0, 1, 2),)
    assert strayed(trace) == ""


def test_ranks_that_compute_one_batch_may_draw_alike_and_others_may_not() -> None:
    def drawn(rank: int, step: int) -> list[str]:
        return [f"{rank // 2}-{step}", f"{rank // 2}-{step}-moved"]

    accepted(ranks_draw_apart(alone(), [both(forward_rng=drawn)]))
    rejected(ranks_draw_apart(alone(), [both(forward_rng=lambda rank, step: ["a", "b"])]), "ranks 0 and 2 draw the same random numbers")
    assert ranks_draw_apart(alone(), [tensor(forward_rng=lambda rank, step: ["a", "b"])]).absent


@pytest.mark.parametrize("judge", [each_sample_once, same_samples_each_step])
def test_samples_drawn_at_random_by_each_rank_decide_nothing_though_two_meet_by_chance(judge: Callable[..., Any]) -> None:
    def drawing(ranks: int) -> Trace:
        def samples(rank: int, step: int) -> list[str]:
            own = [random.Random(1000 * ranks + 100 * rank + step).randrange(10**6) for _ in range(48 // ranks)]
            return [sample_of(index) for index in ([7, *own[1:]] if step == 3 else own)]

        return make_trace(steps=STEPS, ranks=ranks, samples=samples)

    undecided(judge(drawing(1), [drawing(2)]), "are none of one device's")


def test_equal_inputs_with_other_labels_do_not_count_against_the_batch() -> None:
    def weighed(rows: Sequence[int], weight: float) -> Trace:
        """Sample 0 comes a second time in the larger batch, with another label and so another gradient."""
        seen: set[int] = set()
        norms = [weight * (1.0 + row if row not in seen and not seen.add(row) else 1.001) for row in rows]  # type: ignore[func-returns-value]
        part = {
            "forward": 1, "first": 0, "rows": len(rows), "norms": norms, "valid": [1] * len(rows), "low": [], "high": [], "form": None, "dtype": "float64",
        }  # fmt: skip
        return make_trace(steps=2, samples=[sample_of(row) for row in rows], weights=[part])

    usual = weighed(range(4), 1 / 4)
    accepted(batch_leaves_the_scale([(usual, weighed([*range(7), 0], 1 / 8))]))
    rejected(batch_leaves_the_scale([(usual, weighed([*range(7), 0], 1 / 4))]), "summed over its samples")


def test_a_loss_that_only_weight_decay_moves_is_not_learnt() -> None:
    def tiny(norm: float) -> Trace:
        fault = {"kind": "fault", "rank": 0, "fault": {"kind": "tiny_set"}, "step": 1, "detail": ""}
        return make_trace(steps=40, losses=lambda rank, step: [4.0 - 0.001 * step], grad_norms=[norm, norm], extra=[fault])

    undecided(tiny_set_is_learnt(tiny(1.0), 0.1, 8), "still falling")
    rejected(tiny_set_is_learnt(tiny(0.0), 0.1, 8), "nothing is learnt: every gradient is zero")


def test_shares_that_not_every_tensor_has_are_weighed_by_those_that_have_them() -> None:
    """Tensor parallel: what all ranks hold whole is no rank's share."""
    reference = {"split": np.array([1.0, 2.0, 3.0, 4.0]), "whole": np.array([5.0])}
    wrong = {"split": np.array([1.0, 2.0, 3.03, 4.04]), "whole": np.array([5.0])}
    nothing = np.zeros(1)
    shares = {
        0: {"split": np.array([1.0, 2.0, 0, 0]), "whole": nothing},
        1: {"split": np.array([0, 0, 3.03, 4.04]), "whole": nothing},
    }
    assert (
        why_gradients_differ(reference, {0: wrong, 1: wrong}, 1, 1e-12, shares)
        == "rank 1's share of the gradient weighs 1.01 times what it should"
    )
    other = {**wrong, "whole": np.array([6.0])}
    assert "share" not in why_gradients_differ(reference, {0: other, 1: other}, 1, 1e-12, shares)


def test_gradients_that_are_sums_still_to_be_taken_leave_open_whether_there_are_any() -> None:
    said = {
        "kind": "not_seen",
        "rank": 0,
        "signal": "grad_norms",
        "reason": "the gradient of norm.weight is a sum still to be taken over ranks",
    }
    undecided(every_parameter_is_trained([make_trace(), make_trace(ranks=2, extra=[said])]), "a sum still to be taken over ranks")


def test_flat_parameters_leave_open_whether_there_are_gradients() -> None:
    flat = {"kind": "not_seen", "rank": 0, "signal": "whole_parameters", "reason": "parameters are flattened (FSDP1)"}
    apart = make_trace(ranks=2, extra=[flat], grad_norms=lambda rank, step: [1.0, None] if rank else [None, 1.0])
    undecided(every_parameter_is_trained([make_trace(), apart]), "flattened (FSDP1)")


def test_clipping_on_one_device_alone_is_rejected_only_where_nothing_clips_instead() -> None:
    clip = {"by": "norm", "limit": 1.0, "norm_type": 2.0, "scaled_by": 1.0, "tensors": None}
    single = make_trace(clip=clip, clip_norm=1.0, grad_norms=[0.6, 0.8])
    rejected(
        clipping_is_global(single, [make_trace(ranks=2, left_digest="a", grad_digest="a")]),
        "no torch clipping function is called where one device clips",
    )
    undecided(clipping_is_global(single, [make_trace(ranks=2, left_digest="a", grad_digest="b")]), "what clips there instead is not seen")


def test_an_evaluation_that_leaves_rows_out_is_rejected_though_its_metric_hardly_moves(tmp_path: Path) -> None:

    def evaluating(name: str, value: float, rows: Callable[[int], list[str]], ranks: int = 1) -> Trace:
        extra = [{"kind": "evaluated", "rank": rank, "step": 6, "samples": rows(rank), "buffers": None} for rank in range(ranks)]
        folder = write_trace(tmp_path / name, ranks=ranks, extra=extra)
        (folder / "rank0.log").write_text(f"val loss {value:.6f}\n")
        return load_trace(folder)

    rows = [f"r{row}" for row in range(100)]
    single = evaluating("alone", 1.0, lambda rank: rows)
    permuted = [evaluating(f"order{seed}", 1.0 + 1e-3 * seed, lambda rank: rows) for seed in (1, 2, 3)]
    twice = evaluating("twice", 1.0001, lambda rank: [rows[0], rows[0], *rows[2:50]] if rank == 0 else rows[50:], ranks=2)
    rejected(metric_is_independent(single, permuted, [twice]), "evaluation 1 takes 100 rows where one device takes 100: 1 too many")
    drawn = evaluating("drawn", 1.5, lambda rank: [f"s{rank}-{row}" for row in range(50)], ranks=2)
    undecided(metric_is_independent(single, permuted, [drawn]), "evaluations draw their rows at random")
