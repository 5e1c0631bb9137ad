"""Every fault fires in the rank and step that it names, leaves its record before it does harm, and does the harm that it promises."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator

import pytest

from fixtures.faults import Fault
from fixtures.world import open_launcher
from suite.selftest.probe_runs import ProbeRuns, Ran, copied, exit_codes

SLEEP_MS = 400  # longer than a busy machine stretches a step


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def clean(runs: ProbeRuns) -> Ran:
    return runs.start("ddp", watch=str(runs.folder))


def column(ran: Ran, rank: int, name: str) -> list[object]:
    return list(ran.trace.steps.query(f"rank == {rank}")[name])


def samples(ran: Ran, rank: int, step: int) -> list[str]:
    return list(ran.trace.samples.query(f"rank == {rank} and step == {step}")["sample"])


def fired_once(ran: Ran, kind: str, rank: int, step: int) -> None:
    fired = [(record["fault"]["kind"], record["rank"], record["step"]) for record in ran.trace.faults()]
    assert fired == [(kind, rank, step)], f"expected {kind} once, on rank {rank} in step {step}; the trace in {ran.folder} has {fired}"
    assert ran.trace.errors() == []


@pytest.mark.parametrize("where", ["data", "forward", "backward", "optimizer", "between"])
def test_a_sleep_is_time_of_its_phase(runs: ProbeRuns, where: str) -> None:
    ran = runs.start("ddp", faults=[Fault("sleep", rank=1, ms=SLEEP_MS, where=where, from_step=2, every=2)])
    named = {"data": "data_wait_ms", "between": "other_ms"}.get(where, f"{where}_ms")
    slept = [value > SLEEP_MS * 0.99 for value in column(ran, 1, named)]  # type: ignore[operator]
    assert slept == [False, True, False, True], f"{named} on rank 1: {column(ran, 1, named)} in {ran.folder}"
    assert [record["step"] for record in ran.trace.faults()] == [2, 4]
    assert max(column(ran, 1, "probe_ms")) < SLEEP_MS, "the sleep was counted as the probe's own time"  # type: ignore[type-var, operator]


def test_a_sleep_in_backward_makes_the_rank_late_at_the_collective(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", "--dropout", "0", faults=[Fault("sleep", rank=1, ms=SLEEP_MS, where="backward", from_step=3)])
    reduced = ran.trace.collectives.query("op == 'allreduce' and phase == 'backward' and step == 3").set_index("rank")["arrive_ns"]
    assert (reduced[1] - reduced[0]) / 1e6 > SLEEP_MS * 0.8, "rank 1 did not come late to the reduction of its last bucket"
    waited = ran.trace.steps.query("step == 3").set_index("rank")["exposed_ms"]
    assert waited[0] > SLEEP_MS * 0.8, f"rank 0 waited {waited[0]} ms for rank 1, at least {SLEEP_MS * 0.8} was expected"


def test_killed_in_a_step(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", faults=[Fault("kill", rank=1, step=3)])
    assert ran.ended.ranks[1].signal == signal.SIGKILL
    assert not ran.ended.ranks[1].killed_by_us
    assert column(ran, 1, "step") == [1, 2]
    fired_once(ran, "kill", 1, 3)
    assert ran.trace.now(1)["step"] == 3


def test_killed_before_a_file_operation(runs: ProbeRuns, clean: Ran) -> None:
    operations = clean.trace.files.query("rank == 0")
    replacing = int(operations.query("op == 'replace'")["n"].iloc[0])
    ran = runs.start("ddp", faults=[Fault("kill", rank=0, operation=replacing)], watch=str(runs.folder))
    assert ran.ended.ranks[0].signal == signal.SIGKILL
    assert ran.trace.files["n"].max() == replacing, "the operation is recorded before the kill"
    assert sorted(path.name for path in (ran.out / "checkpoints").iterdir()) == ["step2.pt.tmp"], "the operation was carried out"


def test_hung_before_a_collective(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", faults=[Fault("hang", rank=1, step=3)], stall_s=1.5)
    fired_once(ran, "hang", 1, 3)
    assert ran.ended.ended_by == "stall"
    assert ran.trace.now(1)["phase"] == "hang"
    assert ran.trace.now(0)["phase"] in ("forward", "backward", "collective")
    assert "before_collective" in ran.trace.stack(1), f"the stack of the hung rank is missing: {ran.trace.stack(1)[:500]!r}"


@pytest.mark.parametrize(("job", "arguments"), [("ddp", ()), ("loops", ("--kind", "by_hand")), ("loops", ("--kind", "fsdp"))])
def test_a_gradient_scaled_before_its_reduction(runs: ProbeRuns, job: str, arguments: tuple[str, ...]) -> None:
    plain = runs.start(job, *arguments)
    ran = runs.start(job, *arguments, faults=[Fault("scale_gradient", rank=1, factor=2.0, from_step=2)])
    assert {record["rank"] for record in ran.trace.faults()} == {1}
    norms, before = column(ran, 0, "grad_norm"), column(plain, 0, "grad_norm")
    assert norms[0] == before[0], "the first step was to be left alone"
    assert norms[1] != before[1], "the second step's reduced gradient is as it was"


def test_ranks_that_drift_apart(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", level="full", faults=[Fault("desync_gradient", rank=1, factor=1.5, from_step=3)])
    agree = [left == right for left, right in zip(column(ran, 0, "grad_digest"), column(ran, 1, "grad_digest"), strict=True)]
    assert agree == [True, True, False, False]
    ran = runs.start("ddp", faults=[Fault("desync_parameter", rank=1, step=2, delta=1e-3)])
    agree = [left == right for left, right in zip(column(ran, 0, "param_digest"), column(ran, 1, "param_digest"), strict=True)]
    assert agree == [True, False, False, False]
    fired_once(ran, "desync_parameter", 1, 2)


def test_the_samples_of_a_step_are_changed(runs: ProbeRuns, clean: Ran) -> None:
    expected = samples(clean, 1, 2)
    for kind, changed in {
        "skip_sample": expected[:-1],
        "duplicate_sample": [expected[0], expected[0], *expected[2:]],
        "shuffle_samples": expected[::-1],
    }.items():
        ran = runs.start("ddp", faults=[Fault(kind, rank=1, step=2)])
        fired_once(ran, kind, 1, 2)
        assert samples(ran, 1, 2) == changed
        assert samples(ran, 1, 3) == samples(clean, 1, 3)
        assert samples(ran, 0, 2) == samples(clean, 0, 2)


def test_a_batch_made_by_hand_is_changed_at_the_module(runs: ProbeRuns) -> None:
    ran = runs.start("loops", "--kind", "loss_inside", faults=[Fault("skip_sample", rank=1, step=2)])
    fired_once(ran, "skip_sample", 1, 2)
    assert len(samples(ran, 1, 2)) == len(samples(ran, 1, 1)) - 1


def test_a_batch_is_damaged(runs: ProbeRuns, clean: Ran) -> None:
    ran = runs.start("ddp", faults=[Fault("damage_batch", rank=0, step=2, how="nan")])
    fired_once(ran, "damage_batch", 0, 2)
    assert math.isnan(column(ran, 0, "input_high")[1])  # type: ignore[arg-type]
    ran = runs.start("ddp", faults=[Fault("damage_batch", rank=0, step=2, how="scale", factor=100.0)])
    grown = column(ran, 0, "input_high")[1] / column(clean, 0, "input_high")[1]  # type: ignore[operator]
    assert grown == pytest.approx(100.0, rel=1e-6)


def test_an_exception_is_hidden(runs: ProbeRuns) -> None:
    honest = runs.start("ddp", "--crash-at", "2", ranks=1)
    assert exit_codes(honest) == [1]
    ran = runs.start("ddp", "--crash-at", "2", ranks=1, faults=[Fault("exit_zero")])
    assert exit_codes(ran) == [0]
    assert ran.trace.fired("exit_zero")
    assert "Traceback" not in "".join(ran.logs)


@pytest.mark.parametrize(("part", "field"), [("optimizer", "optimizer_digest"), ("rng", "rng"), ("weights", "param_digest")])
def test_a_part_of_the_state_is_forgotten(runs: ProbeRuns, clean: Ran, part: str, field: str) -> None:
    honest = runs.start("ddp", "--steps", "6", "--resume", out=copied(clean, f"honest_{part}"), resumed="1")
    ran = runs.start("ddp", "--steps", "6", "--resume", out=copied(clean, part), resumed="1", faults=[Fault("forget", part=part)])
    assert {record["fault"]["part"] for record in ran.trace.faults()} == {part}
    for name in ("optimizer_digest", "rng", "param_digest"):
        same = ran.trace.start(0)[name] == honest.trace.start(0)[name]
        assert same == (name != field), f"{name} of the resumed run is {'the same' if same else 'different'} with {part} forgotten"


def test_a_scheduler_is_forgotten(runs: ProbeRuns, clean: Ran) -> None:
    ran = runs.start("ddp", "--steps", "6", "--resume", out=copied(clean, "late"), resumed="1", faults=[Fault("forget", part="scheduler")])
    assert ran.trace.fired("forget")
    assert column(ran, 0, "lr") == [[0.01], [0.005]]


def test_a_first_run_forgets_nothing(runs: ProbeRuns) -> None:
    assert not runs.start("ddp", faults=[Fault("forget", part="optimizer")]).trace.fired("forget")


def test_older_checkpoints_are_deleted_first(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", faults=[Fault("rotate_first", rank=0)], watch=str(runs.folder))
    kept = sorted(path.name for path in (ran.out / "checkpoints").iterdir())
    assert kept == ["latest", "step4.pt"]
    assert [record["detail"] for record in ran.trace.faults()] == ["deleted 2 older entries: latest, step2.pt"]
