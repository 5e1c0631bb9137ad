"""Was the job slow, or the machine busy? A decision on times stands only if it stands with all that others took taken out of the times.

Benchmark tools warn of noise and leave the reader to guess whether it matters. Here no bound is guessed. Others can have taken from a step no more than they
used of the ranks' cores, and no more than the ranks' threads stood ready to run without a core (the kernel counts both); ranks wait for each other, so a loss on
any of them is everybody's. A mean moves by that share; a median over steps moves only when half of them do, so it can have been moved by twice the share. A
decision that this may have made is none: a rejection, and an acceptance as well, since a busy machine makes computing look long, and the share of everything
else small. Nothing is ever accepted for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding

MOVES_A_MEDIAN = 2.0  # a share x of all time, put into half of the steps, makes each of those longer by 2 x
MOVES_A_MEAN = 1.0


@dataclass(frozen=True, slots=True)
class Busy:
    """What others used during some runs: `used` and `stolen` (by the hypervisor) in cores, of `cores` that the ranks ran on.

    queued: the share of their time that the ranks, all together, stood ready and had no core; None where that was not counted.
    taken: the share of a run's time that may be others', `stolen` included.
    """

    used: float
    stolen: float
    cores: int
    queued: float | None
    taken: float

    def describe(self) -> str:
        stolen = f" and the hypervisor took {self.stolen:.2g}" if self.stolen > 0.005 else ""
        waited = (
            f", and the ranks' threads together waited {self.queued:.2g} s of every second for a core" if self.queued is not None else ""
        )
        return f"others used {max(0.0, self.used):.2g} of {self.cores} {'core' if self.cores == 1 else 'cores'}{stolen} during the runs{waited}"


def busy(traces: Sequence[Trace]) -> Busy | None:
    """What others used while these runs ran, all runs together; None where that was not measured in each of them."""
    seen = [trace.ended.get("others") for trace in traces]
    if not seen or not all(seen):
        return None
    known: list[dict[str, Any]] = [one for one in seen if one]
    weights = [one["elapsed_s"] / sum(other["elapsed_s"] for other in known) for one in known]
    used, stolen = ([one[name] / one["elapsed_s"] for one in known] for name in ("others_s", "stolen_s"))
    queued = [queued_share(trace) for trace in traces]
    mosts = [one if waited is None else min(one, waited) for one, waited in zip(used, queued, strict=True)]
    taken = [max(0.0, most) + max(0.0, gone) for most, gone in zip(mosts, stolen, strict=True)]
    waits = [share for share in queued if share is not None]
    cores = max(int(one["cores"]) for one in known)
    return Busy(
        _mean(used, weights),
        _mean(stolen, weights),
        cores,
        _mean(waits, weights) if len(waits) == len(known) else None,
        _mean(taken, weights),
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def queued_share(trace: Trace) -> float | None:
    """How long the ranks' threads, all together, stood ready without a core from the first step to the end, as a share of that time; None if unknown."""
    start, end = ({one["rank"]: one for one in trace.records if one["kind"] == kind} for kind in ("start", "usage"))
    if not start or set(start) != set(end):
        return None
    shares = []
    for rank, first in start.items():
        last = end[rank]
        if first.get("queued_ns") is None or last.get("queued_ns") is None or last["t_ns"] <= first["t_ns"]:
            return None
        shares.append(max(0, last["queued_ns"] - first["queued_ns"]) / (last["t_ns"] - first["t_ns"]))
    return float(sum(shares))


def given_back(finding: Finding, traces: Sequence[Trace], distance: float, moves: float = MOVES_A_MEDIAN) -> Finding:
    """The finding, with what others used during `traces`, the runs whose times they may have made too long.

    `distance`: the share of those runs' time that would have to be others' for the decision to be another one. Where it may be, nothing is decided.
    `moves`: by how many times what others took the number that was decided on can have moved.
    """
    machine = busy(traces)
    if machine is None:
        return finding
    noted = replace(finding, details={**finding.details, "machine": machine.describe()})
    if finding.accepted is None:
        return replace(noted, explanation=f"{finding.explanation}; {machine.describe()}")
    if distance > moves * machine.taken:
        return noted
    text = f"undecided, the machine was busy: {machine.describe()}, which may account for all of this: {finding.explanation}"
    return replace(noted, accepted=None, explanation=text)
