"""Stop a run on some ranks and continue it on others: half as many, twice as many, and from a world twice as large."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import Twin, criterion
from fixtures.faults import Fault
from suite.equivalence.starts import CONTROLS, Start, as_it_runs, exactly
from suite.equivalence.trajectory import own_randomness
from suite.equivalence.usable import unusable
from suite.recovery.elastic import Change, goes_on_elastically
from suite.recovery.kills import cadence
from suite.recovery.restore import idle_part


@criterion(
    "recovery.elastic",
    claim="A job that is continued on fewer or more ranks trains on the same samples in each step, and its loss stays within the noise of one device.",
    twins=(
        Twin(Fault("forget", part="position"), r"missing|holds \d+ samples|another order", "position"),
        Twin(Fault("forget", part="optimizer"), r"the loss leaves", "optimizer"),
    ),
    threshold="0 steps with other samples; the loss inside the envelope of permuted one-device runs",
    needs=("checkpoint",),
    assumptions=("another order of the same samples shows how rounding grows, as for equivalence.loss_trajectory",),
    limitations=(
        "one change in each run, after its first checkpoint",
        "equal samples and losses, not equal bits: sums are added in another order",
    ),
    overturned_by="a change of the number of ranks after which a step has other samples or a loss outside the noise",
)
def test_elastic(audit: Audit) -> None:
    """The number of ranks may change between a save and a restore without changing what is learnt."""
    if not audit.claims("elastic"):
        audit.not_applicable(
            "the job does not claim that another number of ranks can go on with its checkpoints ([capabilities] elastic = true)"
        )
    start, numerics = _numerics(audit)
    pairs = [(audit.world_size, audit.world_size // 2), (audit.world_size // 2, audit.world_size), (2 * audit.world_size, audit.world_size)]
    possible = [pair for pair in pairs if _divides(audit, *pair)]
    left_out = [f"from {one} to {two} ranks the global batch does not divide" for one, two in pairs if (one, two) not in possible]
    changes = [_change(audit, start, *pair) for pair in (possible if audit.twin is None else possible[:1])]
    if audit.twin is not None and changes and (idle := idle_part(changes[0].killed, changes[0].resumed, audit.twin["part"])):
        audit.not_applicable(idle)
    permuted = [start(world_size=1, permute=seed, planted=False) for seed in range(1, CONTROLS + 1)]
    declared = {name: str(audit.job.capabilities[name]) for name in ("padding", "fixed_order") if name in audit.job.capabilities}
    audit.judge(
        goes_on_elastically, start(world_size=1, planted=False), permuted, changes, numerics=numerics, left_out=left_out, **declared
    )


def _numerics(audit: Audit) -> tuple[Start, str]:
    """As the job runs; in float64 with dropout off where it draws random numbers per sample, so that no two of its runs compare."""
    start = as_it_runs(audit)
    alone, permuted = start(world_size=1, planted=False), [start(world_size=1, permute=1, planted=False)]
    random = not unusable([alone, *permuted], "loss") and bool(own_randomness(alone, permuted, "as_run"))
    return (exactly(audit), "exact") if random else (as_it_runs(audit), "as_run")


def _divides(audit: Audit, *worlds: int) -> bool:
    return "{per_rank_batch}" not in audit.job.command or all(audit.job.global_batch % world == 0 for world in worlds)


def _change(audit: Audit, start: Start, before: int, after: int) -> Change:
    kill = Fault("kill", rank=0, step=min(cadence(audit) + 2, audit.job.steps))
    killed = start(world_size=before, faults=(kill,), planted=False)
    return Change(before, after, killed, start(world_size=after, resume_from=killed))
