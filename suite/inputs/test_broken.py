"""Inputs that are broken, absent, or like nothing seen before: refused or reported, never trained on in silence."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.inputs import InputDamage
from suite.inputs.broken import far_out_is_noticed, malformed_is_stopped, missing_is_refused
from suite.inputs.cases import over_all, training_inputs

ONE_DAMAGE = "one kind of damage, to one row in a hundred; a file that is no table is cut and has bytes flipped"


@criterion(
    "inputs.malformed",
    claim="Broken rows stop every rank before its first step or are reported and left out; none is trained on.",
    twin=Fault("damage_batch", rank=1, step=2, how="nan"),
    because=r"trained on .* in step 2 on rank 1|a batch ended it after 1 finished steps",
    threshold="0 samples trained on that a run on sound inputs does not have; the output names a broken row, column or value",
    needs=("inputs",),
    assumptions=("a job that reads the same sound inputs twice trains on the same samples",),
    limitations=(ONE_DAMAGE, "damage that keeps a row plausible cannot be told from data"),
    overturned_by="a broken record that reaches the model, or that ends the job without being named",
)
def test_malformed(audit: Audit) -> None:
    """Given one broken row in a hundred, the job names them and trains on none."""
    clean = audit.run(world_size=audit.world_size, planted=False)
    seen = audit.run(world_size=audit.world_size)
    runs = [
        audit.run(world_size=audit.world_size, damage=InputDamage("malformed", name), planted=False) for name in training_inputs(audit.job)
    ]
    audit.judge(over_all, malformed_is_stopped, [(clean, damaged, seen) for damaged in runs])


@criterion(
    "inputs.missing",
    claim="Without one of its inputs every rank stops before its first step, with a non-zero exit code and the missing path in its output.",
    twin=Fault("exit_zero"),
    because=r"exited with code 0",
    threshold="0 steps, exit code not 0 on any rank, path named",
    needs=("inputs",),
    min_world=1,
    assumptions=("The job reads the input from the path that job.toml gives, and keeps no copy of it elsewhere.",),
    limitations=("the file is absent from the start; one that vanishes later is not tried", "of a folder its largest file is removed"),
    overturned_by="an absent input after which a rank exits with code 0, trains, or hangs",
)
def test_missing(audit: Audit) -> None:
    """Given no input file, no rank trains and the output says which file was missing."""
    runs = [audit.run(world_size=audit.world_size, damage=InputDamage("missing", name)) for name in training_inputs(audit.job)]
    audit.judge(over_all, missing_is_refused, [(damaged,) for damaged in runs])


@criterion(
    "inputs.out_of_distribution",
    claim="Values a thousand ranges away and categories never seen are refused or reported, and the model gets nothing outside its usual range.",
    twin=Fault("damage_batch", rank=1, step=2, how="scale", factor=1e6),
    because=r"was fed .* in step 2 on rank 1",
    threshold="inputs of the model at most ten clean ranges beyond the clean run's on either side; the output names the row, column or value",
    needs=("inputs",),
    assumptions=("clipping to a declared bound, which may lie beyond what a clean run happens to show, is a fair answer",),
    limitations=(ONE_DAMAGE, "a drift inside the usual range is not looked for"),
    overturned_by="an absurd value that reaches the model, or that passes without a word",
)
def test_out_of_distribution(audit: Audit) -> None:
    """Given absurd values and unknown categories, the job says so and the model is not fed them."""
    clean = audit.run(world_size=audit.world_size, planted=False)
    seen = audit.run(world_size=audit.world_size)
    names = [name for name in training_inputs(audit.job) if name in audit.job.records]
    runs = [audit.run(world_size=audit.world_size, damage=InputDamage("out_of_range", name), planted=False) for name in names]
    if not runs:
        audit.inconclusive(
            "no input that the command names has a [records.NAME] in job.toml: declare one, so that its values can be pushed out of range"
        )
    audit.judge(over_all, far_out_is_noticed, [(clean, damaged, seen) for damaged in runs])
