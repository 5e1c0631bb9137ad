"""Judge: a run that was killed and resumed ends up exactly where the uninterrupted run does, wherever in an epoch or a step it was killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.recovery.alignment import CAUSES, NOT_IN_EVERY_JOB, WORDS
from suite.recovery.cases import Case, all_come_back
from suite.recovery.ends import how_it_ended
from suite.recovery.returns import Return, come_back

NANOSECONDS_PER_S = 1e9


def continues_everywhere(
    control: Trace, killed: Trace, resumed: Trace, further: Sequence[Case], *, every: int, left_out: Sequence[str] = ()
) -> Finding:
    """`continues`, and the same for every further case. left_out: which cases this job has no place for, and why."""
    first = continues(control, killed, resumed, every=every)
    if not first.accepted:
        return first
    others = all_come_back(control, further, unit="steps that differ")
    cases = others.details.get("table", {"columns": [], "rows": []}) if further else {"columns": [], "rows": []}
    details = {**first.details, "table": cases}
    if further and not others.accepted:
        return Finding(
            others.accepted,
            others.value,
            others.unit,
            others.bound,
            explanation=others.explanation,
            samples=others.samples,
            details=details,
        )
    said = "; ".join([first.explanation, *([others.explanation] if further else []), *left_out])
    return Finding(True, 0, "steps that differ", 0, explanation=said, samples=(first.samples or 0) + len(further), details=details)


def continues(control: Trace, killed: Trace, resumed: Trace, *, every: int) -> Finding:
    """Every step after the resume equals the control's, bit for bit, and at most `every` steps of work were lost."""
    if control.crashed or control.steps.empty:
        return _undecided(f"the uninterrupted control did not finish: {how_it_ended(control)}", "control")
    if not killed.fired("kill"):
        return _undecided(f"the kill never happened, so nothing was recovered: the run {how_it_ended(killed)}", "killed run")
    done = int(killed.steps["step"].max()) if not killed.steps.empty else 0
    back = come_back(control, resumed, newest=done - done % every)
    lost = done - back.step if back.step is not None else None
    details = {
        "outcome": back.outcome, "resumed_step": back.step, "lost_steps": lost, "cadence": every, "compared_steps": back.compared,
        "timeline": timeline(killed, resumed, back), "losses": {"control": losses(control, 0), "resumed": losses(resumed, back.step or 0)},
    }  # fmt: skip
    story = _story(killed, done)
    if back.outcome == "not_seen":
        return Finding(accepted=None, explanation=f"{story}; {back.words}", details=details)
    if back.outcome not in {"resumed_newest", "resumed_previous"}:
        return Finding(accepted=False, value=None, unit="steps that differ", bound=0, explanation=f"{story}; {back.words}", details=details)
    if lost is not None and lost > every:
        text = f"{story}; it {back.words}, but {lost} steps were lost where a checkpoint is due every {every}"
        return Finding(accepted=False, value=lost, unit="steps lost", bound=every, explanation=text, details=details)
    compared = f"{'; compared' if back.rounded else ''}: {compared_parts(control, back)}"
    text = f"{story}; it {back.words}{compared}; {lost} steps of work lost, at most {every} allowed"
    return Finding(accepted=True, value=0, unit="steps that differ", bound=0, explanation=text, samples=back.compared, details=details)


def compared_parts(control: Trace, back: Return) -> str:
    """What was equal, and what was not compared because the job does not show or does not use it, in words. What a job has none of is not named."""
    absent = {part for part in NOT_IN_EVERY_JOB if not control.steps[part].notna().any()}
    seen = ", ".join(WORDS[part] for part in CAUSES if part not in back.unseen and part not in absent)
    return seen + (f" (not compared: {', '.join(WORDS[part] for part in back.unseen)})" if back.unseen else "")


def timeline(killed: Trace, resumed: Trace, back: Return) -> list[dict[str, Any]]:
    """What happened when, in seconds since the killed run's first step began; the resumed run follows at once, as a scheduler would have
    it.
    """
    begin = min((_start_ns(killed, rank) for rank in killed.ranks), default=0)
    kills = [record for record in killed.faults() if record["fault"]["kind"] == "kill"]
    events = [{"t_s": 0.0, "event": "started", "step": 0, "rank": None}]
    events += [
        {"t_s": (kill["t_ns"] - begin) / NANOSECONDS_PER_S, "event": "killed", "step": kill.get("step"), "rank": kill["rank"]}
        for kill in kills
    ]
    end = events[-1]["t_s"]
    metas = [record["t_ns"] for record in resumed.records if record["kind"] == "meta"]
    origin = min(metas, default=None)
    if origin is None:
        return events
    events.append({"t_s": end, "event": "restarted", "step": None, "rank": None})
    if back.step is not None:
        first = min(_start_ns(resumed, rank) for rank in resumed.ranks)
        events.append({"t_s": end + (first - origin) / NANOSECONDS_PER_S, "event": "resumed", "step": back.step, "rank": None})
    if not resumed.steps.empty:
        last = float(resumed.steps["t_ns"].max())
        reached = (back.step or 0) + int(resumed.steps["step"].max())
        events.append({"t_s": end + (last - origin) / NANOSECONDS_PER_S, "event": "finished", "step": reached, "rank": None})
    return events


def losses(trace: Trace, offset: int) -> dict[str, list[float]]:
    """Loss by step of the control's count, averaged over the ranks."""
    means = trace.steps.groupby("step")["loss"].mean()
    return {"steps": [int(step) + offset for step in means.index], "loss": [float(value) for value in means]}


def _start_ns(trace: Trace, rank: int) -> float:
    try:
        return float(trace.start(rank)["t_ns"])
    except NotSeen:
        return float(trace.meta(rank)["t_ns"])


def _story(killed: Trace, done: int) -> str:
    kill = next(record for record in killed.faults() if record["fault"]["kind"] == "kill")
    return f"rank {kill['rank']} was killed (SIGKILL) after {done} finished steps"


def _undecided(why: str, which: str) -> Finding:
    return Finding(accepted=None, explanation=f"{which}: {why}")
