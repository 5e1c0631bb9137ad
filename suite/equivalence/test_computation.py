"""Criteria on what is computed from the samples: gradients, losses, parameters."""

from __future__ import annotations

from functools import partial

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.equivalence.agreement import parameters_agree
from suite.equivalence.cause import Contributions, contributions
from suite.equivalence.gradient import another_order, gradients_agree
from suite.equivalence.power import smallest_scale, sweep_steps
from suite.equivalence.shards import parts_agree, sharded
from suite.equivalence.sharing import holding_parts
from suite.equivalence.starts import as_it_runs, exactly, first_gradient, of_several, one_and_several
from suite.equivalence.trajectory import losses_agree, losses_far_apart, own_randomness
from suite.equivalence.usable import size, unusable


@criterion(
    "equivalence.gradient",
    claim="Every world size computes the gradient that one device computes on the same samples, tensor by tensor.",
    twin=Fault("scale_gradient", rank=1, factor=1.01),
    because=r"rank 1's share of the gradient weighs 1\.01 times",
    threshold="the deviation that one device shows on the same samples in other orders, never more than rounding theory allows",
    assumptions=("Forced to float64 with dropout off, the job runs the same code path as in its own precision.",),
    limitations=(
        "Judges the first step of the run in float64; what float32 or bf16 lose is judged by the loss.",
        "Batch statistics that are not synchronised are rejected: they are another gradient.",
    ),
    overturned_by="A tensor whose float64 gradient, computed by hand on the same samples, differs from what the ranks applied.",
)
def test_gradient(audit: Audit) -> None:
    """The ranks' averaged gradient is one device's."""
    alone, permuted, together = one_and_several(first_gradient(audit), audit.worlds)
    if gradients_agree(alone, permuted, together).accepted is False:
        audit.judge(gradients_agree, alone, permuted, together, shares={size(trace): _shares(audit, trace) for trace in together})
    power = _power(audit, alone, permuted) if audit.part == "as_is" and together else ""
    audit.judge(gradients_agree, alone, permuted, together, power=power)


@criterion(
    "equivalence.loss_trajectory",
    claim="As the job runs, the loss at every world size follows one device's, step by step, within the job's own noise.",
    twin=Fault("duplicate_sample", rank=1),  # in every step: a single pair of rows may be too alike to move a loss
    because=r"the loss leaves .* at step \d+: .* its samples differ from one device's from step 1 on",
    threshold="the envelope of permuted one-device runs, with 1 % designed false alarms",
    assumptions=(
        "Another order of the same samples shows how rounding grows; it predicts the deviation of other world sizes within a factor of two.",
    ),
    limitations=(
        "Adam hides a constant factor on all gradients from the loss: equivalence.gradient sees that.",
        "Where the job is random per sample (dropout) the losses are compared in float64 with dropout off.",
    ),
    overturned_by="A run of the same seed and samples whose loss leaves the envelope at some world size.",
)
def test_loss_trajectory(audit: Audit) -> None:
    """The loss curve does not depend on the world size."""
    alone, permuted, together = one_and_several(as_it_runs(audit), audit.worlds)
    seen = not unusable([alone, *permuted], "loss")
    if seen and own_randomness(alone, permuted, "as_run"):
        audit.judge(losses_agree, *one_and_several(exactly(audit), audit.worlds), numerics="exact")
    elif seen and not any(another_order(alone, trace) for trace in permuted):
        start = exactly(audit)
        audit.judge(losses_far_apart, start(world_size=1), of_several(start, audit.worlds))
    else:
        audit.judge(losses_agree, alone, permuted, together)


@criterion(
    "equivalence.ranks_agree",
    claim="All ranks hold the same parameters before the first step and after every step.",
    twin=Fault("desync_gradient", rank=1, factor=1.5, from_step=3),
    because=r"rank 1's (parameters differ from rank 0's|part of the parameters differs from one device's) from step 3 on.* applied another gradient",
    threshold="0 steps after which two ranks differ; where ranks hold different parts, the noise of one device's gradient norms",
    assumptions=("Equal 64-bit digests mean equal parameters: two that differ agree by chance once in 2^64.",),
    limitations=(
        "Parameters are compared by digest, where several ranks hold the same ones.",
        "Of parts that one rank alone holds (FSDP), the gradient that was applied is compared with one device's, by its norm.",
    ),
    overturned_by="Two ranks' saved weights that differ in any bit.",
)
def test_ranks_agree(audit: Audit) -> None:
    """There is one model, not one per rank."""
    together = of_several(as_it_runs(audit), audit.worlds)
    if not any(sharded(trace) for trace in together) or parameters_agree(together).accepted is False:
        audit.judge(parameters_agree, together)
        return
    alone, permuted, _ = one_and_several(as_it_runs(audit), (1,))
    parts = partial(parts_agree, alone=alone, permuted=permuted)
    if own_randomness(alone, permuted, "as_run") or parameters_agree(together, parts).accepted is False:
        # Dropout, and sums rounded to bf16 on each rank, move norms by more than another order does; in float64 neither is there.
        alone, permuted, together = one_and_several(exactly(audit), audit.worlds)
        parts = partial(parts_agree, alone=alone, permuted=permuted, numerics="exact")
    audit.judge(parameters_agree, together, parts)


def _shares(audit: Audit, whole: Trace) -> Contributions:
    """Take the gradient apart: run again with one rank's part multiplied by 0, for each rank in turn. Empty where a run shows nothing.

    Ranks that compute one share of the batch together are muted together, and the last of them is named.
    """
    start, count = first_gradient(audit), size(whole)
    together = [group for group in holding_parts(whole) if len(group) < count]
    ranks = [rank for rank in range(count) if not any(rank in group[:-1] for group in together)]
    muted = {rank: start(world_size=count, faults=(Fault("scale_gradient", rank=rank, factor=0.0),)) for rank in ranks}
    if unusable([whole, *muted.values()], "gradient"):
        return {}
    return contributions(whole.gradients(), {rank: trace.gradients() for rank, trace in muted.items()})


def _power(audit: Audit, alone: Trace, permuted: list[Trace]) -> str:
    """The smallest wrong scale of rank 1's gradient that would have been rejected, found by a sweep on the job itself."""

    def scaled(excess: float) -> Trace:
        fault = Fault("scale_gradient", rank=1, factor=1.0 + excess)
        return first_gradient(audit)(world_size=audit.world_size, faults=(fault,), planted=False)

    return smallest_scale(alone, permuted, {excess: scaled(excess) for excess in sweep_steps(alone, permuted, scaled)})
