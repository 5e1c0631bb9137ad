"""How good the candidate is on months that it has not seen, as a whole and in slices."""

from __future__ import annotations

from fixtures.audit import Audit, Program
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.release.programs import evaluated, release_of
from suite.release.quality import beats_baseline, no_slice_is_worse, protects_the_slice

SHORT = "the candidate is trained for a short time so that the audit stays quick: a full training is judged by the same criterion, with other figures"
EVERY_SECOND = "held-out rows are those that [release] build chose to score, such as every second day"
DAYS = "days are independent of each other; rows of one day are not taken to be"


@criterion(
    "release.baseline",
    claim="On later months that it was not trained on, the candidate is better than the declared baseline.",
    twin=Fault("artifact_scores_of_other_rows", path="release/held_out.parquet", column="probability"),
    because=r"not better than the baseline",
    threshold="the whole 95 % interval of the difference in log-loss lies below 0",
    needs=("release",),
    min_world=1,
    assumptions=(DAYS, "the baseline was fitted on the same months as the candidate"),
    limitations=(SHORT, EVERY_SECOND, "one split in time"),
    overturned_by="another month, or a better baseline, against which the difference is not below 0",
)
def test_baseline(audit: Audit) -> None:
    """The candidate beats the baseline with certainty, by the suite's own reckoning and by the job's."""
    release = release_of(audit)
    audit.judge(beats_baseline, _evaluated(audit), held_out=release.held_out, report=release.report)


@criterion(
    "release.slices",
    claim="In no slice, by time, operation or affected user, is the candidate certainly worse than the declared baseline by more than is allowed.",
    twin=Fault("artifact_scores_of_other_rows", path="release/held_out.parquet", column="probability", where="origin=LGA"),
    because=r"worse than the baseline in \d+ of \d+ slices",
    threshold="the lower end of every slice's interval is at most the bound subgroup_regression (all intervals together 95 %, Bonferroni)",
    needs=("release",),
    min_world=1,
    assumptions=(DAYS,),
    limitations=(
        SHORT,
        EVERY_SECOND,
        "slices below 100 rows are counted and not judged",
        "crossings of two kinds of slices are not looked at",
    ),
    overturned_by="a slice, or more rows of one, in which the candidate is worse by more than the bound with certainty",
)
def test_slices(audit: Audit) -> None:
    """Month and hour, origin and carrier, size of destination and route: n and interval of each, none certainly worse."""
    release = release_of(audit)
    audit.judge(
        no_slice_is_worse, _evaluated(audit), held_out=release.held_out, slices=release.slices, allowed=audit.targets("subgroup_regression")
    )


@criterion(
    "release.high_risk_slice",
    claim="In the slice to protect, the candidate is not worse than the declared baseline by more than is allowed, with the uncertainty counted against it.",
    twin=Fault("artifact_scores_of_other_rows", path="release/held_out.parquet", column="probability", where="evening=True"),
    because=r"cannot be ruled out",
    threshold="the upper end of the 95 % interval in the slice is at most the bound subgroup_regression",
    needs=("release",),
    min_world=1,
    assumptions=(DAYS, "the slice is the one that job.toml names; why it is at risk is written there"),
    limitations=(SHORT, EVERY_SECOND, "missed ones are counted at an alarm threshold of one half"),
    overturned_by="more rows of the slice whose interval reaches above the bound",
)
def test_high_risk_slice(audit: Audit) -> None:
    """Where the risk is highest, harm beyond the bound is ruled out."""
    release = release_of(audit)
    audit.judge(
        protects_the_slice,
        _evaluated(audit),
        held_out=release.held_out,
        high_risk=release.high_risk,
        allowed=audit.targets("subgroup_regression"),
    )


def _evaluated(audit: Audit) -> Program:
    """The evaluation, on the twin's execution with the scores of some rows given to others."""
    return evaluated(audit, (audit.twin,) if audit.twin else ())
