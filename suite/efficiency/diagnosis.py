"""Judge: what bounds the step, and the cheapest thing to do about it.

Profilers list where time goes rank by rank; a rank that waits is then blamed for what another one does. Here every share is what all ranks have in
common (the least of any rank), what one rank alone adds is that rank's lateness, and what a save adds is taken out of its step first. The shares
are of all time and add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fixtures.lateness import lateness_of
from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from reports.statistics import Interval, median_interval, more_runs_needed
from suite.efficiency.breakdown import breakdown
from suite.efficiency.busy import given_back
from suite.efficiency.scaling import Room
from suite.efficiency.timing import settled, step_ms, too_short
from suite.equivalence.usable import size, undecided, unusable
from suite.stragglers.slow_rank import where_late

COMMON = {"input": "data_wait_ms", "between": "unnamed_ms", "communication": "exposed_ms"}
CAUSES = (*COMMON, "checkpoint", "slow_rank", "compute")
WORDS = {
    "input": "input", "between": "code between the phases", "copies": "host-to-device copies and other code between the phases",
    "communication": "exposed communication", "checkpoint": "checkpointing", "slow_rank": "one slow rank", "compute": "computing",
}  # fmt: skip
NEXT_STEPS = {
    "input": "load ahead in more worker processes, then make storage and decode faster",
    "between": "profile what runs between optimizer, loader and forward (logging, synchronisation, input without a DataLoader)",
    "copies": "pin the loader's memory and copy with non_blocking=True, then profile what else runs between the phases",
    "communication": "put ranks closer together or give buckets more to hide behind (accumulate, larger buckets), then send fewer bytes",
    "checkpoint": "save less often, at the cadence that the economics of this audit name, before making a save faster",
    "slow_rank": "mend or replace that rank; nothing else helps while the others wait for it",
    "compute": "nothing cheaper than a faster device, compilation or a larger batch is left",
}


def bound_by_compute(repeats: Sequence[Trace], *, room: Room) -> Finding:
    """Accept where computing takes more of the time than any other cause, over timed repeats of one world size (one value per run)."""
    if reason := room.oversubscribed(max(map(size, repeats), default=1)):
        return undecided(reason)
    if reason := unusable(repeats, "step_ms", "data_wait_ms", "backward_ms") or next(filter(None, map(too_short, repeats)), ""):
        return undecided(reason)
    runs = [causes(trace) for trace in repeats]
    shares = {cause: median_interval([run[cause] for run in runs]) for cause in CAUSES}
    worst = max((cause for cause in CAUSES if cause != "compute"), key=lambda cause: shares[cause].estimate)
    lead = median_interval([run[worst] - run["compute"] for run in runs])
    return given_back(_finding(repeats, shares, worst, lead), repeats, distance=max(lead.low, -lead.high))


def causes(trace: Trace) -> dict[str, float]:
    """Share of a run's time, behind the warm-up, that each of CAUSES takes; they add up to 1."""
    steps = settled(trace)
    saving = {int(step) + 1 for step in trace.files["step"].unique()}  # what is written between two steps falls into the later one
    plain = steps[~steps["step"].isin(saving)]
    plain = plain if len(plain) else steps
    saved = _saving_share(trace, saving)
    sums = plain.assign(exposed_ms=plain["exposed_ms"].fillna(0.0)).groupby("rank")[[*COMMON.values(), "step_ms"]].sum()
    common = sums[list(COMMON.values())].div(sums["step_ms"], axis=0).min().clip(lower=0.0)
    shares = {cause: float(common[column]) * (1.0 - saved) for cause, column in COMMON.items()}
    shares |= {"checkpoint": saved, "slow_rank": _late_share(trace) * (1.0 - saved)}
    return {**shares, "compute": max(0.0, 1.0 - sum(shares.values()))}


def latest_rank(traces: Sequence[Trace]) -> int:
    """The rank that enters the collectives last, at the median of all steps of all runs."""
    late = lateness_of(traces)
    return late.ranks[int(np.argmax(np.median(late.late_ms, axis=0)))] if late.steps else 0


def _saving_share(trace: Trace, saving: set[int]) -> float:
    """What the steps with a save exceed the usual step by, of all time."""
    by_step = settled(trace).groupby("step")["step_ms"].max()
    with_save = by_step[by_step.index.isin(saving)]
    usual = by_step[~by_step.index.isin(saving)].median()
    return float((with_save - usual).clip(lower=0.0).sum() / by_step.sum()) if len(with_save) and np.isfinite(usual) else 0.0


def _late_share(trace: Trace) -> float:
    """How much later than the others the latest rank enters the collectives, at the median step, of that step."""
    late = lateness_of([trace])
    return float(np.clip(np.median(late.late_ms, axis=0).max() / np.median(late.step_ms), 0.0, 1.0)) if late.steps else 0.0


def _finding(repeats: Sequence[Trace], shares: dict[str, Interval], worst: str, lead: Interval) -> Finding:
    holds = lead.holds(0.0, "at_most")
    cause = "compute" if holds else worst
    usual_ms = float(np.median([step_ms(trace) for trace in repeats]))
    text = f"{_named(cause, repeats)} bounds the step: {shares[cause].estimate:.0%} of the time at {size(repeats[0])} ranks"
    text += (
        f"; next is {_named(worst, repeats)} with {shares[worst].estimate:.0%}"
        if holds
        else f", computing takes {shares['compute'].estimate:.0%}"
    )
    if cause == "slow_rank":
        text += where_late(repeats, latest_rank(repeats))
    gain = (
        f", which may take a step from {usual_ms:.3g} ms to {usual_ms * (1 - shares[cause].estimate):.3g} ms" if cause != "compute" else ""
    )
    text += f"; cheapest next step: {NEXT_STEPS[_key(cause, repeats)]}{gain}"
    if holds is None:
        needed = more_runs_needed(lead, 0.0)
        more = f"needs about {needed} more runs" if needed else "both take as much, more runs will not tell"
        text = f"undecided, {more}: {_named(worst, repeats)} or computing bounds the step ({shares[worst].estimate:.0%} and {shares['compute'].estimate:.0%})"
    low, high = shares[worst].low, shares[worst].high
    return Finding(
        holds, shares[worst].estimate, f"of the time in {_named(worst, repeats)}", round(shares["compute"].estimate, 6), "at_most", text,
        interval=(low, high), samples=len(repeats), details=_details(repeats, shares, cause),
    )  # fmt: skip


def _details(repeats: Sequence[Trace], shares: dict[str, Interval], cause: str) -> dict[str, Any]:
    rows = [
        [_named(name, repeats), shares[name].estimate, shares[name].low, shares[name].high, NEXT_STEPS[_key(name, repeats)]]
        for name in CAUSES
    ]
    columns = ["cause", "share of the time", "low", "high", "cheapest next step"]
    return {"cause": cause, "table": {"columns": columns, "rows": sorted(rows, key=lambda row: -row[1])}, "breakdown": breakdown([repeats])}


def _named(cause: str, repeats: Sequence[Trace]) -> str:
    return f"one slow rank, {latest_rank(repeats)}," if cause == "slow_rank" else WORDS[_key(cause, repeats)]


def _key(cause: str, repeats: Sequence[Trace]) -> str:
    """What lies between the phases is copies as well where the job computes on a device."""
    return "copies" if cause == "between" and _device(repeats[0]) != "cpu" else cause


def _device(trace: Trace) -> str:
    record = next((one for one in trace.records if one["kind"] == "backend"), None)
    if record is None:
        raise NotSeen("no step began, so the device of the job is not known")
    return str(record["device"])
