"""Cut a save short, start again, let the job save that very step once more, and start again from there."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.cases import Case, all_come_back, unproven_kill
from suite.recovery.kills import cadence, control_run, resumed_from, steps_of
from suite.recovery.returns import come_back
from suite.recovery.second_save import Cut, cuts


@criterion(
    "recovery.incomplete_never_advertised",
    claim="What a save that was cut short left is never taken for a checkpoint, and does not keep the job from saving that step again.",
    twin=Fault("damage_restored"),
    because=r"weights that the uninterrupted run never had",
    threshold="0 cuts after which a restart takes the torn save, or fails to save that step again",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("a cut is SIGKILL to one rank before one of its file operations",),
    limitations=("three cuts of one save: at its first, a middle and its last file operation",),
    overturned_by="a torn save that a restart takes for a checkpoint, or that makes a later save of the same step fail",
)
def test_incomplete_never_advertised(audit: Audit) -> None:
    """After a cut save the job resumes an older checkpoint, saves the step that was cut again, and resumes from that."""
    every, control = cadence(audit), control_run(audit)
    found = cuts(control, step=2 * every)
    tried = found if audit.twin is None else found[-1:]
    cases = [case for cut in tried for case in _cases(audit, cut, every)]
    nothing = f"no save was seen at step {2 * every}: check [checkpoint] every and directory in job.toml"
    audit.judge(all_come_back, control, cases, unit="cuts that end badly", nothing=nothing)


def _cases(audit: Audit, cut: Cut, every: int) -> list[Case]:
    """The run on what the cut left, to its end; and the run after that was killed when it had saved the cut step again (it counts its own steps)."""
    kill = Fault("kill", rank=cut.rank, operation=cut.turn, after=2 * every)
    killed = audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", faults=(kill,), planted=False)
    unproven = unproven_kill(killed)
    first = Case(f"cut {cut.words}", resumed_from(audit, killed), newest=2 * every, unproven=unproven)
    if audit.twin is not None:
        return [first]
    restored = come_back(control_run(audit), first.resumed, newest=2 * every).step or 0
    again = resumed_from(audit, killed, Fault("kill", rank=0, step=max(1, 2 * every + 2 - restored)), planted=False, keep=True)
    last = resumed_from(audit, again, planted=False)
    saved_again = "" if again.fired("kill") else "the run after the cut was not killed again"
    return [
        first,
        Case(
            f"cut {cut.words}, and killed after that step was saved again",
            last,
            2 * every,
            least=2 * every,
            unproven=unproven or saved_again,
        ),
    ]
