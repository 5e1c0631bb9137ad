"""What the service may cost, how slow and how old it may be, and whom it may not harm."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.release.guardrails import stays_inside
from suite.release.programs import evaluated, release_of, scored
from suite.release.quality import no_slice_is_worse

BOUNDS = ("serving_latency_ms", "serving_cost", "serving_capacity", "model_age_days", "subgroup_regression")


@criterion(
    "release.guardrails",
    claim="Latency, cost, capacity, freshness and the worst subgroup each stay inside the bound that the policy sets.",
    twin=Fault("artifact_scores_of_other_rows", path="release/held_out.parquet", column="probability", where="carrier=UA"),
    because=r"guardrail broken: .*subgroup_regression",
    threshold="0 of 5 bounds of reports/policy.toml broken; a job's [targets] override them",
    needs=("release", "records"),
    min_world=1,
    assumptions=(
        "an hour of one core costs 0.05 US dollars",
        "the times that the service states of itself are right; the audit measures only its whole process",
    ),
    limitations=(
        "one batch on this machine, beside whatever else runs on it: a bound that only a quiet machine would keep is not tested",
        "the twin breaks the subgroup's bound; that each other bound rejects is shown by the judge's own tests",
    ),
    overturned_by="a machine, a batch or a month in which one of the bounds is broken",
)
def test_guardrails(audit: Audit) -> None:
    """Each guardrail holds by itself."""
    release = release_of(audit)
    assessed = evaluated(audit, (audit.twin,) if audit.twin else ())
    bounds = {name: audit.targets(name) for name in BOUNDS}
    subgroup = no_slice_is_worse(assessed, held_out=release.held_out, slices=release.slices, allowed=bounds["subgroup_regression"])
    audit.judge(stays_inside, scored(audit), subgroup, served=release.served, bounds=bounds)
