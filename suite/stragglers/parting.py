"""Ranks that part ways: each waits in a collective, but not in the same one; or one is through while another still waits for it.

Timeouts of nccl and gloo name the collective that did not end. The mistake is elsewhere: at the branch, the loop's end or the exception that sent
one rank to another place. So what is said here is where each rank is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from fixtures.trace import NotSeen, Trace
from suite.recovery.ends import how_it_ended, last_line

GLOO_MISMATCH = re.compile(
    r"Received data size doesn't match expected size|op\.preamble\.length <= op\.nbytes|Detected mismatch between collectives"
)
PEER_GONE = re.compile(r"Connection (closed|reset) by peer|connection was (closed|reset)", re.IGNORECASE)
RAISED = re.compile(
    r"^Traceback \(most recent call last\):$.*?^(?P<error>\w[\w.]*(?:Error|Exception|Interrupt)\b.*?)$", re.MULTILINE | re.DOTALL
)


class Waiting(Protocol):
    """As much of a rank's standing as is looked at here."""

    @property
    def rank(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def called(self) -> str: ...
    @property
    def frames(self) -> tuple[str, ...]: ...


def parted(standing: Sequence[Waiting]) -> str:
    """Where each rank waits, in words, if all of them wait in collectives and not all in the same; "" otherwise."""
    if len(standing) < 2 or not all(one.called and one.frames for one in standing):
        return ""
    if len({_place(one) for one in standing}) == 1:
        return ""
    ordered = sorted(standing, key=lambda one: (_place(one), one.rank))
    places = [(place, list(group)) for place, group in groupby(ordered, key=_place)]
    said = [
        f"{_ranks(one.rank for one in group)} in {place} (step {group[0].step})"
        for place, group in sorted(places, key=lambda item: item[1][0].rank)
    ]
    return f"the ranks wait for each other in different collectives: {', '.join(said)}; they parted ways at a branch or at the end of a loop that only some of them took"


def _place(one: Waiting) -> str:
    return f"{one.called} at {one.frames[0]}"


def _ranks(ranks: Iterable[int]) -> str:
    listed = ", ".join(map(str, ranks))
    return f"ranks {listed}" if "," in listed else f"rank {listed}"


def why_not_finished(trace: Trace) -> str:
    """How a world that was no hang came to fail, in words: ranks that met in different collectives, or one that was through too early."""
    ended = how_it_ended(trace)
    if any(GLOO_MISMATCH.search(trace.log(rank)) for rank in trace.ranks):
        return f"two ranks met in different collectives, so one got what it did not expect: {_progress(trace)} ({ended})"
    through = [end["rank"] for end in trace.ended.get("ranks", ()) if end.get("exit_code") == 0 and not end.get("signal")]
    left = [end["rank"] for end in trace.ended.get("ranks", ()) if end.get("exit_code") != 0 or end.get("signal")]
    if through and left and all(PEER_GONE.search(last_line(trace, rank)) for rank in left):
        return (
            f"rank {through[0]} was through with exit code 0 while rank {left[0]} still waited for it in a collective: {_progress(trace)}; "
            f"it left out a collective, or its loop was shorter ({ended})"
        )
    return f"not every rank finished: {ended}"


def _progress(trace: Trace) -> str:
    """How far each rank had come, as its probe wrote it down."""
    found = []
    for rank in trace.ranks:
        try:
            now = trace.now(rank)
        except NotSeen:
            continue
        found.append(f"rank {rank} in step {now['step']} after {now['collective']} collectives of it")
    return ", ".join(found) or "no rank had begun to train"


def raised(trace: Trace, rank: int) -> str:
    """The error that a rank had logged although it lived on, in words; "" where there is none."""
    errors = [found["error"] for found in RAISED.finditer(trace.log(rank))]
    return f" (it had logged {errors[-1][:120]})" if errors else ""
