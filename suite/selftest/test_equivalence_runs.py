"""The criteria of equivalence on small jobs in real worlds: healthy ones of many kinds pass, and each twin is rejected where the job has what it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.criterion import complaint, criterion_of
from fixtures.job import Job, load_job
from fixtures.world import open_launcher
from suite.equivalence import test_computation as computation
from suite.equivalence import test_normalisation as scale
from suite.equivalence import test_outcome as outcome
from suite.equivalence import test_samples as samples
from suite.equivalence import test_state as state
from suite.selftest.criterion_runs import JOBS, CriterionRuns

SCRIPT = JOBS / "features" / "train.py"
NOISY = ("equivalence.data_coverage", "equivalence.data_order", "equivalence.gradient", "equivalence.loss_trajectory")


def job(folder: Path, name: str, options: str = "", steps: int = 14, accumulate: bool = True) -> Job:
    where = folder / name
    where.mkdir(parents=True, exist_ok=True)
    link = where / "train.py"
    if not link.exists():
        link.symlink_to(SCRIPT)
    command = f"train.py --batch {{per_rank_batch}} --steps {{steps}} --seed {{seed}} {options}".strip()
    extra = 'accumulate = "--accumulate {micro_batches}"\n' if accumulate else ""
    text = f'[job]\nname = "{name}"\ncommand = "{command}"\nglobal_batch = 16\nsteps = {steps}\ntime_limit_s = 60\n{extra}'
    (where / "job.toml").write_text(text + "[targets]\noverfit_loss_share = 0.2\n")
    return load_job(where / "job.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CriterionRuns]:
    with open_launcher() as launcher:
        yield CriterionRuns(launcher, tmp_path_factory.mktemp("equivalence"))


FEATURES: tuple[tuple[Callable[..., None], str, str], ...] = (
    (samples.test_shuffle_changes, "plain", ""),
    (samples.test_workers_distinct, "workers", "--workers 2 --noise 0.1"),
    (state.test_buffers_agree, "statistics", "--norm batch"),
    (state.test_unused_parameters, "plain", ""),
    (state.test_scaler_agrees, "scaled", "--scaler"),
    (state.test_randomness, "dropping", "--dropout 0.3"),
    (state.test_determinism, "plain", ""),
    (scale.test_normalisation, "plain", ""),
    (scale.test_accumulation, "plain", ""),
    (scale.test_batch_scaling, "plain", ""),
    (scale.test_clipping, "plain", ""),
    (scale.test_reduce_precision, "plain", ""),
    (outcome.test_schedule, "plain", ""),
    (outcome.test_evaluation, "evaluated", "--evaluate"),
    (outcome.test_overfit, "plain", ""),
)


@pytest.mark.parametrize("part", ["as_is", "twin"])
@pytest.mark.parametrize(("test", "name", "options"), FEATURES, ids=lambda value: getattr(value, "__name__", None))
def test_a_criterion_holds_and_its_twin_is_rejected(runs: CriterionRuns, test: object, name: str, options: str, part: str) -> None:
    result = runs.judged(job(runs.folder, name, options), test, part)
    declared = criterion_of(test)

    assert declared is not None
    assert complaint(declared, part, result) == ""
    assert result.outcome == ("accepted" if part == "as_is" else "rejected"), result.finding.explanation


ABSENT: tuple[tuple[Callable[..., None], str], ...] = (
    (samples.test_workers_distinct, "loads in the training process"),
    (state.test_buffers_agree, "has no buffer"),
    (state.test_scaler_agrees, "no rank has an enabled GradScaler"),
    (state.test_randomness, "no random number is drawn"),
    (outcome.test_evaluation, "no module was called in evaluation mode"),
)


@pytest.mark.parametrize(("test", "words"), ABSENT, ids=lambda value: getattr(value, "__name__", None))
def test_what_a_job_lacks_is_not_applicable_with_what_was_seen(runs: CriterionRuns, test: object, words: str) -> None:
    result = runs.judged(job(runs.folder, "plain"), test)

    assert result.outcome == "not_applicable"
    assert words in result.finding.explanation


def test_statistics_that_nobody_sends_round_are_found(runs: CriterionRuns) -> None:
    result = runs.judged(job(runs.folder, "own", "--norm batch --own-statistics"), state.test_buffers_agree)

    assert result.outcome == "rejected"
    assert "each rank keeps running statistics of its own share" in result.finding.explanation


def test_a_metric_over_padded_rows_is_found(runs: CriterionRuns) -> None:
    result = runs.judged(job(runs.folder, "padded", "--evaluate --pads"), outcome.test_evaluation)

    assert result.outcome == "rejected"
    assert "1 too many" in result.finding.explanation


def test_a_parameter_without_part_in_the_loss_is_found(runs: CriterionRuns) -> None:
    result = runs.judged(job(runs.folder, "spare", "--unused"), state.test_unused_parameters)

    assert result.outcome == "rejected"
    assert "spare.weight" in result.finding.explanation


MATRIX = [
    f"{dtype} {parallel} --accumulate {accumulate} {noise} --norm {norm}"
    for dtype in ("", "--bf16")
    for parallel in ("", "--parallel fsdp2")
    for accumulate in (1, 4)
    for noise in ("", "--dropout 0.2")
    for norm in ("none", "batch", "sync")
]
EVERY = (
    *(
        samples.test_data_coverage,
        samples.test_data_order,
        samples.test_shuffle_changes,
        computation.test_gradient,
        computation.test_loss_trajectory,
    ),
    *(
        state.test_buffers_agree,
        state.test_unused_parameters,
        state.test_randomness,
        scale.test_normalisation,
        scale.test_clipping,
        scale.test_reduce_precision,
    ),
    *(outcome.test_schedule, computation.test_ranks_agree, scale.test_accumulation),
)
PER_RANK_STATISTICS = "batch statistics of a rank's own share are another model at every world size: rejected by design"


def by_design(options: str, id: str) -> bool:
    """Findings that are right: unsynchronised batch statistics make another gradient, and FSDP2 never sends their buffers round."""
    own = "--norm batch" in options
    return own and id.split(".")[1] in {"gradient", "loss_trajectory", "reduce_precision", "accumulation", "buffers_agree"}


@pytest.mark.parametrize("options", MATRIX)
def test_healthy_jobs_raise_no_false_alarm(runs: CriterionRuns, options: str) -> None:
    """Every kind of precision, wrapper, accumulation, dropout and batch statistics, at worlds of 1, 2 and 4."""
    alarms = []
    made = job(runs.folder, f"matrix{MATRIX.index(options)}", options, steps=8, accumulate=False)
    for test in EVERY:
        declared = criterion_of(test)
        assert declared is not None
        result = runs.judged(made, test, world_size=4)
        if result.outcome in {"rejected", "crashed"} and not by_design(options, declared.id):
            alarms.append(f"{declared.id}: {result.outcome}: {result.finding.explanation}")

    assert alarms == []
