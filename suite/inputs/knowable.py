"""Judges: what the model is given at a moment holds nothing that became known after it."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.inputs.response import clean_problem, damage_of, ledger, names_in_log, refused, undecided
from suite.recovery.ends import how_it_ended


def late_changes_nothing(one: Trace, other: Trace) -> Finding:
    """Two runs whose late records say different things train on the same samples, step by step and rank by rank."""
    report = damage_of(one)
    details = {"input": report.get("input"), "late_rows": report.get("altered"), "available_from": (report.get("values") or [""])[0]}
    what = f"{report.get('altered', 0)} late records in {report.get('input')}"
    if refused(one) and refused(other):
        named = names_in_log(one, report)
        if not named:
            return Finding(accepted=False, explanation=f"given {what}, it stopped without naming any: {how_it_ended(one)}", details=details)
        return Finding(
            accepted=True, explanation=f"given {what}, every rank stopped before its first step and named {named[0]}", details=details
        )
    for trace in (one, other):
        if problem := clean_problem(trace).replace("the run on clean inputs", f"the run with {what}"):
            return undecided(problem, details)
    left, right = _in_order(one), _in_order(other)
    differing = sorted(key for key in set(left) | set(right) if left.get(key) != right.get(key))
    if differing:
        step, rank, position = differing[0]
        text = (
            f"samples change with what {what} say, although no decision could know it: {len(differing)} of {len(left)} samples differ, "
            f"the first in step {step} on rank {rank} (row {position})"
        )
        return Finding(
            accepted=False, value=len(differing), unit="samples that differ", bound=0, explanation=text, samples=len(left), details=details
        )
    text = f"two runs whose {what} say different things train on the same {len(left)} samples"
    return Finding(accepted=True, value=0, unit="samples that differ", bound=0, explanation=text, samples=len(left), details=details)


def cutoff_changes_nothing(full: Sequence[Trace], cut: Trace) -> Finding:
    """Every sample of the run that knows only what was available by the cutoff is a sample of the run that knows everything.

    `full` holds runs of growing length; the longest has to have come round its data once, or a sample that is not found might only not
    have come yet.
    """
    whole, report = full[-1], damage_of(cut)
    details = {
        "input": report.get("input"),
        "cutoff": report.get("cutoff"),
        "rows_kept": report.get("rows_kept"),
        "rows_dropped": report.get("altered"),
    }
    for trace in (whole, cut):
        if problem := clean_problem(trace):
            return undecided(problem if trace is whole else problem.replace("clean inputs", "inputs up to the cutoff"), details)
    known, mine = ledger(whole), ledger(cut)
    if not went_round(whole):
        text = f"{len(whole.samples)} samples and none twice: the run did not come round its data, so a missing sample proves nothing; raise [job] steps"
        return undecided(text, details)
    lost = mine - known
    share = len(lost) / len(mine)
    if lost:
        hint = (
            "; all of them differ, as when constants are fitted on the whole table"
            if share == 1
            else "; they were computed from later records"
        )
        text = f"samples decided before {report.get('cutoff')} change when what became available after it is removed: {len(lost)} of {len(mine)} ({share:.1%}){hint}"
        return Finding(
            accepted=False, value=len(lost), unit="samples that differ", bound=0, explanation=text, samples=len(mine), details=details
        )
    text = (
        f"all {len(mine)} distinct samples of a run that knows only what was available by {report.get('cutoff')} "
        f"are samples of the run that knows the whole table ({len(known)} distinct)"
    )
    return Finding(accepted=True, value=0, unit="samples that differ", bound=0, explanation=text, samples=len(mine), details=details)


def went_round(trace: Trace) -> bool:
    """True when the run met some sample a second time: its data has come round, so every sample has had its turn but for a dropped last
    batch.
    """
    return bool(trace.samples["sample"].duplicated().any())


def _in_order(trace: Trace) -> dict[tuple[int, int, int], str]:
    keys = trace.samples[["step", "rank", "position"]].itertuples(index=False, name=None)
    return {
        (int(step), int(rank), int(position)): sample for (step, rank, position), sample in zip(keys, trace.samples["sample"], strict=True)
    }
