"""Criteria on the scale of the gradient: who weighs what, in how many parts, at which batch, clipped by which norm, reduced in which precision."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.equivalence.batch_size import batch_leaves_the_scale
from suite.equivalence.clipping import clipping_is_global
from suite.equivalence.micro_batches import micro_batches_weigh_alike, parts_are_the_whole
from suite.equivalence.normalisation import labels_weigh_alike
from suite.equivalence.power import smallest_scale, sweep_steps
from suite.equivalence.precision import reductions_keep_precision
from suite.equivalence.starts import FIRST_STEPS, as_it_runs, first_gradient, of_several, one_and_several
from suite.equivalence.windows import may_have_short_windows, short_windows_weigh_alike

MICRO_BATCHES = 4
_EXACT = "Forced to float64 with dropout off, the job runs the same code path as in its own precision."
_OUTPUT = "The loss is computed from what the outermost module returns, one row for each row of its input."


@criterion(
    "equivalence.normalisation",
    claim="A sample (or label) weighs the same in the gradient, whichever rank it falls to.",
    twin=Fault("scale_loss", rank=1, factor=1.5),
    because=r"rank 1's (labels|samples) weigh 1\.5 times rank 0's",
    threshold="half of the digits of the numbers that are computed in",
    assumptions=(_EXACT, _OUTPUT),
    limitations=(
        "Unequal counts show only in steps that have them; where all ranks have as many, a mean over each rank's own is the same.",
    ),
    overturned_by="A step in which the gradient, computed on one device from the same samples, weighs a rank's samples otherwise.",
)
def test_normalisation(audit: Audit) -> None:
    """The loss is a mean over all samples, not over each rank's."""
    start = first_gradient(audit)
    audit.judge(labels_weigh_alike, start(world_size=1), of_several(start, audit.worlds))


@criterion(
    "equivalence.accumulation",
    claim="A step of several micro-batches applies the gradient of one batch.",
    twin=Fault("scale_loss", factor=1.5, micro=2),
    because=r"micro-batch \d+ weigh 1\.5 times|deviates most",
    threshold="the deviation that one device shows on the same samples in other orders; without [job] accumulate, half of the digits of a label's weight",
    assumptions=(_EXACT,),
    limitations=(
        "Judged at the largest world, in four micro-batches, or in as many as the job itself makes.",
        "A short window at the end of an epoch shows only within the run's steps, and where the loss is a cross-entropy that is a mean.",
    ),
    overturned_by="A gradient in parts that differs from the one in one batch of the same samples.",
)
def test_accumulation(audit: Audit) -> None:
    """K micro-batches are one batch."""
    start = first_gradient(audit)
    if audit.job.accumulate is None:
        plain = [start(world_size=size, planted=False) for size in audit.worlds]
        absent = micro_batches_weigh_alike(plain).absent
        if audit.twin is None and not absent:
            _judge_short_windows(audit, [as_it_runs(audit)(world_size=size) for size in audit.worlds])
        audit.judge(micro_batches_weigh_alike, plain if absent or not audit.twin else [start(world_size=audit.world_size)])
        return
    if audit.twin is None and may_have_short_windows(as_it_runs(audit)(world_size=1)):
        _judge_short_windows(audit, [as_it_runs(audit)(world_size=1, micro_batches=MICRO_BATCHES)])
    whole = start(world_size=audit.world_size, micro_batches=1, planted=False)
    split = start(world_size=audit.world_size, micro_batches=MICRO_BATCHES)
    orders = [start(world_size=1, permute=seed, planted=False) for seed in range(1, 6)]
    audit.judge(parts_are_the_whole, start(world_size=1, planted=False), orders, whole, split)


def _judge_short_windows(audit: Audit, traces: list[Trace]) -> None:
    """Only a mistake counts: that none was seen there is no proof of the claim."""
    if short_windows_weigh_alike(traces).accepted is False:
        audit.judge(short_windows_weigh_alike, traces)


@criterion(
    "equivalence.batch_scaling",
    claim="The gradient is a mean over the batch: in a batch twice as large each sample weighs half.",
    twin=Fault("scale_loss", by="rows"),
    because=r"summed over its samples",
    threshold="half of the digits of the numbers that are computed in",
    assumptions=(_EXACT, _OUTPUT, "The first step of a run with twice the batch holds the samples of the usual one."),
    limitations=("Whether the learning rate is right for another batch is not judged.",),
    overturned_by="Two batch sizes at which the gradient of equal samples has another scale.",
)
def test_batch_scaling(audit: Audit) -> None:
    """The scale of the gradient does not depend on the batch."""
    start, twice = first_gradient(audit), 2 * audit.job.global_batch
    sizes = [audit.world_size] if audit.twin else sorted({1, audit.world_size})
    audit.judge(batch_leaves_the_scale, [(start(world_size=size), start(world_size=size, global_batch=twice)) for size in sizes])


@criterion(
    "equivalence.clipping",
    claim="Where gradients are clipped, it is by the norm of the whole gradient, the same on every rank, and their direction is kept.",
    twin=Fault("clip_by_part", rank=1),
    because=r"rank 1 clips by a norm of|direction of the gradient is not kept",
    threshold="what rounding does to a norm over all parameters, taken as a random walk of ten standard deviations",
    assumptions=("Two optimizers whose gradients are each clipped by themselves train two models, of which each keeps its direction.",),
    limitations=(
        "Clipping by hand is judged by the norm that is applied, where one device's first two steps show that it clips to one norm; else it is left open.",
        "The direction is looked at the first four times that gradients are clipped.",
    ),
    overturned_by="A step in which the norm that a rank clips by is not that of the assembled gradient.",
)
def test_clipping(audit: Audit) -> None:
    """One gradient, one norm."""
    start = as_it_runs(audit)
    alone = start(world_size=1, planted=False)
    plain = [start(world_size=size, planted=False) for size in audit.worlds[1:]]
    absent = clipping_is_global(alone, plain).absent
    audit.judge(clipping_is_global, alone, plain if absent or not audit.twin else [start(world_size=audit.world_size)])


@criterion(
    "equivalence.reduce_precision",
    claim="As the job runs, gradients are reduced in no coarser numbers than their parameters have, and the first differs from one device's by rounding alone.",
    twin=Fault("coarse_reduce", dtype="bfloat16"),
    because=r"reduced in bfloat16",
    threshold="the parameters' own dtype, and the deviation that one device shows on the same samples in other orders",
    assumptions=("All reductions pass torch.distributed's operations.",),
    limitations=("Where the job is random per sample only the dtype is judged.",),
    overturned_by="A reduction in a coarser dtype, or a first gradient that deviates by more than other orders of its samples make it.",
)
def test_reduce_precision(audit: Audit) -> None:
    """The sum over ranks keeps its digits."""
    start = as_it_runs(audit)
    if audit.twin:
        orders = [start(world_size=1, permute=seed, planted=False) for seed in range(1, 6)]
        audit.judge(reductions_keep_precision, start(world_size=1, planted=False), orders, [start(world_size=audit.world_size)])
        return
    alone, permuted, together = one_and_several(start, audit.worlds)
    audit.judge(reductions_keep_precision, alone, permuted, together, power=_power(audit, alone, permuted) if together else "")


def _power(audit: Audit, alone: Trace, permuted: list[Trace]) -> str:
    """The smallest wrong scale of rank 1's gradient that would have been rejected in the job's own numbers."""

    def scaled(excess: float) -> Trace:
        fault = Fault("scale_gradient", rank=1, factor=1.0 + excess)
        return audit.run(level="gradient", steps=FIRST_STEPS, world_size=audit.world_size, faults=(fault,), planted=False)

    return smallest_scale(alone, permuted, {excess: scaled(excess) for excess in sweep_steps(alone, permuted, scaled)}, "as the job runs")
