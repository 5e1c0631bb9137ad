"""Judges of weights, micro-batches, batch sizes, clipping, precision and evaluation, on traces made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.trace import Record, Trace
from suite.equivalence.batch_size import batch_leaves_the_scale
from suite.equivalence.clipping import clipping_is_global
from suite.equivalence.evaluation import metric_is_independent, printed
from suite.equivalence.micro_batches import micro_batches_weigh_alike, parts_are_the_whole
from suite.equivalence.normalisation import labels_weigh_alike
from suite.equivalence.precision import reductions_keep_precision
from suite.equivalence.weights import by_weight, parts, total_weight
from suite.selftest.findings import accepted, crashed, rejected, undecided
from suite.selftest.synthetic import make_trace, sample_of

ROWS = 8


def slope(rank: int, row: int) -> float:
    """The gradient at the output of a row whose weight is 1: another for each."""
    return 0.5 + 0.1 * (rank * 100 + row) % 1.0


def weighed(
    ranks: int = 1, *, valid: Any = lambda rank, row: 1, weight: Any, form: str | None = "cross-entropy", micro: int = 1, rows: int = ROWS
) -> Trace:
    """A run whose rows (first step) have `valid(rank, row)` labels of `weight(rank, row)` each; rows of ranks one after the other."""
    share = rows // ranks

    def weights(rank: int, step: int) -> list[dict[str, Any]]:
        if step > 1:
            return []
        made = []
        for number in range(micro):
            first, count = number * share // micro, share // micro
            own = range(first, first + count)
            each = [weight(rank, row) for row in own]
            norms = [one * slope(0, rank * share + row) * valid(rank, row) ** 0.5 for one, row in zip(each, own, strict=True)]
            known = each if form else []
            made.append(
                {"forward": number + 1, "first": first, "rows": count, "dtype": "float64", "form": form, "norms": norms,
                 "valid": [valid(rank, row) for row in own], "low": known, "high": known}
            )  # fmt: skip
        return made

    return make_trace(
        steps=2,
        ranks=ranks,
        weights=weights,
        micro_batches=micro,
        samples=lambda rank, step: [sample_of(step * 100 + rank * share + row) for row in range(share)],
    )


@pytest.mark.parametrize("form", ["cross-entropy", None])
def test_labels_that_weigh_alike_are_accepted(form: str | None) -> None:
    finding = labels_weigh_alike(
        weighed(weight=lambda rank, row: 1 / 8, form=form), [weighed(2, weight=lambda rank, row: 1 / 4, form=form)]
    )

    accepted(finding)
    assert "a mean over each rank's own could not be told apart" in finding.explanation
    assert ("add up to 1 (a mean)" in finding.explanation) is (form is not None)


def uneven(rank: int, row: int) -> int:
    return 3 if rank else 1


def test_a_mean_over_each_ranks_own_labels_is_found_and_the_global_one_is_not() -> None:
    alone = weighed(valid=lambda rank, row: uneven(row // 4, row), weight=lambda rank, row: 1 / 16)
    own = weighed(2, valid=uneven, weight=lambda rank, row: 1 / (12 if rank else 4))
    right = weighed(2, valid=uneven, weight=lambda rank, row: 1 / 16 * 2)

    rejected(
        labels_weigh_alike(alone, [own]),
        "2 ranks: in step 1 rank 1's labels weigh 0.3333 times rank 0's: each rank divides by its own count of labels (4, 12)",
    )
    accepted(labels_weigh_alike(alone, [right]))
    assert "could not be told apart" not in labels_weigh_alike(alone, [right]).explanation


def test_a_mean_over_samples_of_uneven_length_is_a_law_of_its_own() -> None:
    alone = weighed(valid=lambda rank, row: 1 + row % 2, weight=lambda rank, row: 1 / 8 / (1 + row % 2))
    ranks = weighed(2, valid=lambda rank, row: 1 + row % 2, weight=lambda rank, row: 1 / 4 / (1 + row % 2))
    finding = labels_weigh_alike(alone, [ranks])

    accepted(finding)
    assert "every sample weighs the same" in finding.explanation


def test_a_rank_that_multiplies_its_loss_is_found_whatever_the_loss_is() -> None:
    for form in ("cross-entropy", None):
        other = weighed(2, weight=lambda rank, row: 1.5 / 4 if rank else 1 / 4, form=form)
        finding = labels_weigh_alike(weighed(weight=lambda rank, row: 1 / 8, form=form), [other])
        rejected(finding, "s weigh 1.5 times rank 0's: its loss is multiplied or normalised otherwise")
        assert finding.value == pytest.approx(0.5)


def test_weights_that_cannot_be_compared() -> None:
    alone = weighed(weight=lambda rank, row: 1 / 8, form=None)
    mixed = weighed(2, weight=lambda rank, row: 1 / 4 * (1 + 0.1 * row), form=None)
    undecided(labels_weigh_alike(alone, [mixed]), "BatchNorm")
    undecided(labels_weigh_alike(make_trace(), [make_trace(ranks=2)]), "the weights of the samples were not seen")
    undecided(labels_weigh_alike(alone, []), "only one rank")
    assert labels_weigh_alike(alone, [crashed()]).accepted is None
    strangers = make_trace(steps=2, ranks=2, weights=mixed.steps["weights"].iloc[0], samples=[sample_of(900 + row) for row in range(4)])
    assert labels_weigh_alike(alone, [strangers]).accepted is None


def test_the_weights_of_a_step_add_up() -> None:
    found = parts(weighed(weight=lambda rank, row: 1 / 8), 1)
    weighing = by_weight(found)

    assert total_weight(found) == pytest.approx(1.0)
    assert weighing is not None
    assert weighing.law == "label"
    assert by_weight(parts(weighed(weight=lambda rank, row: 1 / 8, form=None), 1)) is None
    assert total_weight([]) is None


def test_micro_batches_that_weigh_alike_and_that_do_not() -> None:
    accepted(micro_batches_weigh_alike([weighed(weight=lambda rank, row: 1 / 8, micro=4)]))
    assert micro_batches_weigh_alike([weighed(weight=lambda rank, row: 1 / 8)]).absent
    summed = weighed(weight=lambda rank, row: 4 / 8, micro=4)
    rejected(micro_batches_weigh_alike([summed]), "weigh 4 together = micro-batches per step: means are added up without dividing")
    own = weighed(valid=lambda rank, row: 1 + row, weight=lambda rank, row: 1 / 2 / (26 if row >= 4 else 10), micro=2)
    rejected(
        micro_batches_weigh_alike([own]),
        "micro-batch 2 weigh 0.3846 times those of the first on rank 0: each micro-batch divides by its own count (10, 26 labels)",
    )
    either = weighed(valid=lambda rank, row: 1 + 2 * (row >= 4), weight=lambda rank, row: 1 / 2 / (12 if row >= 4 else 4), micro=2)
    undecided(micro_batches_weigh_alike([either]), "fits a mean over samples as well")
    other = weighed(weight=lambda rank, row: (1.5 if row >= 4 else 1) / 8, micro=2)
    rejected(micro_batches_weigh_alike([other]), "micro-batch 2 weigh 1.5 times those of the first on rank 0: it is normalised otherwise")
    undecided(micro_batches_weigh_alike([weighed(weight=lambda rank, row: 1 / 8, form=None, micro=2)]), "cannot be read off this loss")
    assert micro_batches_weigh_alike([crashed()]).accepted is None


GRADIENT = {"layer.weight": np.arange(1.0, 7.0).reshape(3, 2), "layer.bias": np.ones(3)}


def with_gradient(factor: float = 1.0, micro: int = 1, turn: int = 0, bias: float = 1.0) -> Trace:
    values = {"layer.weight": GRADIENT["layer.weight"] * factor, "layer.bias": GRADIENT["layer.bias"] * factor * bias}
    rows = [sample_of(row) for row in range(8)]
    return make_trace(steps=2, gradients={0: values}, micro_batches=micro, samples=lambda rank, step: rows[turn:] + rows[:turn])


def orders() -> list[Trace]:
    return [with_gradient(1 + 1e-8 * turn, turn=turn) for turn in range(1, 6)]


def test_parts_that_are_the_whole() -> None:
    accepted(parts_are_the_whole(with_gradient(), orders(), with_gradient(), with_gradient(1 + 1e-8, micro=4)))
    rejected(
        parts_are_the_whole(with_gradient(), orders(), with_gradient(), with_gradient(4.0, micro=4)),
        "gradients differ by exactly 4 = micro-batches per step",
    )
    rejected(
        parts_are_the_whole(with_gradient(), orders(), with_gradient(), with_gradient(3.0, micro=4)),
        "all gradients differ by one factor, 3",
    )
    rejected(
        parts_are_the_whole(with_gradient(), orders(), with_gradient(), with_gradient(micro=4, bias=2.0)),
        "no single factor explains it; tensor layer.bias",
    )
    undecided(parts_are_the_whole(with_gradient(), orders(), with_gradient(), with_gradient()), "made 1 backwards in a step instead of 1")
    assert parts_are_the_whole(with_gradient(), orders(), make_trace(), with_gradient(micro=4)).accepted is None


def batches(weight: float, rows: int, **options: Any) -> Trace:
    return weighed(weight=lambda rank, row: weight, rows=rows, **options)


def test_a_mean_over_the_batch_and_a_sum_are_told_apart() -> None:
    accepted(batch_leaves_the_scale([(batches(1 / 8, 8), batches(1 / 16, 16))]))
    rejected(
        batch_leaves_the_scale([(batches(1.0, 8), batches(1.0, 16))]),
        "with 2 times the batch each sample weighs 1 times as much, not 0.5 times: the loss is summed",
    )
    rejected(batch_leaves_the_scale([(batches(1 / 8, 8), batches(1 / 10, 16))]), "the scale of the gradient depends on the batch")
    assert batch_leaves_the_scale([(batches(1 / 8, 8), batches(1 / 8, 8))]).absent
    undecided(batch_leaves_the_scale([(batches(1 / 8, 8), weighed(weight=lambda rank, row: (1 + row) / 16, rows=16))]), "unequally")
    undecided(batch_leaves_the_scale([(make_trace(), make_trace())]), "not seen")
    assert batch_leaves_the_scale([]).accepted is None
    assert batch_leaves_the_scale([(crashed(), crashed())]).accepted is None


def clipped(
    ranks: int = 1, *, norm: Any = 5.0, factor: Any = None, limit: float = 1.0, layout: str = "replicated", change: Any = None, **more: Any
) -> Trace:
    """Norms 4 and 3 on each rank, clipped to 1."""

    def clip(rank: int, step: int) -> dict[str, Any]:
        kept = factor(rank, step) if callable(factor) else [0.2, 0.2]
        noted = {
            "by": "norm",
            "limit": limit,
            "norm_type": 2.0,
            "scaled_by": 1.0,
            "tensors": None,
            "applied": [4.0 * kept[0], 3.0 * kept[1]],
        }
        return {**noted, **more}

    def laid_out(record: Record) -> Record:
        if record["kind"] != "model":
            return record
        return {**record, "parameters": [{**one, "layout": layout} for one in record["parameters"]]}

    return make_trace(steps=3, ranks=ranks, clip=clip, clip_norm=norm, grad_norms=[4.0, 3.0], change=laid_out)


def test_clipping_by_the_whole_norm_is_accepted() -> None:
    finding = clipping_is_global(clipped(), [clipped(2)])

    accepted(finding)
    assert "9 times the norm was that of the whole gradient" in finding.explanation
    assert "it clipped 9 times" in finding.explanation


@pytest.mark.parametrize(
    ("together", "words"),
    [
        (
            clipped(2, norm=lambda rank, step: 3.0 if rank else 5.0),
            "2 ranks: in step 1 rank 1 clips by a norm of 3, rank 0 by 5: a local norm",
        ),
        (clipped(2, norm=lambda rank, step: None if rank else 5.0), "rank 1 does not clip, while rank 0 does"),
        (clipped(2, norm=5 * 2**0.5), "the root of the ranks, so the squares of equal replicas are added up"),
        (clipped(2, norm=4.0), "by a norm of 4, but has one of 5: of a part of the gradient"),
        (clipped(2, norm=6.0), "by a norm of 6, but has one of 5"),
        (clipped(2, factor=lambda rank, step: [0.2, 0.5] if rank else [0.2, 0.2]), "the direction of the gradient is not kept"),
        (clipped(2, scaled_by=256.0), "the gradient is clipped while it carries the loss scale of 256"),
        (clipped(2, norm=5.0, layout="Shard(0)"), "by a norm of 5, but has one of 7.071: of a part of the gradient"),
    ],
)
def test_other_clipping_is_explained(together: Trace, words: str) -> None:
    rejected(clipping_is_global(clipped(), [together]), words)


def test_clipping_that_is_another_or_none() -> None:
    accepted(clipping_is_global(clipped(norm=4.0, tensors=[0]), [clipped(2, norm=4.0, tensors=[0])]))
    assert clipping_is_global(clipped(by="value", norm=None), [clipped(2, by="value", norm=None)]).absent
    none = clipping_is_global(make_trace(), [make_trace(ranks=2)])
    assert none.absent
    assert "bit for bit" in none.explanation
    undecided(clipping_is_global(make_trace(left_digest="other"), [make_trace(ranks=2)]), "clipping by hand cannot be told")
    assert clipping_is_global(make_trace(), [crashed()]).accepted is None


def test_replicas_counted_as_parts_are_found_without_a_norm_to_compare_with() -> None:
    copies = clipped(2, norm=5.0 * 2**0.5, norm_type=2.0, layout="Replicate, Shard(0)")
    rejected(clipping_is_global(clipped(), [copies]), "= the root of the ranks: replicas are counted as parts")


def reduced(dtype: str, ranks: int = 2, factor: float = 1.0) -> Trace:
    rows = [sample_of(row) for row in range(8)]
    values = {name: value * factor for name, value in GRADIENT.items()}
    return make_trace(
        steps=2, ranks=ranks, reduced={dtype: 36}, gradients=dict.fromkeys(range(ranks), values),
        samples=lambda rank, step: rows[rank * 8 // ranks : (rank + 1) * 8 // ranks],
    )  # fmt: skip


def test_reductions_in_the_parameters_dtype_within_noise_are_accepted() -> None:
    finding = reductions_keep_precision(with_gradient(), orders(), [reduced("float32", factor=1 + 2e-8)])

    accepted(finding)
    assert "gradients are reduced in float32, as their parameters are kept" in finding.explanation
    assert "noise floor" in finding.explanation


def test_coarse_reductions_are_rejected_by_dtype_or_by_what_they_leave() -> None:
    rejected(
        reductions_keep_precision(with_gradient(), orders(), [reduced("bfloat16")]),
        "gradients of float32 parameters are reduced in bfloat16, which keeps 8 bits",
    )
    rejected(reductions_keep_precision(with_gradient(), orders(), [reduced("float32", factor=1.003)]), "it is of the size of bfloat16's")
    rejected(reductions_keep_precision(with_gradient(), orders(), [reduced("float32", factor=1.1)]), "rounding does not")


def test_noise_that_cannot_be_measured_leaves_the_dtype() -> None:
    finding = reductions_keep_precision(make_trace(), [], [make_trace(ranks=2)])
    accepted(finding)
    assert "noise could not be measured" in finding.explanation
    random = [with_gradient(1 + 10 * turn, turn=turn) for turn in range(1, 6)]
    accepted(reductions_keep_precision(with_gradient(), random, [reduced("float32")]))
    undecided(reductions_keep_precision(make_trace(), [], [make_trace(ranks=2, reduced={})]), "no reduction of gradients was seen")
    undecided(reductions_keep_precision(make_trace(), [], []), "only one rank")
    assert reductions_keep_precision(make_trace(), [], [crashed()]).accepted is None


def logged(folder: Path, name: str, log: str, rows: Any = lambda rank: ["a", "b"], ranks: int = 1) -> Trace:
    (folder / name).mkdir()
    (folder / name / "rank0.log").write_text(log)
    extra = [{"kind": "evaluated", "rank": rank, "step": 3, "samples": rows(rank), "buffers": "b"} for rank in range(ranks) if rows(rank)]
    return dataclasses.replace(make_trace(ranks=ranks, extra=extra), folder=folder / name)


def test_metrics_are_read_from_what_a_job_prints(tmp_path: Path) -> None:
    log = "step 3 val_loss 0.500 lr 0.1\n{'eval_accuracy': 0.25, 'eval_runtime': 3.14}\nTest loss: 1.5e-3\nepoch 2 loss 0.7\n"
    found = printed(logged(tmp_path, "a", log))

    assert [(one.name, one.value) for one in found] == [("val_loss", 0.5), ("eval_accuracy", 0.25), ("test loss", 0.0015)]
    assert found[0].half_unit == pytest.approx(0.0005)
    assert [one.value for one in printed(logged(tmp_path, "b", "score=7.25"), r"score=([0-9.]+)")] == [7.25]


def test_metrics_that_agree_and_that_do_not(tmp_path: Path) -> None:
    alone = logged(tmp_path, "alone", "val_loss 0.50000")
    others = [logged(tmp_path, f"p{number}", f"val_loss 0.5000{number % 2}") for number in range(3)]
    same = logged(tmp_path, "same", "val_loss 0.50001", rows=lambda rank: ["ab"[rank]], ranks=2)
    padded = logged(tmp_path, "padded", "val_loss 0.52", rows=lambda rank: ["ab"[rank], "a"], ranks=2)
    mean = logged(tmp_path, "mean", "val_loss 0.52", rows=lambda rank: ["ab"[rank]], ranks=2)
    dropped = logged(tmp_path, "dropped", "val_loss 0.52", rows=lambda rank: ["a"] if rank == 0 else [], ranks=2)
    everyone = logged(tmp_path, "everyone", "val_loss 0.50000", rows=lambda rank: ["a", "b"], ranks=2)

    accepted(metric_is_independent(alone, others, [same]))
    accepted(metric_is_independent(alone, others, [everyone]))
    rejected(
        metric_is_independent(alone, others, [padded]),
        "val_loss is 0.52, one device's 0.5 (evaluation 1): evaluation 1 takes 4 rows where one device takes 2: 2 too many",
    )
    rejected(metric_is_independent(alone, others, [mean]), "not put together as one mean")
    rejected(metric_is_independent(alone, others, [dropped]), "1 left out")
    right = logged(tmp_path, "right", "val_loss 0.50000", rows=lambda rank: ["ab"[rank], "a"], ranks=2)
    assert "the metric leaves them out" in metric_is_independent(alone, others, [right]).explanation


def test_weights_that_were_trained_otherwise_are_not_compared(tmp_path: Path) -> None:
    """The metric is of other weights, so its value says nothing of how it was put together."""

    def trained(name: str, log: str, factor: float, turn: int, ranks: int = 1) -> Trace:
        def turned(rank: int, step: int) -> list[str]:
            own = [sample_of(step * ROWS + rank * ROWS // ranks + row) for row in range(ROWS // ranks)]
            return own[turn:] + own[:turn]

        made = make_trace(
            ranks=ranks, samples=turned, losses=lambda rank, step: [(1.0 + 1e-7 * turn) * (factor if step > 2 else 1.0) / step]
        )
        shown = logged(tmp_path, name, log, ranks=ranks)
        evaluations = tuple(record for record in shown.records if record["kind"] == "evaluated")
        return dataclasses.replace(made, folder=shown.folder, records=(*made.records, *evaluations))

    alone = trained("alone", "val_loss 0.50000", 1.0, 0)
    others = [trained(f"p{turn}", f"val_loss 0.5000{turn % 2}", 1.0, turn) for turn in range(1, 5)]
    left = trained("left", "val_loss 0.52", 1.1, 0, ranks=2)
    kept = trained("kept", "val_loss 0.52", 1.0, 0, ranks=2)

    undecided(metric_is_independent(alone, others, [left]), "the weights that 2 ranks evaluate are not those of one device")
    rejected(metric_is_independent(alone, others, [kept]), "val_loss is 0.52, one device's 0.5")


def test_evaluations_that_cannot_be_judged(tmp_path: Path) -> None:
    silent = logged(tmp_path, "silent", "")
    several = logged(tmp_path, "several", "", rows=lambda rank: ["ab"[rank]], ranks=2)
    more = logged(tmp_path, "more", "", rows=lambda rank: ["a", "b", "a"][: 3 - rank], ranks=2)
    none = logged(tmp_path, "none", "", rows=lambda rank: [])
    none_of_two = logged(tmp_path, "none2", "", rows=lambda rank: [], ranks=2)
    shown = logged(tmp_path, "shown", "val_loss 0.5")

    undecided(metric_is_independent(silent, [], [several]), "no metric was seen")
    rejected(metric_is_independent(silent, [], [more]), "too many")
    assert metric_is_independent(none, [], [none_of_two]).absent
    undecided(metric_is_independent(none, [], [none_of_two], "score=([0-9.]+)"), "matches nothing")
    undecided(
        metric_is_independent(shown, [], [logged(tmp_path, "two", "val_loss 0.5", ranks=2)]), "noise of the metric could not be measured"
    )
    rejected(metric_is_independent(shown, [], [several]), "prints 0 evaluation metrics, one device 1")
    undecided(metric_is_independent(shown, [], []), "only one device")
    assert metric_is_independent(shown, [], [crashed()]).accepted is None
