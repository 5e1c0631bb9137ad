"""Whether a run may be judged at all, and if not, the one sentence that says why.

A judge that has no run to look at must say so: nothing here ever turns a crash, a lost signal or a short run into a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF

LOG_LINE_CHARACTERS = 200


def worlds(largest: int) -> tuple[int, ...]:
    """The world sizes that are compared: 1, the powers of two below the largest, and the largest."""
    powers = [1 << exponent for exponent in range(largest.bit_length()) if 1 << exponent < largest]
    return tuple(sorted({1, *powers, max(largest, 1)}))


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
        return f"no optimizer step was seen at world size {size(trace)}: {_reason(trace, 'steps')}"
    if missing := sorted(set(range(size(trace))) - set(trace.steps["rank"])):
        return f"rank {missing[0]} of {size(trace)} recorded no optimizer step: {_reason(trace, 'steps')}"
    if trace.steps["restart"].max() > 0:
        return f"the launcher restarted a rank in the run at world size {size(trace)}, so its steps are not one sequence"
    return ""


def _first_failure(trace: Trace) -> str:
    """The rank that failed of itself, with its exit and the last thing it said."""
    failed = [end for end in trace.ended.get("ranks", ()) if end.get("exit_code") != 0 or end.get("signal")]
    first = min(failed, key=lambda end: (bool(end.get("killed_by_us")), end["rank"]))
    how = f"was ended by signal {first['signal']}" if first.get("signal") else f"exited with code {first.get('exit_code')}"
    return f"rank {first['rank']} {how}; {_last_line(trace.log(first['rank']))}"


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"its log ends with: {lines[-1][:LOG_LINE_CHARACTERS]}" if lines else "it left no log"


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
    return (near or [*said.values()] or ["no reason was recorded"])[0]
