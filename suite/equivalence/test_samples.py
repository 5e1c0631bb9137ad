"""Criteria on the sample ledger: what each rank trained on. All other equivalence claims rest on these two."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.order import same_samples_each_step
from suite.equivalence.reshuffling import epochs_are_reshuffled, steps_per_epoch
from suite.equivalence.starts import as_it_runs, of_several
from suite.equivalence.workers import workers_are_distinct

_CONTENT = "A sample is known by a hash of the rows the model is given, so two samples count as different when their content differs."


# A loader that fetches a batch ahead has the planted fault a step later than others.
@criterion(
    "equivalence.data_coverage",
    claim="In every epoch each sample is consumed exactly once, by exactly one rank, at every world size.",
    twin=Fault("duplicate_sample", rank=1, step=2),
    because=r"rank 1 consumes 1 sample twice in epoch 1 \(first at step [23]\)|rank 1 takes other samples than rank 0 in step [23]",
    threshold="0 samples consumed too often or not at all, declared padding apart",
    assumptions=(_CONTENT, "One device's run shows what an epoch holds; equal rows of real data are compared as multisets."),
    limitations=("Rows that the job augments at random before they reach the model cannot be recognised again: nothing is decided then.",),
    overturned_by="A sample id logged by the data set itself that is seen twice, or never, in one epoch.",
)
def test_data_coverage(audit: Audit) -> None:
    """Ranks share an epoch without overlap and without gaps."""
    start = as_it_runs(audit)
    alone, together = start(world_size=1), of_several(start, audit.worlds)
    audit.judge(each_sample_once, alone, together, padding=_declared(audit, "padding"))


@criterion(
    "equivalence.data_order",
    claim="Each optimizer step sees the same samples at every world size, and every epoch visits them in a new order.",
    twin=Fault("duplicate_sample", rank=1, step=2),
    because=r"in step [23] 1 of \d+ samples of the global batch is missing|rank 1 takes other samples than rank 0 in step [23]",
    threshold="0 steps whose global batch differs from one device's",
    assumptions=(_CONTENT, "The order of samples within one global batch does not matter to its gradient."),
    limitations=("Reshuffling is judged from the first two epochs that the run reaches.",),
    overturned_by="A step whose sample ids, logged by the data set itself, differ between two world sizes.",
)
def test_data_order(audit: Audit) -> None:
    """A step is the same step at every world size."""
    start = as_it_runs(audit)
    alone, together = start(world_size=1), of_several(start, audit.worlds)
    audit.judge(same_samples_each_step, alone, together, padding=_declared(audit, "padding"), fixed_order=_declared(audit, "fixed_order"))


@criterion(
    "equivalence.shuffle_changes",
    claim="Every epoch visits the samples in an order of its own, at every world size.",
    twin=Fault("replay_epoch"),
    because=r"epoch 2 visits the samples in the order of epoch 1",
    threshold="0 epochs in the order of the one before",
    assumptions=(_CONTENT,),
    limitations=("An epoch of one batch has no order. A run that ends within its first epoch decides nothing.",),
    overturned_by="Two epochs whose sample ids, logged by the data set itself, come in one order.",
)
def test_shuffle_changes(audit: Audit) -> None:
    """No epoch repeats the one before."""
    start = as_it_runs(audit)
    alone = start(world_size=1, planted=False)
    period = steps_per_epoch(alone) if audit.twin else 0
    replay = (Fault("replay_epoch", steps=period),) if period else ()
    together = [start(world_size=size, planted=False, faults=replay) for size in audit.worlds[1:]]
    audit.judge(epochs_are_reshuffled, alone, together, fixed_order=_declared(audit, "fixed_order"))


@criterion(
    "equivalence.workers_distinct",
    claim="No two workers of a DataLoader return the same samples or draw the same random numbers, and none repeats itself in the next epoch.",
    twin=Fault("repeat_worker"),
    because=r"just as worker 0 does|draw the same random numbers",
    threshold="0 pairs of workers that repeat each other",
    assumptions=("What a worker's first three fetches of an epoch show holds for the rest of it.",),
    limitations=("Forked workers are watched, spawned ones are not. Loaders other than torch's are not seen.",),
    overturned_by="Two workers that log the same sample id, or the same augmentation parameters, in one epoch.",
)
def test_workers_distinct(audit: Audit) -> None:
    """More workers load more samples, not the same ones again."""
    start = as_it_runs(audit)
    plain = [start(world_size=size, planted=False) for size in audit.worlds]
    if not audit.twin or workers_are_distinct(plain).absent:
        audit.judge(workers_are_distinct, plain)
    else:
        audit.judge(workers_are_distinct, [start(world_size=audit.world_size)])


def _declared(audit: Audit, capability: str) -> str:
    """The reason under [capabilities], or "" where the job declares no such deviation."""
    reason = audit.job.capabilities.get(capability, "")
    return reason if isinstance(reason, str) else ""
