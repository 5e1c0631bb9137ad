"""Criteria on what comes of a training: its rates, its metric, and whether it can learn at all."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.equivalence.evaluation import metric_is_independent
from suite.equivalence.overfit import tiny_set_is_learnt
from suite.equivalence.rates import rates_follow_samples
from suite.equivalence.starts import as_it_runs, exactly
from suite.equivalence.trajectory import own_randomness
from suite.equivalence.usable import unusable, worlds

TINY_ROWS = 8
LONGER = 4  # times the job's steps, where those are too few: its rate may still be warming up


@criterion(
    "equivalence.schedule",
    claim="The learning rate of every step is one device's: it follows the samples, not the ranks' or micro-batches' steps.",
    twin=Fault("rank_steps"),
    because=r"the schedule advances \d+ times as fast|times one device's in every step",
    threshold="0 steps with another rate",
    assumptions=("The global batch is the same at every world size, so step n has seen the same samples.",),
    limitations=("Rates are read from the optimizer's parameter groups.",),
    overturned_by="A step whose rate, logged by the job, differs between two world sizes.",
)
def test_schedule(audit: Audit) -> None:
    """More ranks do not shorten the schedule."""
    start = as_it_runs(audit)
    alone = start(world_size=1, planted=False)
    plain = [start(world_size=size, planted=False) for size in worlds(audit.world_size)[1:]]
    absent = rates_follow_samples(alone, plain).absent
    audit.judge(rates_follow_samples, alone, plain if absent or not audit.twin else [start(world_size=audit.world_size)])


@criterion(
    "equivalence.evaluation",
    claim="The evaluation metric is one device's at every world size: no row is counted twice, none is left out.",
    twin=Fault("pad_evaluation"),
    because=r"one device's .*: evaluation \d+ takes|evaluation \d+ takes \d+ rows where",
    threshold="the noise of the metric on one device in other orders, and what its printed digits leave open",
    assumptions=("The metric is printed; its name begins with val, eval, test or dev, or [job] metric finds it.",),
    limitations=("Evaluations in a program of their own are not part of the training job.",),
    overturned_by="A metric over the same rows and weights that differs between two world sizes.",
)
def test_evaluation(audit: Audit) -> None:
    """A metric measures the model, not the number of ranks."""
    start, pattern = as_it_runs(audit), audit.job.metric or ""
    alone = start(world_size=1, planted=False)
    permuted = [start(world_size=1, permute=seed, planted=False) for seed in range(1, 6)]
    if not unusable([alone, *permuted], "loss") and own_randomness(alone, permuted, "as_run"):
        start = exactly(audit)
        alone, permuted = start(world_size=1, planted=False), [start(world_size=1, permute=seed, planted=False) for seed in range(1, 6)]
    plain = [start(world_size=size, planted=False) for size in worlds(audit.world_size)[1:]]
    absent = metric_is_independent(alone, permuted, plain, pattern).absent
    audit.judge(
        metric_is_independent, alone, permuted, plain if absent or not audit.twin else [start(world_size=audit.world_size)], pattern
    )


@criterion(
    "equivalence.overfit",
    claim="Trained on a few samples alone, the job brings its loss down to a small part of the first.",
    twin=Fault("desync_gradient", factor=0.0),
    because=r"nothing is learnt",
    threshold="the policy's overfit_loss_share of the first loss",
    assumptions=("Eight rows of the first batch, given again in every batch, can be told apart.",),
    limitations=("A job whose rate is still warming up within four times its steps is not judged.",),
    overturned_by="A run of the job on eight samples whose loss stays.",
)
def test_overfit(audit: Audit) -> None:
    """What can be learnt by heart is."""
    rows, share = max(TINY_ROWS, audit.world_size), audit.targets("overfit_loss_share")
    tiny = (Fault("tiny_set", rows=rows),)
    short = audit.run(world_size=audit.world_size, faults=tiny, planted=False)
    steps = audit.job.steps if tiny_set_is_learnt(short, share, rows).accepted else LONGER * audit.job.steps
    audit.judge(tiny_set_is_learnt, audit.run(world_size=audit.world_size, steps=steps, faults=tiny), share, rows)
