"""From raw events to scores by the registered artifact alone."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.inputs import InputDamage, with_fault
from suite.inputs.cases import record_inputs
from suite.release.programs import candidate, release_of, scored
from suite.release.scores import serves_what_was_trained


@criterion(
    "release.serialization",
    claim="Raw events scored from the registered artifact, in a fresh process without the training code, get the scores that the training side gives.",
    twin=Fault("input_other_unit"),
    because=r"scores differ from the training side's by up to",
    threshold="0 records whose score differs by more than the declared tolerance; 0 training modules imported",
    needs=("release", "records"),
    min_world=1,
    assumptions=(
        "the reference was computed by the model in memory, before it was exported",
        "the feature code is shared by training and inference on purpose; its digest is part of the artifact, and other code is refused",
    ),
    limitations=(
        "one machine and one version of torch",
        "the candidate is trained for a short time: its scores are real, its quality is not the point here",
    ),
    overturned_by="a record, a torch version or a device for which the artifact's score differs from the trained model's",
)
def test_serialization(audit: Audit) -> None:
    """What is served is what was trained."""
    release = release_of(audit)
    damage = with_fault(InputDamage("untouched", record_inputs(audit.job)[0]), audit.twin) if audit.twin else None
    reference = candidate(audit).files[release.reference]
    audit.judge(
        serves_what_was_trained, scored(audit, damage), reference,
        scores=release.scores, tolerance=release.tolerance, training_code=release.training_code,
    )  # fmt: skip
