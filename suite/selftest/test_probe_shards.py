"""Sharded models are seen whole: the parts that ranks write down make up one device's gradient, norms and digests, and no collective is added."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from fixtures.faults import Fault
from fixtures.trace import Trace
from fixtures.world import open_launcher
from suite.equivalence.agreement import digests, shared
from suite.equivalence.clipping import clipping_is_global
from suite.equivalence.shards import sharded, torn
from suite.equivalence.sharing import holding_parts, once, sharing, strayed
from suite.equivalence.unused import every_parameter_is_trained
from suite.selftest.findings import rejected
from suite.selftest.probe_runs import ProbeRuns, exit_codes

LAYOUTS = [("fsdp", 2), ("fsdp", 4), ("hsdp", 4), ("tensor", 2), ("both", 4), ("bf16", 2), ("evaluated_first", 2)]


def undated(log: str) -> str:
    """The output without the time and the process id that torch's own logger puts before a warning: two runs of the same job differ in those."""
    return re.sub(r"([IWE])\d{4} [\d:.]+ \d+ ", r"\1 ", log)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def alone(runs: ProbeRuns) -> Trace:
    return runs.start("shards", "--kind", "whole", ranks=1, level="full", numerics="exact").trace


@pytest.mark.parametrize(("kind", "ranks"), LAYOUTS)
def test_the_parts_make_up_one_device_s_gradient(runs: ProbeRuns, alone: Trace, kind: str, ranks: int) -> None:
    ran = runs.start("shards", "--kind", kind, ranks=ranks, level="full", numerics="exact")
    assert exit_codes(ran) == [0] * ranks, ran.logs
    assert ran.trace.errors() == []
    assert set(ran.trace.not_seen()) <= {"collective_completion"}, "gloo tells no completion of a reduce-scatter"
    assert sharded(ran.trace)
    assert torn(ran.trace) == ""
    for rank in range(ranks):
        found = ran.trace.gradients(rank)
        assert set(found) == set(alone.gradients())
        for name, expected in alone.gradients().items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-14, err_msg=f"{name} as rank {rank} sees it")
    for column in ("grad_norm", "clip_norm"):
        wanted = alone.steps.set_index("step")[column]
        for _, own in ran.trace.steps.groupby("rank"):
            np.testing.assert_allclose(own.set_index("step")[column], wanted, rtol=1e-9, err_msg=column)
    norms = ran.trace.gradient_norms.pivot(index=["step", "name"], columns="rank", values="norm")
    reference = alone.gradient_norms.set_index(["step", "name"])["norm"].sort_index()
    for rank in range(ranks):
        np.testing.assert_allclose(norms[rank].sort_index(), reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "ranks"), LAYOUTS)
def test_a_sharded_job_is_left_alone(runs: ProbeRuns, kind: str, ranks: int) -> None:
    plain = runs.start("shards", "--kind", kind, ranks=ranks, probe=False)
    by_level = {level: runs.start("shards", "--kind", kind, ranks=ranks, level=level) for level in ("timing", "full")}
    for ran in by_level.values():
        assert exit_codes(ran) == [0] * ranks
        assert [undated(log) for log in ran.logs] == [undated(log) for log in plain.logs], "training differs under the probe"
    issued = [ran.trace.collectives.sort_values(["rank", "step", "index"])[["rank", "step", "op", "bytes"]] for ran in by_level.values()]
    assert issued[0].reset_index(drop=True).equals(issued[1].reset_index(drop=True)), "digests and norms must cost no collective"


@pytest.mark.parametrize(
    ("kind", "ranks", "expected"), [("fsdp", 2, ()), ("hsdp", 4, ()), ("tensor", 2, ((0, 1),)), ("both", 4, ((0, 1), (2, 3)))]
)
def test_ranks_that_hold_parts_of_the_same_layers_are_told_by_their_mesh(
    runs: ProbeRuns, kind: str, ranks: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    """A dimension that FSDP2 was given is one of data, whatever it is called; what the others share of the samples counts once."""
    trace = runs.start("shards", "--kind", kind, ranks=ranks).trace
    assert holding_parts(trace) == sharing(trace) == expected
    assert strayed(trace) == ""
    assert once(trace).groupby("step").size().tolist() == [8, 8, 8]


def test_the_step_that_fills_an_optimizer_s_state_is_no_step_of_the_training(runs: ProbeRuns) -> None:
    """torch.distributed.checkpoint makes one, at rate 0 and with gradients of 0, when it is asked for a state that is not there yet."""
    ran = runs.start("shards", "--kind", "state_asked", level="full")
    assert exit_codes(ran) == [0, 0], ran.logs
    assert ran.trace.errors() == []
    for rank, own in ran.trace.steps.groupby("rank"):
        assert own["step"].tolist() == [1, 2, 3]
        assert own["lr"].tolist() == [[0.01]] * 3
        assert own["n_samples"].tolist() == [4] * 3
        printed = [float.fromhex(line.split()[1]) for line in ran.logs[int(str(rank))].splitlines() if line.startswith("loss")]
        assert own["loss"].tolist() == printed


def test_whole_parameters_have_one_digest_however_ranks_share_them(runs: ProbeRuns) -> None:
    laid_out = [runs.start("shards", "--kind", kind, ranks=ranks).trace for kind, ranks in (("fsdp", 1), *LAYOUTS[:5])]
    assert len({trace.start(rank)["whole_digest"] for trace in laid_out for rank in trace.ranks}) == 1
    for trace in laid_out:
        held = trace.steps.groupby("step")["whole_digest"].nunique()
        assert held.tolist() == [1, 1, 1], "all ranks know the same whole"
        assert trace.steps["whole_digest"].nunique() == 3


@pytest.mark.parametrize(("kind", "ranks"), [("fsdp", 2), ("tensor", 2), ("both", 4)])
def test_planted_faults_leave_the_collectives_matched(runs: ProbeRuns, alone: Trace, kind: str, ranks: int) -> None:
    """A rank that clips otherwise, or loses a gradient, still enters every collective that the others wait in."""
    whole = runs.start("shards", "--kind", "whole", ranks=1).trace
    clipped = runs.start("shards", "--kind", kind, ranks=ranks, faults=[Fault("clip_by_part", rank=1)])
    assert exit_codes(clipped) == [0] * ranks, clipped.logs
    rejected(clipping_is_global(whole, [clipped.trace]), "rank 1 clips by a norm of")
    dropped = runs.start("shards", "--kind", kind, ranks=ranks, faults=[Fault("drop_gradient", rank=1)])
    assert exit_codes(dropped) == [0] * ranks, dropped.logs
    rejected(every_parameter_is_trained([dropped.trace]), "rank 1 has no gradient for 2.bias in step 1 while rank 0 has one")


def test_where_all_ranks_hold_parts_of_the_layers_a_scaled_gradient_is_that_of_the_part(runs: ProbeRuns, alone: Trace) -> None:
    options = {"ranks": 2, "level": "full", "numerics": "exact"}
    scaled = runs.start("shards", "--kind", "tensor", faults=[Fault("scale_gradient", rank=1, factor=2.0)], **options).trace  # type: ignore[arg-type]
    for name, expected in alone.gradients().items():
        found = scaled.gradients(0)[name]
        ratios = set((found / expected).round(6).ravel().tolist())
        assert ratios == ({1.0} if name == "2.bias" else {1.0, 2.0}), name


def test_ranks_that_compute_one_gradient_together_have_a_part_in_its_fault_each(runs: ProbeRuns, alone: Trace) -> None:
    """On a mesh of data by tensor the gradient of rank 1's samples is rank 0's as well; muted, half of the batch is missing from every tensor alike."""
    options = {"ranks": 4, "level": "full", "numerics": "exact"}
    by_rank = {
        rank: runs.start("shards", "--kind", "both", faults=[Fault("scale_gradient", rank=rank, factor=0.0)], **options).trace  # type: ignore[arg-type]
        for rank in (1, 3)
    }
    for name, expected in alone.gradients().items():
        halves = [trace.gradients(0)[name] for trace in by_rank.values()]
        np.testing.assert_allclose(halves[0] + halves[1], expected, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(by_rank[1].gradients(0)[name], by_rank[1].gradients(1)[name], err_msg=name)


@pytest.mark.parametrize(("kind", "ranks", "expected"), [("fsdp", 2, {}), ("hsdp", 4, {(0, 2), (1, 3)}), ("tensor", 2, {(0, 1)})])
def test_what_ranks_hold_alike_is_compared(runs: ProbeRuns, kind: str, ranks: int, expected: set[tuple[int, ...]]) -> None:
    """Along the replicated dimensions of the mesh digests are equal on the ranks that hold the same; shards differ and are not compared."""
    trace = runs.start("shards", "--kind", kind, ranks=ranks).trace
    holdings = shared(trace)
    assert {tuple(sorted(holding.ranks)) for holding in holdings} == set(expected)
    for holding in holdings:
        table = digests(trace, holding)
        assert sorted(table) == [0, 1, 2, 3]
        assert all(len(set(row.values())) == 1 and len(row) == len(holding.ranks) for row in table.values())


def test_warm_and_cold_ranks_leave_equal_traces(runs: ProbeRuns) -> None:
    warm, cold = (runs.start("shards", "--kind", "fsdp", level="full", launcher=launcher).trace for launcher in ("warm", "torchrun"))
    columns = ["rank", "step", "loss", "grad_norm", "clip_norm", "param_digest", "param_digests", "grad_digest", "optimizer_digest", "rng"]
    assert cold.steps[columns].equals(warm.steps[columns])
    for name, value in warm.gradients(1).items():
        np.testing.assert_array_equal(cold.gradients(1)[name], value)
