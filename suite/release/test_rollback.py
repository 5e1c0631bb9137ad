"""Put a bad artifact into service and see whether, and how soon, the one before is back."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.release.going_back import goes_back
from suite.release.programs import pointers, published, release_of


@criterion(
    "release.rollback",
    claim="A bad artifact in service trips its declared trigger, and the artifact before it is back in service within the allowed time.",
    twin=Fault("artifact_lost", path="release/registry/artifact-*/model.pt2"),
    because=r"it did not go back",
    threshold="the artifact before is in service within the bound rollback_s; a sound artifact is left alone",
    needs=("release",),
    min_world=1,
    assumptions=(
        "recent outcomes are there: the time until they mature comes on top",
        "the pointer of the registry is JSON whose key artifact names what is in service",
    ),
    limitations=(
        "time is that of the monitor's process, from its start; how often it is started is the operator's",
        "one kind of bad artifact, that of [release] incident",
    ),
    overturned_by="a bad artifact that the trigger lets pass, or an artifact before it that cannot be served any more",
)
def test_rollback(audit: Audit) -> None:
    """The trigger fires on the bad artifact, not on the good one, and going back takes bounded time."""
    release, before = release_of(audit), published(audit)
    paths = pointers(release)
    healthy = audit.program(release.rollback, after=before, files=paths)
    incident = audit.program(release.incident, after=before, files=paths, keep=True)
    rolled = audit.program(release.rollback, after=incident, files=paths, faults=(audit.twin,) if audit.twin else ())
    audit.judge(goes_back, before, healthy, incident, rolled, pointer=paths[-1], within_s=audit.targets("rollback_s"))
