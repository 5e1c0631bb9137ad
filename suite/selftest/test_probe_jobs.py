"""What the probe sees of training loops of every shape, none of which knows of it; what it cannot see it says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from fixtures.trace import PHASES, NotSeen
from fixtures.world import open_launcher
from suite.selftest.probe_runs import ProbeRuns, Ran, exit_codes, raw

EVERY_KIND = (
    *(
        "by_hand",
        "ddp",
        "loss_inside",
        "loss_beside",
        "lbfgs",
        "evaluated_first",
        "scaler",
        "two_optimizers",
        "two_modules",
        "bare_tensors",
        "zero",
        "fsdp",
    ),
    *("explicit_float32", "sparse", "stream", "dropout", "compiled", "compiled_in_place"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("jobs"))


def printed_losses(ran: Ran, rank: int) -> list[float]:
    return [float.fromhex(line.split()[-1]) for line in ran.logs[rank].splitlines() if line.startswith("loss")]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_loop_is_seen_and_left_alone(runs: ProbeRuns, kind: str) -> None:
    plain, ran = runs.start("loops", "--kind", kind, probe=False), runs.start("loops", "--kind", kind, level="full")
    assert exit_codes(ran) == [0, 0], ran.logs
    assert ran.logs == plain.logs, "training differs under the probe"
    assert ran.trace.errors() == []
    for rank in (0, 1):
        steps = ran.trace.steps.query(f"rank == {rank}")
        assert list(steps["step"]) == [1, 2, 3]
        np.testing.assert_array_equal(steps["loss"], printed_losses(ran, rank), err_msg="recorded and printed losses differ")
        assert (steps["micro_batches"] == 1).all()
        assert steps["param_digest"].nunique() == (2 if kind == "scaler" else 3)
        named = steps[["data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms"]].sum(axis=1)
        np.testing.assert_allclose(named, steps["step_ms"], rtol=1e-9)
        assert (steps["probe_ms"] <= steps["step_ms"]).all()
    assert raw(ran, 0)[-1]["kind"] == "exit"


def test_phase_codes_are_the_trace_readers_own() -> None:
    record = (__import__("pathlib").Path(__file__).parents[2] / "fixtures/probe/rankproof_probe/record.py").read_text()
    assert f"PHASES = {PHASES!r}".replace("'", '"') in record


def test_world_sizes_agree_in_exact_numbers(runs: ProbeRuns) -> None:
    """The same samples per step, the same mean gradient, at 1, 2 and 4 ranks."""
    by_size = {ranks: runs.start("loops", "--kind", "ddp", ranks=ranks, level="full", numerics="exact") for ranks in (1, 2, 4)}
    alone = by_size[1].trace
    assert {entry["dtype"] for entry in alone.model(0)["parameters"]} == {"float64"}
    for ran in by_size.values():
        for step in (1, 2, 3):
            of_step = sorted(ran.trace.samples.query(f"step == {step}")["sample"])
            assert of_step == sorted(alone.samples.query(f"step == {step}")["sample"])
        assert ran.trace.not_seen() == {}
        for name, gradient in ran.trace.gradients(0).items():
            np.testing.assert_allclose(gradient, alone.gradients(0)[name], rtol=1e-12, atol=1e-14)
        digests = ran.trace.steps.groupby("step")["param_digest"].nunique()
        assert (digests == 1).all(), "ranks of one world differ"


def test_norms_and_gradients_are_those_of_torch(runs: ProbeRuns) -> None:
    trace = runs.start("ddp", "--accumulate", "2", level="full").trace
    norms = trace.gradient_norms.query("rank == 0 and step == 1").set_index("name")["norm"]
    for name, gradient in trace.gradients(0).items():
        assert norms[name] == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-6, abs=1e-7)
    first = trace.steps.query("rank == 0 and step == 1").iloc[0]
    assert first["micro_batches"] == 2
    assert first["clip_norm"] == pytest.approx(first["grad_norm"], rel=1e-6), "the gradient was to be captured before clipping"
    assert first["grad_norm"] > 1.0
    assert first["lr"] == [0.01]


def test_collectives_are_those_of_the_reducer(runs: ProbeRuns) -> None:
    trace = runs.start("ddp", "--accumulate", "2").trace
    reduced = trace.collectives.query("op == 'allreduce' and phase == 'backward'")
    assert len(reduced) == 2 * 4, "one bucket, reduced once a step on each rank: no_sync micro-batches reduce nothing"
    assert (reduced["bytes"] == 4 * trace.model(0)["parameter_count"]).all()
    assert (reduced["done_ns"] >= reduced["arrive_ns"]).all()
    assert (trace.steps["exposed_ms"] >= 0).all()
    assert trace.steps["exposed_ms"].sum() > 0, "the last bucket cannot have been reduced in no time"


def test_a_skipped_step_is_told_apart(runs: ProbeRuns) -> None:
    trace = runs.start("loops", "--kind", "scaler", ranks=1).trace
    assert list(trace.steps["skipped"]) == [False, True, False]
    assert trace.steps["param_digest"].iloc[0] == trace.steps["param_digest"].iloc[1]


def test_samples_follow_the_data_and_not_the_batch(runs: ProbeRuns) -> None:
    alone, together = (runs.start("ddp", ranks=ranks).trace for ranks in (1, 2))
    assert list(alone.steps["n_samples"]) == [16] * 4
    for step in (1, 2, 3, 4):
        assert set(alone.samples.query(f"step == {step}")["sample"]) == set(together.samples.query(f"step == {step}")["sample"])
    assert alone.samples["sample"].nunique() == 64, "64 different samples make 64 hashes"


def test_rows_can_be_permuted(runs: ProbeRuns) -> None:
    plain = runs.start("ddp", ranks=1).trace
    again, other = (runs.start("ddp", ranks=1, permute="1").trace for _ in range(2))
    for step in (1, 2):
        before, after = (list(trace.samples.query(f"step == {step}")["sample"]) for trace in (plain, again))
        assert before != after
        assert sorted(before) == sorted(after)
    assert list(again.samples["sample"]) == list(other.samples["sample"])
    by_hand = runs.start("loops", "--kind", "by_hand", ranks=1, permute="1").trace
    assert "without a DataLoader" in by_hand.not_seen()["permute"]


def test_exact_numbers_drop_nothing_and_draw_nothing(runs: ProbeRuns) -> None:
    ran = runs.start("loops", "--kind", "dropout", ranks=1, numerics="exact")
    assert exit_codes(ran) == [0]
    assert ran.trace.not_seen() == {}
    assert ran.trace.steps["rng"].nunique() == 1, "something drew from a generator although dropout is off"
    assert {entry["dtype"] for entry in ran.trace.model(0)["parameters"]} == {"float64"}


def test_what_exact_numbers_cannot_reach_is_said(runs: ProbeRuns) -> None:
    trace = runs.start("loops", "--kind", "explicit_float32", ranks=1, numerics="exact").trace
    assert "created as float32 by an explicit dtype" in trace.not_seen()["exact numerics"]


def test_autocast_is_off_in_exact_numbers(runs: ProbeRuns) -> None:
    trace = runs.start("loops", "--kind", "scaler", ranks=1, numerics="exact").trace
    loss = trace.steps["loss"].iloc[0]
    assert loss != np.float32(loss), f"{loss} has no more than float32 digits"


@pytest.mark.parametrize(
    ("kind", "signal", "reason"),
    [
        ("no_optimizer", "steps", "3 backwards ran but no Optimizer.step was seen"),
        ("bare_tensors", "samples", "no module with parameters"),
        ("flattened", "whole_parameters", "flattened (FSDP1)"),
        ("flattened", "gradient", "flattened (FSDP1)"),
    ],
)
def test_what_was_not_seen_is_said(runs: ProbeRuns, kind: str, signal: str, reason: str) -> None:
    trace = runs.start("loops", "--kind", kind, level="full").trace
    assert reason in trace.not_seen()[signal]
    if signal == "gradient":
        with pytest.raises(NotSeen, match="flattened"):
            trace.gradients(0)


def test_the_timing_level_reads_no_tensor(runs: ProbeRuns) -> None:
    trace = runs.start("ddp", level="timing").trace
    assert trace.steps["param_digest"].isna().all()
    assert trace.samples.empty
    assert not trace.collectives.empty
    assert not math.isnan(trace.steps["loss"].iloc[0])


def test_files_are_seen_before_they_are_written(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", watch=str(runs.folder))
    files = ran.trace.files
    assert list(files["n"]) == list(range(1, len(files) + 1))
    assert list(files.query("op != 'torch_save_record' and step == 4")["op"]) == [
        "open",
        "torch_save_end",
        "replace",
        "open",
        "write",
        "fsync",
    ]
    assert set(files.query("step == 2")["op"]) == {"mkdir", "open", "torch_save_record", "torch_save_end", "replace", "write", "fsync"}
    replaced = files.query("op == 'replace'").iloc[0]
    assert (replaced["path"], replaced["to"]) == (str(ran.out / "checkpoints/step2.pt.tmp"), str(ran.out / "checkpoints/step2.pt"))
    assert runs.start("ddp", watch=str(runs.folder / "elsewhere")).trace.files.empty


def test_rows_are_weighed_inside_the_wrapper_where_the_loss_is_computed(runs: ProbeRuns) -> None:
    """DDP hands out a copy of the output that the loss does not depend on: the gradient is met at the model's own."""
    ran = runs.start("loops", "--kind", "loss_beside")

    assert ran.trace.errors() == []
    assert "row weights" not in ran.trace.not_seen()
    noted = ran.trace.steps.query("step == 1")["weights"]
    assert [len(weights) for weights in noted] == [1, 1]
    assert all(norm > 0 for weights in noted for norm in weights[0]["norms"])


def test_parameters_that_a_closure_trains_have_the_names_of_their_module(runs: ProbeRuns) -> None:
    """The step begins before the module was ever called; its forward lies within."""
    ran = runs.start("loops", "--kind", "lbfgs", level="full")

    assert [one["name"] for one in ran.trace.model(0)["parameters"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert ran.trace.start(0)["param_digest"] == ran.trace.start(1)["param_digest"]
    assert all(rates == [0.1] for rates in ran.trace.steps["lr"])


def test_an_evaluation_before_the_first_step_is_no_training(runs: ProbeRuns) -> None:
    ran = runs.start("loops", "--kind", "evaluated_first", ranks=1)
    loaders = [record["training"] for record in ran.trace.records if record["kind"] == "loader"]

    assert loaders == [False, True]
    assert len(ran.trace.steps) == 3
