"""Judges: broken, absent and far-out inputs are refused or reported, and never trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.inputs.response import clean_problem, damage_of, ledger, names_in_log, not_finite, refusal_fault, refused, strangers, undecided
from suite.recovery.ends import how_it_ended, hung

CLEAN_RANGES = 10.0


def malformed_is_stopped(clean: Trace, damaged: Trace, seen: Trace) -> Finding:
    """Broken rows stop every rank before its first step, or are reported and left out; `seen` is what the model is given when the files
    are sound.
    """
    if problem := clean_problem(clean):
        return undecided(problem)
    if finding := _trained_on_strangers(seen, ledger(clean), "sound inputs"):
        return finding
    report = damage_of(damaged)
    what, details = f"{report.get('altered', 0)} broken rows or bytes in {report.get('input')}", _details(damaged)
    named = names_in_log(damaged, report, clean)
    if fault := refusal_fault(damaged, named, what):
        return Finding(accepted=False, explanation=fault, details=details)
    if refused(damaged):
        text = f"given {what}, every rank stopped before its first step and named {named[0]}: {how_it_ended(damaged)}"
        return Finding(accepted=True, value=0, unit="damaged samples trained on", bound=0, explanation=text, samples=1, details=details)
    if finding := _trained_on_strangers(damaged, ledger(clean), what):
        return finding
    if not named:
        return Finding(accepted=False, explanation=f"given {what}, it completed without a word about them", details=details)
    text = f"given {what}, it reported them (named {', '.join(named)}), left them out and finished; every sample it trained on is one of a clean run"
    return Finding(
        accepted=True, value=0, unit="damaged samples trained on", bound=0, explanation=text, samples=len(ledger(damaged)), details=details
    )


def missing_is_refused(damaged: Trace) -> Finding:
    """Without the input every rank stops before its first step with a non-zero exit code, and the output names the path."""
    report, details = damage_of(damaged), _details(damaged)
    what = f"no file for input {report.get('input')}"
    path = str(report.get("path", ""))
    name = path.rsplit("/", 1)[-1]
    named = [name] if any(name and name in damaged.log(rank) for rank in range(int(damaged.spec.get("world_size") or 1))) else []
    if fault := refusal_fault(damaged, named, what):
        return Finding(accepted=False, explanation=fault, details=details)
    if not refused(damaged):
        steps = 0 if damaged.steps.empty else int(damaged.steps["step"].max())
        return Finding(
            accepted=False,
            explanation=f"given {what}, it went on without it for {steps} steps and every rank exited with code 0",
            details=details,
        )
    text = f"given {what}, every rank stopped before its first step with a non-zero code and named {name}: {how_it_ended(damaged)}"
    return Finding(accepted=True, value=0, unit="steps without the input", bound=0, explanation=text, samples=1, details=details)


def far_out_is_noticed(clean: Trace, damaged: Trace, seen: Trace) -> Finding:
    """Values a thousand ranges away and categories never seen are refused or reported, and the model gets nothing outside of what a clean
    run gives it.
    """
    if problem := clean_problem(clean):
        return undecided(problem)
    low, high = _range(clean)
    if not np.isfinite([low, high]).all():
        return undecided(
            f"the range of the model's inputs was not seen: {clean.not_seen().get('input_range', 'the model takes no float inputs')}"
        )
    if finding := _beyond(seen, low, high, "sound inputs"):
        return finding
    report, details = damage_of(damaged), _details(damaged)
    what = f"{report.get('altered', 0)} rows out of range in {report.get('input')} ({', '.join(report.get('columns', ())[:3])})"
    named = names_in_log(damaged, report, clean)
    if fault := refusal_fault(damaged, named, what):
        return Finding(accepted=False, explanation=fault, details=details)
    if refused(damaged):
        text = f"given {what}, every rank stopped before its first step and named {named[0]}: {how_it_ended(damaged)}"
        return Finding(accepted=True, explanation=text, samples=1, details=details)
    if finding := _beyond(damaged, low, high, what):
        return finding
    if not named:
        return Finding(accepted=False, explanation=f"given {what}, it completed without a word about them", details=details)
    seen_low, seen_high = _range(damaged)
    text = f"given {what}, it reported them (named {', '.join(named)}) and the model's inputs stayed within {seen_low:g} to {seen_high:g} (clean run: {low:g} to {high:g})"
    return Finding(
        accepted=True,
        value=max(0.0, seen_high - high, low - seen_low),
        unit="beyond the clean range",
        bound=CLEAN_RANGES * (high - low),
        explanation=text,
        details=details,
    )


def _trained_on_strangers(trace: Trace, known: set[str], what: str) -> Finding | None:
    """The finding that condemns a run whose model was given a sample that no clean run has, or whose loss left the numbers; None where
    neither is so.
    """
    if hung(trace):
        return Finding(accepted=False, explanation=f"given {what}, {how_it_ended(trace)}", details=_details(trace))
    if trace.crashed and not refused(trace):
        done = int(trace.steps["step"].max()) if not trace.steps.empty else 0
        text = f"given {what}, a batch ended it after {done} finished steps: {how_it_ended(trace)}"
        return Finding(accepted=False, value=1, unit="damaged samples trained on", bound=0, explanation=text, details=_details(trace))
    count, where = strangers(trace, known)
    lost = not_finite(trace)
    if not count and not lost:
        return None
    about = f"the loss is no finite number from {lost} on" if lost else "the losses stay finite, so nobody would notice"
    text = (
        f"given {what}, the model was trained on {count} samples that no clean run has, the first in {where}; {about}"
        if count
        else f"given {what}, {about}"
    )
    if count > len(trace.samples) // 2:
        text += f"; {count} of {len(trace.samples)} differ, so the damage also changed how sound rows are scaled or coded"
    return Finding(accepted=False, value=count, unit="damaged samples trained on", bound=0, explanation=text, details=_details(trace))


def _beyond(trace: Trace, low: float, high: float, what: str) -> Finding | None:
    """The finding that condemns a run whose inputs lie further out than ten clean ranges on either side; clipping to a declared bound
    stays inside, a value let through lies near the thousand ranges that it was moved by.
    """
    width = CLEAN_RANGES * (high - low)
    rows = trace.steps[(trace.steps["input_high"] > high + width) | (trace.steps["input_low"] < low - width)].sort_values(["step", "rank"])
    if rows.empty:
        return None
    first = rows.iloc[0]
    farthest = float(max(first["input_high"] - high, low - first["input_low"]))
    worst = float(first["input_high"] if first["input_high"] - high >= low - first["input_low"] else first["input_low"])
    text = f"given {what}, the model was fed {worst:g} in step {int(first['step'])} on rank {int(first['rank'])}; a clean run stays within {low:g} to {high:g}"
    return Finding(accepted=False, value=farthest, unit="beyond the clean range", bound=width, explanation=text, details=_details(trace))


def _range(trace: Trace) -> tuple[float, float]:
    return float(trace.steps["input_low"].min()), float(trace.steps["input_high"].max())


def _details(trace: Trace) -> dict[str, Any]:
    report = dict(damage_of(trace))
    return {
        "damage": {key: value[:16] if isinstance(value, list) else value for key, value in report.items()},
        "ended": how_it_ended(trace),
    }
