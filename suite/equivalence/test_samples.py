"""Criteria on the sample ledger: what each rank trained on. All other equivalence claims rest on these two."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.order import same_samples_each_step

_CONTENT = "A sample is known by a hash of the rows the model is given, so two samples count as different when their content differs."


@criterion(
    "equivalence.data_coverage",
    claim="In every epoch each sample is consumed exactly once, by exactly one rank, at every world size.",
    twin=Fault("duplicate_sample", rank=1, step=2),
    because=r"rank 1 consumes 1 sample twice in epoch 1 \(first at step 2\)",
    threshold="0 samples consumed too often or not at all, declared padding apart",
    assumptions=(_CONTENT, "One device's run shows what an epoch holds; equal rows of real data are compared as multisets."),
    limitations=("Rows that the job augments at random before they reach the model cannot be recognised again: nothing is decided then.",),
    overturned_by="A sample id logged by the data set itself that is seen twice, or never, in one epoch.",
)
def test_data_coverage(audit: Audit) -> None:
    """Ranks share an epoch without overlap and without gaps."""
    alone = audit.run(world_size=1)
    together = [audit.run(world_size=size) for size in audit.worlds[1:]]
    audit.judge(each_sample_once, alone, together, padding=_declared(audit, "padding"))


@criterion(
    "equivalence.data_order",
    claim="Each optimizer step sees the same samples at every world size, and every epoch visits them in a new order.",
    twin=Fault("duplicate_sample", rank=1, step=2),
    because=r"in step 2 1 of \d+ samples of the global batch is missing",
    threshold="0 steps whose global batch differs from one device's",
    assumptions=(_CONTENT, "The order of samples within one global batch does not matter to its gradient."),
    limitations=("Reshuffling is judged from the first two epochs that the run reaches.",),
    overturned_by="A step whose sample ids, logged by the data set itself, differ between two world sizes.",
)
def test_data_order(audit: Audit) -> None:
    """A step is the same step at every world size."""
    alone = audit.run(world_size=1)
    together = [audit.run(world_size=size) for size in audit.worlds[1:]]
    audit.judge(same_samples_each_step, alone, together, padding=_declared(audit, "padding"), fixed_order=_declared(audit, "fixed_order"))


def _declared(audit: Audit, capability: str) -> str:
    """The reason under [capabilities], or "" where the job declares no such deviation."""
    reason = audit.job.capabilities.get(capability, "")
    return reason if isinstance(reason, str) else ""
