"""Was the job slow, or the machine busy? A decision on times stands only if it stands with all that others used taken out of the times.

Benchmark tools warn of noise and leave the reader to guess whether it matters. Here no bound is guessed: what others used of the ranks' cores is the
most that they can have taken from a step (ranks wait for each other, so a loss on any core is everybody's), and a median over steps moves only when
half of them do, so it can have been moved by twice that share. A decision that this may have made is none: a rejection, and an acceptance as well,
since a busy machine makes computing look long, and the share of everything else small. Nothing is ever accepted for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding

MOVES_A_MEDIAN = 2.0  # a share x of all time, put into half of the steps, makes each of those longer by 2 x


@dataclass(frozen=True, slots=True)
class Busy:
    """What others used during some runs: `used` and `stolen` (by the hypervisor) in cores, of `cores` that the ranks ran on."""

    used: float
    stolen: float
    cores: int

    @property
    def credit(self) -> float:
        """The share of a step's time that may be others' and not the job's."""
        return MOVES_A_MEDIAN * max(0.0, self.used + self.stolen)

    def describe(self) -> str:
        stolen = f" and the hypervisor took {self.stolen:.2g}" if self.stolen > 0.005 else ""
        return f"others used {max(0.0, self.used):.2g} of {self.cores} {'core' if self.cores == 1 else 'cores'}{stolen} during the runs"


def busy(traces: Sequence[Trace]) -> Busy | None:
    """What others used while these runs ran, all runs together; None where that was not measured in each of them."""
    seen = [trace.ended.get("others") for trace in traces]
    if not seen or not all(seen):
        return None
    known: list[dict[str, Any]] = [one for one in seen if one]
    elapsed_s = sum(one["elapsed_s"] for one in known)
    used, stolen = (sum(one[name] for one in known) / elapsed_s for name in ("others_s", "stolen_s"))
    return Busy(used, stolen, max(int(one["cores"]) for one in known))


def given_back(finding: Finding, traces: Sequence[Trace], distance: float) -> Finding:
    """The finding, with what others used during `traces`, the runs whose times they may have made too long.

    `distance`: the share of those runs' time that would have to be others' for the decision to be another one. Where it may be, nothing is decided.
    """
    machine = busy(traces)
    if machine is None:
        return finding
    noted = replace(finding, details={**finding.details, "machine": machine.describe()})
    if finding.accepted is None:
        return replace(noted, explanation=f"{finding.explanation}; {machine.describe()}")
    if distance > machine.credit:
        return noted
    text = f"undecided, the machine was busy: {machine.describe()}, which may account for all of this: {finding.explanation}"
    return replace(noted, accepted=None, explanation=text)
