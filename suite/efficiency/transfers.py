"""Judge: every rank computes on a device of its own, and no step moves anything between devices but the batch on its way in.

A `.cpu()` left in a loop, a buffer that was never moved, a rank that fell back to the CPU: the loss is right, and the time is gone. Profilers show the
copies of one step as kernels; here those that come back in every step are named with the line of the job that makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, records, size, undecided, unusable

GOING_IN = ("start", "between", "data")
UNIT = "bytes a step"
FEWEST_STEPS = 2  # one step cannot come again


@dataclass(frozen=True, slots=True)
class Copy:
    """What one line of one rank moves in a step, in the median step that it does so: `copies` times, `bytes` in all."""

    rank: int
    source: str
    target: str
    phase: str
    what: str
    where: str
    copies: float
    bytes: float

    @property
    def batch(self) -> bool:
        """Data on its way to the device, before the forward."""
        return self.what == "data" and self.source == "cpu" and self.phase in GOING_IN

    @property
    def words(self) -> str:
        """The copy in a sentence."""
        at = f" ({self.where})" if self.where else ""
        return f"rank {self.rank} copies {self.what} from {self.source} to {self.target} in {self.phase}{at}, {self.bytes:,.0f} bytes in every step"


def stays_on_its_device(trace: Trace, *, accelerated: bool) -> Finding:
    """Judge one run of level "transfers". accelerated: whether the audit is one of accelerators, so that the CPU is the wrong place to compute."""
    if reason := unusable(trace):
        return undecided(reason)
    placed = {int(one["rank"]): one for one in records(trace, "placed")}
    if missing := sorted(set(range(size(trace))) - set(placed)):
        return undecided(f"the probe did not see on which device rank {missing[0]} computes")
    if wrong := _misplaced(trace, placed, accelerated):
        return Finding(False, explanation=wrong)
    if "copies" in trace.not_seen():
        return undecided(f"copies were not seen: {trace.not_seen()['copies']}")
    if short := sorted(rank for rank in placed if len(_copies(trace).get(rank, ())) < FEWEST_STEPS):
        return undecided(f"the copies of rank {short[0]} were not seen in {FEWEST_STEPS} steps behind the first: raise [job] steps")
    recurring = list(_recurring(trace))
    bad = sorted((one for one in recurring if one.what != "number" and not one.batch), key=lambda one: -one.bytes)
    steps = int(trace.steps["step"].nunique())
    details = {"table": _table(recurring)} if recurring else {}
    if bad:
        text = bad[0].words + (f" ({len(bad)} such copies in all)" if len(bad) > 1 else "")
        return Finding(False, sum(one.bytes for one in bad), UNIT, 0, "at_most", text, samples=steps, details=details)
    power = "one copy of more than a number, in more than half of the steps"
    return Finding(True, 0, UNIT, 0, "at_most", _accepted(trace, placed, recurring), samples=steps, power=power, details=details)


def _misplaced(trace: Trace, placed: Mapping[int, Mapping[str, Any]], accelerated: bool) -> str:
    """A rank that computes elsewhere than it should, in words; "" where none does."""
    taken: dict[str, int] = {}
    for rank, one in sorted(placed.items()):
        devices: dict[str, int] = dict(one["devices"])
        capable = int(one["capable"])
        if len(kinds := {device.split(":")[0] for device in devices}) > 1:
            held = " and ".join(f"{size_bytes:,} bytes on {device}" for device, size_bytes in devices.items())
            return f"rank {rank} holds its parameters on {len(kinds)} kinds of device: {held}"
        if accelerated and kinds <= {"cpu"}:
            return f"rank {rank} computes on the CPU, though {capable} accelerators are there for it"
        for device in devices:
            if device in taken and kinds != {"cpu"} and capable >= size(trace):
                return f"ranks {taken[device]} and {rank} both compute on {device}, though there are {capable} accelerators for {size(trace)} ranks"
            taken[device] = rank
    return ""


def _copies(trace: Trace) -> dict[int, list[Any]]:
    """By rank, what each of its steps copied; the first step, which sets things up, does not count."""
    by_rank: dict[int, list[Any]] = {}
    for one in records(trace, "copies"):
        if one["step"] > 1:
            by_rank.setdefault(int(one["rank"]), []).append(one["copies"])
    return by_rank


def _recurring(trace: Trace) -> Iterator[Copy]:
    """The copies of more than half of a rank's steps."""
    for rank, steps in sorted(_copies(trace).items()):
        found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for step in steps:
            for *line, copies, size_bytes in step:
                found.setdefault(tuple(line), []).append((float(copies), float(size_bytes)))
        for (source, target, phase, what, where), seen in found.items():
            if 2 * len(seen) > len(steps):
                copies, size_bytes = sorted(seen)[len(seen) // 2]
                yield Copy(rank, source, target, phase, what, where, copies, size_bytes)


def _accepted(trace: Trace, placed: Mapping[int, Mapping[str, Any]], recurring: list[Copy]) -> str:
    devices = ", ".join(sorted({device for one in placed.values() for device in dict(one["devices"])}))
    batch = sum(one.bytes for one in recurring if one.batch)
    reads = sum(one.copies for one in recurring if one.what == "number" and one.target == "cpu")
    moved = f"the batch, {batch:,.0f} bytes a step over all ranks, is" if batch else "nothing is"
    text = f"{named(trace)} on {devices}: {moved} copied between devices in every step"
    return text + (f"; {reads:g} single numbers a step are read back, each of which waits for the device" if reads else "")


def _table(recurring: list[Copy]) -> dict[str, Any]:
    rows = [[one.rank, one.source, one.target, one.phase, one.what, one.where, one.copies, one.bytes] for one in recurring]
    return {"columns": ["rank", "from", "to", "phase", "what", "line", "copies a step", "bytes a step"], "rows": rows[:50]}
