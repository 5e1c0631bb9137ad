"""A small example that a person worked out with pencil and paper, given to the job's own code."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.inputs import InputDamage, with_fault
from suite.inputs.by_hand import equals_by_hand


@criterion(
    "inputs.hand_calculated",
    claim="From a small example the job computes the numbers that a person worked out by hand.",
    twin=Fault("input_altered_value"),
    because=r"by hand, .* by the job",
    threshold="0 fields that differ by more than the declared tolerance",
    needs=("hand_calculated",),
    min_world=1,
    assumptions=("the expected numbers were worked out without the job's code",),
    limitations=("one example; it shows that the steps it touches are right, not that every input is handled",),
    overturned_by="a mistake in the calculation by hand",
)
def test_hand_calculated(audit: Audit) -> None:
    """The job agrees with the calculation by hand, field by field."""
    hand = audit.job.hand_calculated
    if hand is None:
        audit.inconclusive("job.toml has no [hand_calculated]")
    damage = None
    if audit.twin is not None:
        names = [name for name in audit.job.inputs if "{" + name + "}" in hand.command]
        if not names:
            audit.inconclusive(
                "the command of [hand_calculated] names none of [inputs], so no value of its example can be altered: write {NAME} in it"
            )
        damage = with_fault(InputDamage("untouched", names[0]), audit.twin)
    program = audit.program(hand.command, files=(hand.produces,), damage=damage)
    audit.judge(equals_by_hand, program, produces=hand.produces, expected=hand.expected, tolerance=hand.tolerance)
