"""How a run ended, in words that a training engineer can act on: exit codes, signals and the last line that explains them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fixtures.trace import Trace

ERROR_LINE = re.compile(r"^(\[rank\d+\]:\s*)?([\w.]*(Error|Exception|Interrupt|Exit|Warning)\b.*|error:.*|fatal:.*)", re.IGNORECASE)
PEER_GONE = re.compile(r"connection (closed|reset|refused)|peer|broken pipe|SIGTERM", re.IGNORECASE)
LONGEST_QUOTE = 200


def how_it_ended(trace: Trace) -> str:
    """One clause: "rank 1 exited with code 3: 'ValueError: bad row 7'", "it hung: ..." or "every rank exited with code 0"."""
    if hung(trace):
        return f"it hung ({trace.ended.get('message') or trace.ended.get('ended_by')})"
    guilty = first_to_fail(trace)
    if guilty is None:
        return "every rank exited with code 0"
    rank, line = int(guilty["rank"]), last_line(trace, int(guilty["rank"]))
    signal = guilty.get("signal")
    how = f"was ended by signal {signal}" if signal else f"exited with code {guilty.get('exit_code')}"
    return f"rank {rank} {how}" + (f": {line!r}" if line else " and wrote nothing")


def hung(trace: Trace) -> bool:
    """True when the run was ended because nothing moved any more, or at its deadline."""
    return trace.ended.get("ended_by") in {"stall", "deadline"}


def first_to_fail(trace: Trace) -> Mapping[str, Any] | None:
    """The rank to quote: one that failed by itself, and not because a peer was gone; None when every rank exited 0."""
    failed = [end for end in trace.ended.get("ranks", ()) if end.get("exit_code") != 0 or end.get("signal")]
    return min(failed, key=lambda end: (bool(end.get("killed_by_us")), _blames_a_peer(trace, end), end["rank"]), default=None)


def lost_a_peer_on_purpose(trace: Trace) -> bool:
    """Whether every rank that failed lost a peer that a fault had ended as one that is done: whoever still spoke to it then cannot help failing."""
    ended = any(record["kind"] == "exit" and record["reason"] == "ended by a fault" for record in trace.records)
    failed = [end for end in trace.ended.get("ranks", ()) if end.get("exit_code") != 0 or end.get("signal")]
    return ended and all(_blames_a_peer(trace, end) or bool(end.get("killed_by_us")) for end in failed)


def last_line(trace: Trace, rank: int) -> str:
    """The last line of the rank's log that names an error, else its last line; at most 200 characters, "" when it wrote none."""
    lines = [line.strip() for line in trace.log(rank).splitlines() if line.strip()]
    naming = [line for line in lines if ERROR_LINE.match(line)]
    return (naming or lines or [""])[-1][:LONGEST_QUOTE]


def _blames_a_peer(trace: Trace, end: Mapping[str, Any]) -> bool:
    return bool(PEER_GONE.search(last_line(trace, int(end["rank"]))))
