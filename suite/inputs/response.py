"""How a job answered a damaged input: refused it, reported it and went on, or swallowed it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.ends import how_it_ended, hung, last_line

MOST_NAMES = 512


def ledger(trace: Trace) -> set[str]:
    """Every sample that reached the model in any step on any rank."""
    return set(trace.samples["sample"])


def names_in_log(trace: Trace, report: Mapping[str, Any], clean: Trace | None = None) -> list[str]:
    """What of the damage the output names: entities, row numbers, columns or values, leaving out lines that a clean run writes too."""
    usual = {line.strip() for rank in (clean.ranks if clean else ()) for line in clean.log(rank).splitlines()} if clean else set[str]()
    lines = [line for rank in range(_world(trace)) for line in trace.log(rank).splitlines() if line.strip() not in usual]
    text = "\n".join(lines)
    words = [
        str(word)
        for key in ("entities", "columns", "values")
        for word in report.get(key, ())[:MOST_NAMES]
        if word and str(word) not in {"None", "inf"}
    ]
    found = [word for word in words if re.search(rf"(?<![\w.]){re.escape(word)}(?![\w])", text)]
    rows = [
        row
        for row in report.get("rows", ())[:MOST_NAMES]
        if re.search(rf"\b(row|line|record|index|sample)s?\W{{1,4}}({row}|{row + 1}|{row + 2})\b", text, re.IGNORECASE)
    ]
    path = str(report.get("path", ""))
    named_path = [path] if not words and not rows and path and path.rsplit("/", 1)[-1] in text else []
    return found[:3] + [f"row {row}" for row in rows[:1]] + named_path


def refused(trace: Trace) -> bool:
    """True when every rank ended with a failure before its first optimizer step."""
    ends = list(trace.ended.get("ranks", ()))
    return (
        trace.steps.empty and bool(ends) and all(end.get("exit_code") != 0 or bool(end.get("signal")) for end in ends) and not hung(trace)
    )


def refusal_fault(trace: Trace, named: Sequence[str], what: str) -> str:
    """What is wrong with a refusal, in words; "" where nothing is: every rank stops before step 1, non-zero, and the output names what is
    wrong.
    """
    if hung(trace):
        return f"given {what}, {how_it_ended(trace)}"
    zero = [end["rank"] for end in trace.ended.get("ranks", ()) if end.get("exit_code") == 0]
    if trace.steps.empty and zero:
        return f"given {what}, rank {zero[0]} exited with code 0 although it made no step"
    if zero and trace.crashed:
        return f"given {what}, rank {zero[0]} exited with code 0 while {how_it_ended(trace)}"
    if trace.crashed and not trace.steps.empty:
        return f"given {what}, it stopped only after {int(trace.steps['step'].max())} steps: {how_it_ended(trace)}"
    if trace.crashed and not named:
        return f"given {what}, it stopped without naming it: {how_it_ended(trace)}"
    return ""


def strangers(trace: Trace, known: set[str]) -> tuple[int, str]:
    """How many samples the model saw that no clean run has, and where the first came: "step 4 on rank 1"."""
    odd = trace.samples[~trace.samples["sample"].isin(known)]
    if odd.empty:
        return 0, ""
    first = odd.sort_values(["step", "rank", "position"]).iloc[0]
    return len(odd), f"step {int(first['step'])} on rank {int(first['rank'])}"


def not_finite(trace: Trace) -> str:
    """The first step with a loss that is no finite number: "step 4 on rank 1 (nan)"; "" where every loss is finite."""
    bad = trace.steps[~np.isfinite(trace.steps["loss"].to_numpy(dtype=float))].sort_values(["step", "rank"])
    return f"step {int(bad.iloc[0]['step'])} on rank {int(bad.iloc[0]['rank'])} ({bad.iloc[0]['loss']})" if len(bad) else ""


def clean_problem(clean: Trace) -> str:
    """Why a clean run cannot serve as the yardstick, or ""."""
    if clean.crashed or hung(clean):
        return f"the run on clean inputs did not finish: {how_it_ended(clean)}"
    if clean.samples.empty:
        return f"no sample was seen: {clean.not_seen().get('samples', 'the model was given no batch')}"
    return ""


def undecided(why: str, details: Mapping[str, Any] | None = None) -> Finding:
    return Finding(accepted=None, explanation=why, details=dict(details or {}))


def damage_of(trace: Trace) -> Mapping[str, Any]:
    """What was altered in the inputs of this run."""
    report: Mapping[str, Any] = trace.spec.get("damage_report") or {}
    return report


def quoted_end(trace: Trace) -> str:
    """The last line of the first rank that wrote any, for a sentence; "" where none did."""
    return next((line for rank in range(_world(trace)) if (line := last_line(trace, rank))), "")


def _world(trace: Trace) -> int:
    return int(trace.spec.get("world_size") or 0) or (max(trace.ranks) + 1 if trace.ranks else 1)
