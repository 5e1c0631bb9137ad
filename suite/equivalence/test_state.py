"""Criteria on what each rank holds beside its parameters, and on what it draws."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.equivalence.buffers import buffers_agree
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.repeats import run_repeats_itself
from suite.equivalence.scaler import scalers_agree
from suite.equivalence.starts import as_it_runs
from suite.equivalence.unused import every_parameter_is_trained


@criterion(
    "equivalence.buffers_agree",
    claim="All ranks hold the same buffers whenever a forward begins, and when they evaluate together.",
    twin=Fault("desync_buffer", rank=1, delta=0.5),
    because=r"rank 1's buffers differ from rank 0's when step \d+ begins",
    threshold="0 steps that begin with different buffers; the update within a forward may differ where rank 0's buffers are sent round before the next",
    assumptions=("Equal 64-bit digests mean equal buffers.",),
    limitations=("A compiled module is not looked into. Evaluations are seen where the module is called in evaluation mode.",),
    overturned_by="Two ranks whose saved buffers differ at the beginning of a step.",
)
def test_buffers_agree(audit: Audit) -> None:
    """Running statistics belong to the model, not to the rank."""
    start = as_it_runs(audit)
    plain = [start(world_size=size, planted=False) for size in audit.worlds[1:]]
    audit.judge(buffers_agree, plain if not audit.twin or buffers_agree(plain).absent else [start(world_size=audit.world_size)])


@criterion(
    "equivalence.unused_parameters",
    claim="Every trained parameter gets a gradient, on every rank, at every world size.",
    twin=Fault("drop_gradient", rank=1),
    because=r"rank 1 has no gradient for \S+ in step 1 while rank 0 has one",
    threshold="0 parameters without a gradient: in any step on some ranks only, or in all steps on all",
    assumptions=("A gradient that is exactly zero is one: the parameter takes part in the loss.",),
    limitations=("A parameter that takes part only later than the run goes is named as unused.",),
    overturned_by="A parameter that requires a gradient and whose .grad is None when the optimizer steps.",
)
def test_unused_parameters(audit: Audit) -> None:
    """Nothing that is meant to be trained stands still."""
    start = as_it_runs(audit)
    audit.judge(every_parameter_is_trained, [start(world_size=size) for size in audit.worlds])


@criterion(
    "equivalence.scaler_agrees",
    claim="All ranks scale their loss by the same factor and skip the same steps.",
    twin=Fault("overflow", rank=1, step=2),
    because=r"rank 1 skips step 2 and rank 0 takes it",
    threshold="0 steps in which two ranks differ",
    assumptions=("Loss scaling is torch's GradScaler.",),
    limitations=("A scale that is kept by hand is not seen.",),
    overturned_by="Two ranks whose GradScaler state differs in one step.",
)
def test_scaler_agrees(audit: Audit) -> None:
    """An overflow on one rank is an overflow on all."""
    start = as_it_runs(audit)
    plain = [start(world_size=size, planted=False) for size in audit.worlds[1:]]
    audit.judge(scalers_agree, plain if not audit.twin or scalers_agree(plain).absent else [start(world_size=audit.world_size)])


@criterion(
    "equivalence.randomness",
    claim="Ranks begin from one device's weights, and draw different random numbers in forwards and while loading.",
    twin=Fault("same_seed"),
    because=r"draw the same random numbers",
    threshold="0 pairs of ranks that draw from one state of a generator in one step",
    assumptions=("Two equal states of a generator that is drawn from give equal draws.",),
    limitations=(
        "Generators on the CPU and the current device are watched, in forwards and fetches; iterable data sets may shuffle alike by design.",
        "What the training loop draws itself counts where it alters what a DataLoader hands over; generators are found in its variables and their attributes.",
    ),
    overturned_by="Two ranks with the same dropout mask or augmentation in one step, or with other initial weights.",
)
def test_randomness(audit: Audit) -> None:
    """Ranks differ in noise, and in nothing else."""
    start = as_it_runs(audit)
    alone = start(world_size=1, planted=False)
    plain = [start(world_size=size, planted=False) for size in audit.worlds[1:]]
    if audit.twin and not ranks_draw_apart(alone, plain).absent:
        audit.judge(ranks_draw_apart, alone, [start(world_size=audit.world_size)])
    else:
        audit.judge(ranks_draw_apart, alone, plain)


@criterion(
    "equivalence.determinism",
    claim="The same run, started again, takes the same samples and computes the same, bit for bit or within rounding.",
    twin=Fault("desync_parameter", step=2, delta=1.0),
    because=r"the repeat leaves the first run at step 3",
    threshold="half of float32's digits of the loss, in the first step that differs; whether all bits are equal is said",
    assumptions=("Kernels that add in any order differ by rounding in the step in which they first do.",),
    limitations=("One repeat, on one machine.",),
    overturned_by="A second run of the same seed on the same machine whose loss differs by more.",
)
def test_determinism(audit: Audit) -> None:
    """A run can be repeated."""
    start = as_it_runs(audit)
    audit.judge(run_repeats_itself, start(world_size=audit.world_size, planted=False), start(world_size=audit.world_size, repeat=1))
