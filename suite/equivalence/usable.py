"""Whether a run may be judged at all, and if not, the one sentence that says why.

A judge that has no run to look at must say so: nothing here ever turns a crash, a lost signal or a short run into a pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fixtures.advice import advice, how_ended, readable
from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF

LOG_LINE_CHARACTERS = 200
STARTS_RANKS = "the job starts its own ranks"
OWN_RANKS = (
    "name in [job] command what one rank runs, and let it take RANK, LOCAL_RANK and WORLD_SIZE from the environment, as under torchrun"
)


def size(trace: Trace) -> int:
    """How many ranks the run had."""
    return int(trace.spec.get("world_size") or len(trace.ranks))


def named(trace: Trace) -> str:
    """The run in words: "one device" or "2 ranks"."""
    return "one device" if size(trace) == 1 else f"{size(trace)} ranks"


def undecided(reason: str, **details: Any) -> Finding:
    """The finding of a judge that cannot tell, and why."""
    return Finding(accepted=None, explanation=reason, details=details)


def absent(reason: str, **details: Any) -> Finding:
    """The finding of a judge that saw that the job lacks what the claim is about, and what it looked at to know."""
    return Finding(accepted=None, absent=True, explanation=reason, details=details)


def several(traces: Iterable[Trace]) -> list[Trace]:
    """The runs of more than one rank."""
    return [trace for trace in traces if size(trace) > 1]


def records(trace: Trace, kind: str) -> list[Mapping[str, Any]]:
    """All records of one kind, in rank order."""
    return [record for record in trace.records if record["kind"] == kind]


def rounding(dtype: str) -> float:
    """Half of the digits of a dtype: a relative deviation that no rounding of a few operations reaches."""
    return math.sqrt(UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF["float32"]))


def unusable(traces: Trace | Iterable[Trace], *signals: str) -> str:
    """Why these runs cannot be judged, or "" where they can.

    signals: columns of the steps frame that the judge reads; "samples" asks for the sample ledger, "gradient" for the first gradient.
    """
    every = [traces] if isinstance(traces, Trace) else list(traces)
    reasons = (reason for trace in every for reason in (_broken(trace), _unseen(trace, signals)) if reason)
    return next(reasons, "")


def _broken(trace: Trace) -> str:
    if trace.ended.get("ended_by", "exit") != "exit":
        return f"the run at world size {size(trace)} was ended by its {trace.ended['ended_by']}: {trace.ended.get('message', '')}".strip(
            ": "
        )
    if trace.crashed:
        return f"the run at world size {size(trace)} did not end well: {_first_failure(trace)}"
    if errors := trace.errors():
        return f"the probe itself failed in the run at world size {size(trace)}: {errors[0]}"
    if trace.steps.empty:
        return f"no optimizer step was seen at world size {size(trace)}: {_without_steps(trace)}"
    if missing := sorted(set(range(size(trace))) - set(trace.steps["rank"])):
        return f"rank {missing[0]} of {size(trace)} recorded no optimizer step: {_reason(trace, 'steps')}"
    if trace.steps["restart"].max() > 0:
        return f"the launcher restarted a rank in the run at world size {size(trace)}, so its steps are not one sequence"
    return ""


def _without_steps(trace: Trace) -> str:
    """Why a run that ended well made no step, and what to do about it."""
    reason = _reason(trace, "steps")
    if STARTS_RANKS in reason:
        return f"{reason}; {OWN_RANKS}"
    if "backward" in reason and "backwards ran" not in reason:
        return f"{reason}, and every rank exited with code 0: see whether [job] command trains at all"
    return reason


def _first_failure(trace: Trace) -> str:
    """The rank that failed of itself, how, the last thing it said, and what to change where that is known."""
    failed = [end for end in trace.ended.get("ranks", ()) if end.get("exit_code") != 0 or end.get("signal")]
    named_first = re.match(r"rank (\d+) ", trace.ended.get("message", ""))
    first = min(failed, key=lambda end: (str(end["rank"]) != (named_first and named_first[1]), bool(end.get("killed_by_us")), end["rank"]))
    lines = [shown for line in trace.log(first["rank"]).splitlines() if (shown := readable(line, LOG_LINE_CHARACTERS))]
    said = f"its last line: {lines[-1]}" if lines else "it printed nothing"
    ended = f"rank {first['rank']} {how_ended(first.get('exit_code'), first.get('signal'))} ({said})"
    told = advice(first.get("signal"), lines[-1] if lines else "") or (OWN_RANKS if STARTS_RANKS in _reason(trace, "steps") else "")
    more = len(lines) > 1 or "".join(lines).endswith("…")
    whole = f"see traces/{trace.folder.name}/rank{first['rank']}.log" if more and trace.spec.get("run_id") else ""
    return ": ".join(filter(None, [ended, told or whole]))


def _unseen(trace: Trace, signals: Iterable[str]) -> str:
    for signal in signals:
        if not _has(trace, signal):
            return f"the probe did not see {signal.replace('_', ' ')} at world size {size(trace)}: {_reason(trace, signal)}"
    return ""


def _has(trace: Trace, signal: str) -> bool:
    """Every rank has the signal, in at least one of its steps."""
    if signal == "gradient":
        return all(_recorded_gradient(trace, rank) for rank in range(size(trace)))
    frame: pd.DataFrame = trace.samples if signal == "samples" else trace.steps.loc[trace.steps[signal].notna()]
    return set(range(size(trace))) <= set(frame["rank"])


def _recorded_gradient(trace: Trace, rank: int) -> bool:
    from fixtures.trace import NotSeen

    try:
        trace.gradients(rank)
    except NotSeen:
        return False
    return True


def _reason(trace: Trace, signal: str) -> str:
    """What the probe said about a lost signal; names near to the one asked for count."""
    said: Mapping[str, str] = trace.not_seen()
    near = [said[name] for name in sorted(said) if name == signal or signal.startswith(name) or name.startswith(signal.rstrip("s"))]
    return (near or [*said.values()] or [_why_nothing_was_said(trace)])[0]


def _why_nothing_was_said(trace: Trace) -> str:
    """The probe says at a rank's end what it missed; so where it said nothing, it was not there, or the rank ended another way."""
    begun = [record["rank"] for record in records(trace, "meta")]
    left = {record["rank"] for record in records(trace, "exit")}
    if not begun:
        return "the probe was not loaded: have [job] command start python itself, without -S, -I or -E"
    if gone := [rank for rank in begun if rank not in left]:
        return f"rank {gone[0]} became another program or left by os._exit, past the probe: have it end as python ends"
    return "no reason was recorded"
