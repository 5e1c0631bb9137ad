"""What the model is given holds nothing from its future."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.inputs import InputDamage, with_fault
from fixtures.trace import Trace
from suite.inputs.cases import over_all, record_inputs
from suite.inputs.knowable import cutoff_changes_nothing, late_changes_nothing, went_round

LATE_SHARE = 0.05
LONGEST = 4  # times [job] steps, to come round the data once


@criterion(
    "inputs.late",
    claim="A record that becomes available after the decisions has no influence on what the model is trained on.",
    twin=Fault("input_available_at_event"),
    because=r"samples change with what",
    threshold="0 samples that differ between two runs whose late records say different things",
    needs=("inputs", "records"),
    min_world=1,
    assumptions=("the availability time of a record is what job.toml says it is",),
    limitations=("one row in twenty is late, by the whole length of the table; influence on labels alone is not seen",),
    overturned_by="a late record whose content changes a sample",
)
def test_late(audit: Audit) -> None:
    """Whatever records say that arrive too late, the samples are the same."""
    cases = [tuple(_late(audit, name, seed) for seed in (1, 2)) for name in record_inputs(audit.job)]
    audit.judge(over_all, late_changes_nothing, cases)


@criterion(
    "inputs.cutoff",
    claim="Every sample can be computed from what was available when it was decided: removing all that came later changes none of them.",
    twin=Fault("input_available_early"),
    because=r"change when what became available after it is removed",
    threshold="0 samples of the run up to the cutoff that the run on everything does not have",
    needs=("inputs", "records"),
    min_world=1,
    assumptions=("the availability time of a record is what job.toml says it is",),
    limitations=(
        "one cutoff: where, in the middle half of the availability times, the most records have happened but are not yet known",
        "constants fitted on the whole table count as knowledge of the future",
    ),
    overturned_by="another cutoff at which a sample changes",
)
def test_cutoff(audit: Audit) -> None:
    """Training on the table as it stood at a cutoff gives samples that training on the whole table gives too."""
    cases = [(_whole(audit, name), _cut(audit, name)) for name in record_inputs(audit.job)]
    audit.judge(over_all, cutoff_changes_nothing, cases)


def _late(audit: Audit, name: str, seed: int) -> Trace:
    return audit.run(world_size=audit.world_size, damage=with_fault(InputDamage("late", name, share=LATE_SHARE, seed=seed), audit.twin))


def _cut(audit: Audit, name: str) -> Trace:
    return audit.run(world_size=audit.world_size, damage=with_fault(InputDamage("cutoff", name), audit.twin))


def _whole(audit: Audit, name: str) -> list[Trace]:
    """Runs on the whole table, twice as long each time until the data has come round once or four times the job's steps are reached."""
    damage = with_fault(InputDamage("untouched", name), audit.twin) if audit.twin else None
    runs, steps = [audit.run(world_size=audit.world_size, damage=damage)], audit.job.steps
    while not went_round(runs[-1]) and not runs[-1].crashed and steps < LONGEST * audit.job.steps:
        steps *= 2
        runs.append(audit.run(world_size=audit.world_size, steps=steps, damage=damage))
    return runs
