"""Judge: all ranks scale the loss by one factor and skip the same steps.

Each rank's GradScaler looks at its own gradients. Where the flag of an overflow is not shared (sharded gradients, a reduction that comes later), one rank
skips the step that another takes, and from then on they train two models.
"""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import absent, named, several, undecided, unusable


def scalers_agree(together: Sequence[Trace]) -> Finding:
    """Judge the loss scale and the skipped steps of the ranks of each run against each other."""
    runs = several(together)
    if not runs:
        return undecided("there is only one rank, nothing to agree with: start with --world-size 2")
    if reason := unusable(runs):
        return undecided(reason)
    steps = sum(int(trace.steps["step"].nunique()) for trace in runs)
    if not any(trace.steps["loss_scale"].notna().any() or trace.steps["skipped"].any() for trace in runs):
        return absent(f"no rank has an enabled GradScaler in any of {steps} steps")
    for trace in runs:
        if said := _apart(trace):
            step, text = said
            return Finding(False, 1, "steps", 0, "at_most", f"{named(trace)}: {text}", samples=steps, details={"step": step})
    skipped = sum(int(trace.steps.loc[trace.steps["skipped"], "step"].nunique()) for trace in runs)
    text = f"all ranks use the same loss scale in each of {steps} steps, and skip the same {skipped} of them"
    return Finding(True, 0, "steps", 0, "at_most", text, samples=steps, power="one step that one rank skips alone")


def _apart(trace: Trace) -> tuple[int, str] | None:
    for key, rows in trace.steps.groupby("step"):
        step, by_rank = int(str(key)), rows.set_index("rank")
        skipped = by_rank["skipped"]
        if skipped.any() and not skipped.all():
            skips, takes = skipped.index[skipped][0], skipped.index[~skipped][0]
            return (
                step,
                f"rank {skips} skips step {step} and rank {takes} takes it: the overflow that one rank found is not shared with the others",
            )
        scales = by_rank["loss_scale"]
        other = next(
            (rank for rank in scales.index if scales[rank] != scales.iloc[0] and not (scales.isna()[rank] and scales.isna().iloc[0])), None
        )
        if other is not None:
            return step, f"rank {other} scales its loss by {scales[other]:g} in step {step}, rank {scales.index[0]} by {scales.iloc[0]:g}"
    return None
