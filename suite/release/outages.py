"""Judge of one path under load: the checkpoint store fills up or goes away while the job saves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fixtures.trace import NotSeen, Trace
from suite.recovery.ends import how_it_ended, hung
from suite.release.paths import LoadedPath
from suite.release.restore_load import restored_step

NAMES = {"full_store": "a full store", "missing_store": "a store that goes away"}
SAID = {
    "full_store": re.compile(r"no space left|\bENOSPC\b|errno 28|disk (is )?full|out of (disk )?space", re.IGNORECASE),
    "missing_store": re.compile(r"no such file|\bENOENT\b|errno 2\b|not found|missing|unavailable", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Outage:
    """A run whose store refuses every save from one on, and the run that resumed what it left, the store being there again."""

    kind: str
    run: Trace
    resumed: Trace


def survives(control: Trace, outage: Outage, *, every: int) -> LoadedPath:
    """The job says what happened, by its exit code or in its output, no rank waits for ever, and at most one interval of work is lost."""
    name, run = NAMES[outage.kind], outage.run
    refused = [int(record["step"]) - 1 for record in run.faults() if record["fault"]["kind"] == outage.kind]
    if not refused:
        return LoadedPath(
            name, None, "no operation was seen that a store could refuse (a child process, mmap or C++ writes), so this was not tried"
        )
    if hung(run):
        return LoadedPath(name, False, f"the job {how_it_ended(run)}")
    if not run.crashed and not any(SAID[outage.kind].search(run.log(rank)) for rank in run.ranks):
        return LoadedPath(
            name, False, f"the save of step {min(refused)} was refused, and every rank ended with code 0 without a word of it"
        )
    ended = how_it_ended(run) if run.crashed else "the job said so and trained on"
    try:
        step = restored_step(control, outage.resumed)
    except NotSeen as error:
        return LoadedPath(
            name, False if outage.resumed.crashed else None, f"{ended}; then it did not come back: {how_it_ended(outage.resumed)} ({error})"
        )
    least = min(refused) - every
    if step is None or step < max(1, least):
        held = "a state that the uninterrupted run never had" if step is None else f"step {step}"
        return LoadedPath(name, False, f"{ended}; then it came back with {held}, and step {max(1, least)} was saved before")
    return LoadedPath(name, True, f"at the save of step {min(refused)} {ended}; then it came back at step {step}")
