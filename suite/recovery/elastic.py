"""Judge: a run that goes on with another number of ranks is still the run that it was.

A run whose world changed is laid together into one: its steps up to the checkpoint, and those of the run that resumed from it. It is then held to what
every world size is held to, the samples of each step and the noise of the loss; so the same judges serve, and nothing is tolerated that they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.equivalence.order import same_samples_each_step
from suite.equivalence.shards import sharded
from suite.equivalence.trajectory import losses_agree
from suite.recovery.alignment import states_of, steps_restored
from suite.recovery.cases import unproven_kill
from suite.recovery.ends import how_it_ended, hung


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the world: from `before` ranks, killed after a save, to `after` ranks."""

    before: int
    after: int
    killed: Trace
    resumed: Trace

    @property
    def words(self) -> str:
        return f"from {self.before} to {self.after} rank{'s' if self.after > 1 else ''}"


def goes_on_elastically(
    alone: Trace, permuted: Sequence[Trace], changes: Sequence[Change], *, numerics: str = "as_run", padding: str = "", fixed_order: str = "",
    left_out: Sequence[str] = (),
) -> Finding:  # fmt: skip
    """Every change of the world leaves the samples of each step and, within the measured noise, the loss as one device has them."""
    rows: list[list[object]] = []
    worst = 0.0
    for change in changes:
        found = _changed(alone, permuted, change, numerics, padding, fixed_order)
        rows.append([change.words, found.explanation])
        if not found.accepted:
            return replace(found, explanation=f"{change.words}: {found.explanation}", details={**found.details, "table": _table(rows)})
        worst = max(worst, found.value or 0.0)
        bound = found.bound
    if not rows:
        return Finding(None, explanation=f"no change of the world could be tried: {'; '.join(left_out) or 'none was asked for'}")
    text = "; ".join([*(f"{row[0]}: {row[1]}" for row in rows), *left_out])
    return Finding(True, worst, "times the median noise", bound, "at_most", text, samples=len(rows), details={"table": _table(rows)})


def spliced(killed: Trace, resumed: Trace, step: int) -> Trace:
    """One run out of two: `killed` up to `step`, then `resumed` with its steps counted on from there. Its size is the resumed one's."""
    return replace(resumed, steps=_joined(killed.steps, resumed.steps, step), samples=_joined(killed.samples, resumed.samples, step))


def restored_step(killed: Trace, resumed: Trace) -> int | None:
    """The step of the killed run whose parameters every rank of the resumed one began with; None where there is no such step.

    The worlds differ in size, so a rank is compared with rank 0; where parameters are sharded, by the digest of the whole ones.
    """
    if sharded(killed) or sharded(resumed):
        held = {whole_start(resumed, rank) for rank in resumed.ranks}
        return next((step for step, digest in sorted(whole_steps_of(killed).items(), reverse=True) if held == {digest}), None)
    wanted, seen = states_of(killed), states_of(resumed)
    steps = [set(steps_restored({rank: wanted[0]}, seen, rank)) for rank in seen if 0 in wanted]
    common = set.intersection(*steps) if steps else set()
    return max(common, default=None)


def whole_start(trace: Trace, rank: int) -> str | None:
    """The digest of the whole parameters that this rank began with; None where it is not known."""
    try:
        return trace.start(rank).get("whole_digest")
    except NotSeen:
        return None


def whole_steps_of(trace: Trace) -> dict[int, str]:
    """Step (0: before the first) -> digest of the whole parameters behind it, as rank 0 knows it."""
    rows = trace.steps.loc[(trace.steps["rank"] == 0) & trace.steps["whole_digest"].notna()]
    found = {int(step): str(digest) for step, digest in zip(rows["step"], rows["whole_digest"], strict=True)}
    began = whole_start(trace, 0)
    return found if began is None else {0: began, **found}


def _unknown(change: Change) -> str:
    """Why the step that a sharded run came back at cannot be told, "" where it can."""
    flat = next(
        (trace.not_seen()["whole_parameters"] for trace in (change.killed, change.resumed) if "whole_parameters" in trace.not_seen()), ""
    )
    if flat:
        return f"what the resumed run restored cannot be held against another number of ranks: {flat}"
    if not (sharded(change.killed) or sharded(change.resumed)):
        return ""
    known = whole_steps_of(change.killed) and all(whole_start(change.resumed, rank) for rank in change.resumed.ranks)
    said = next((trace.not_seen()["whole_digest"] for trace in (change.killed, change.resumed) if "whole_digest" in trace.not_seen()), "")
    return (
        ""
        if known
        else f"what the resumed run restored cannot be held against another number of ranks: {said or 'its parameters are sharded on one side alone'}"
    )


def _changed(alone: Trace, permuted: Sequence[Trace], change: Change, numerics: str, padding: str, fixed_order: str) -> Finding:
    if reason := unproven_kill(change.killed):
        return Finding(None, explanation=reason)
    if hung(change.resumed) or change.resumed.steps.empty or change.resumed.crashed:
        return Finding(False, explanation=f"the resumed run did not finish: {how_it_ended(change.resumed)}")
    if reason := _unknown(change):
        return Finding(None, explanation=reason)
    step = restored_step(change.killed, change.resumed)
    if not step:
        what = "began again from step 0" if step == 0 else "began with weights that the killed run never had"
        return Finding(False, explanation=f"the resumed run {what}")
    whole = spliced(change.killed, change.resumed, step)
    order = same_samples_each_step(alone, [whole], padding, fixed_order)
    if not order.accepted:
        return replace(order, explanation=f"resumed at step {step}, {order.explanation}")
    found = losses_agree(alone, permuted, [whole], numerics)
    return replace(found, explanation=f"resumed at step {step}, the samples are one device's in each step; {found.explanation}")


def _joined(before: pd.DataFrame, after: pd.DataFrame, step: int) -> pd.DataFrame:
    early = before[before["step"] <= step]
    return pd.concat([early, after.assign(step=after["step"] + step)], ignore_index=True).astype(after.dtypes.to_dict())


def _table(rows: list[list[object]]) -> dict[str, object]:
    return {"columns": ["change", "verdict"], "rows": rows}
