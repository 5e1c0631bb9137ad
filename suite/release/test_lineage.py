"""From an artifact back to everything that it came from, and forward to what was decided about it."""

from __future__ import annotations

import hashlib
import json

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.release.lineage import joins_to_everything
from suite.release.programs import candidate, published, release_of, scored
from suite.release.publication import advertised


@criterion(
    "release.lineage",
    claim="Every registered artifact joins to its run, code, data, feature version, configuration and environment, and to the decision, in one query.",
    twin=Fault("artifact_orphaned"),
    because=r"orphan: .* joins to no run",
    threshold="0 gaps in the rows of one SQL query over evidence.sqlite (LINEAGE in reports/evidence.py)",
    needs=("release",),
    min_world=1,
    assumptions=(
        "data, feature version and configuration are what the artifact's manifest says; the audit adds run, commit and environment from its own record",
    ),
    limitations=(
        "the decision reads pending until the audit has ended; it is written by the same command that writes the page",
        "one artifact is registered",
    ),
    overturned_by="an artifact in a registry that the evidence does not hold, or one whose manifest names other data than it was trained on",
)
def test_lineage(audit: Audit) -> None:
    """No artifact without a run, no run without code, data and configuration, nothing without a decision."""
    release = release_of(audit)
    built, control, served = candidate(audit), published(audit), scored(audit).files[release.served]
    if served is None:
        audit.inconclusive(f"[release] score wrote no {release.served}, so the artifact's identity is not known")
    told = json.loads(served)
    files = advertised(control.left, release.published).get(told["artifact"], {})
    digest = hashlib.sha256("".join(f"{one}  {name}\n" for name, one in sorted(files.items())).encode()).hexdigest()
    audit.vouch(told["artifact"], built, sha256=digest, bytes=control.left_bytes, data=told["identity"])
    audit.judge(joins_to_everything, audit.lineage())
