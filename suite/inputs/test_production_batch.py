"""A batch as production sends it: what had arrived by a moment, nothing later, no outcomes of what is still to come."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.inputs import InputDamage, with_fault
from suite.inputs.cases import record_inputs
from suite.inputs.replay import replays
from suite.release.programs import candidate, release_of, scored


@criterion(
    "inputs.production_batch",
    claim="One production-shaped batch, replayed from raw events as they stood at a moment, gets the scores that the training side computes with hindsight.",
    twin=Fault("input_available_early"),
    because=r"scores differ",
    threshold="0 records decided by that moment whose score differs by more than the declared tolerance",
    needs=("release", "records"),
    min_world=1,
    assumptions=("the availability time of a record is what job.toml says it is",),
    limitations=(
        "one batch, at the moment when most records have happened but are not known yet",
        "one file; how batches are cut and queued is not replayed",
    ),
    overturned_by="a moment at which the replayed scores are others than those computed later",
)
def test_production_batch(audit: Audit) -> None:
    """What is scored in production is what training would have computed, record by record."""
    release = release_of(audit)
    damage = with_fault(InputDamage("cutoff", record_inputs(audit.job)[0]), audit.twin)
    reference = candidate(audit).files[release.reference]
    audit.judge(replays, scored(audit, damage), reference, scores=release.scores, tolerance=release.tolerance)
