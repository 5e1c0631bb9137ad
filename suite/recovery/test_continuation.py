"""Kill the job in the middle of an epoch, at its end, inside an accumulated step, and again after it came back; hold every later step against the
run that was never interrupted.
"""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.alignment import gone_on, states_of
from suite.recovery.cases import Case, finished_steps, unproven_kill
from suite.recovery.continuation import continues_everywhere
from suite.recovery.kills import cadence, epoch_end, killed_after, resumed_from, steps_of
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.recovery.returns import come_back


@criterion(
    "recovery.continuation",
    claim="A job that loses a rank, wherever in an epoch or a step, and is started again repeats, bit for bit, the steps of the run that was never interrupted.",
    twin=Fault("forget", part="optimizer"),
    because=r"optimizer state|parameters",
    threshold="0 later steps that differ in parameters, optimizer state, learning rate, loss, samples or RNG; lost steps <= the checkpoint cadence",
    needs=("checkpoint",),
    min_world=1,
    assumptions=(
        "the machine that resumes is like the one that failed (same number of ranks, same library versions), so equal means bit-equal",
        "from three ranks on the first step of a process may add gradients in another order than later ones (DDP lays out its buckets anew): where that is seen and "
        "all that went into the step is bit-equal, its gradient may differ by rounding, and the finding says from where on",
        "a kill is SIGKILL to one rank; the launcher then ends the others",
    ),
    limitations=(
        "one kill at each place: between checkpoints, at the end of an epoch, inside an accumulated step, and a second one after the first resume",
        "RNG is compared where the job draws from it in at least half of its steps",
    ),
    overturned_by="a kill at another step, another world size or another device after which a later step differs",
    version=3,
)
def test_continuation(audit: Audit) -> None:
    """After a SIGKILL and a resume every later step is the one of the uninterrupted run, and no more than one cadence of steps is lost."""
    control, killed = killed_between_checkpoints(audit)
    resumed = resumed_from(audit, killed)
    further, left_out = _further(audit, control, killed, resumed) if audit.twin is None else ([], [])
    audit.judge(continues_everywhere, control, killed, resumed, further, every=cadence(audit), left_out=left_out)


def _further(audit: Audit, control: Trace, killed: Trace, resumed: Trace) -> tuple[list[Case], list[str]]:
    """The other places to be killed at, and which of them this job does not have."""
    cases, left_out = [_killed_twice(audit, control, killed, resumed)], []
    if end := epoch_end(audit, control):
        saved, words = end
        ended = killed_after(audit, saved)
        cases.append(Case(words, resumed_from(audit, ended), newest=saved, unproven=unproven_kill(ended)))
    else:
        left_out.append("no epoch ends between two checkpoints of the run, so none was resumed from there")
    if not control.steps.empty and int(control.steps["micro_batches"].max()) > 1:
        cases.append(_killed_inside_a_step(audit, control))
    else:
        left_out.append("the job does not accumulate, so no step could be cut between two micro-batches")
    return cases, left_out


def _killed_twice(audit: Audit, control: Trace, killed: Trace, resumed: Trace) -> Case:
    """The resumed run is killed as well, once it has saved again where the steps suffice, else in its second step."""
    every = cadence(audit)
    first = come_back(control, resumed, newest=finished_steps(killed))
    back = first.step or 0
    step = every + 2 if back + every + 2 <= steps_of(audit) else 2
    again = resumed_from(audit, killed, Fault("kill", rank=audit.world_size - 1, step=step), planted=False, keep=True)
    done = back + finished_steps(again)
    words = f"killed again {finished_steps(again)} steps after it had come back"
    return Case(
        words,
        resumed_from(audit, again),
        done // every * every,
        least=done // every * every - every,
        done=done,
        unproven=unproven_kill(again),
        expected=gone_on(states_of(control), states_of(resumed), back) if first.rounded else None,
    )


def _killed_inside_a_step(audit: Audit, control: Trace) -> Case:
    """Between two micro-batches of the step after a checkpoint, and in the step with which the next one is due."""
    every = cadence(audit)
    kill = Fault("kill", rank=audit.world_size - 1, step=2 * every, micro_batch=2)
    killed = audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", faults=(kill,), planted=False)
    words = f"killed between two micro-batches of step {2 * every}"
    return Case(words, resumed_from(audit, killed), newest=every, done=finished_steps(killed), unproven=unproven_kill(killed))
