"""The faults of a save, of a restore and of the store: each does what it promises, in the rank, and says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults import Fault
from fixtures.store import failing_store
from fixtures.world import open_launcher
from suite.selftest.probe_runs import ProbeRuns, Ran, copied, exit_codes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def clean(runs: ProbeRuns, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("clean")
    return runs.start("ddp", level="full", out=out, watch=str(out / "checkpoints"))


def by_step(ran: Ran) -> list[dict[Any, Any]]:
    """Rank 0's steps, in order."""
    return ran.trace.steps.query("rank == 0").to_dict("records")


def resumed(runs: ProbeRuns, clean: Ran, name: str, *faults: Fault) -> Ran:
    return runs.start("ddp", "--steps", "6", "--resume", out=copied(clean, name), resumed="1", level="full", faults=faults)


@pytest.fixture(scope="module")
def honest(runs: ProbeRuns, clean: Ran) -> Ran:
    return resumed(runs, clean, "honest")


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        (Fault("forget", part="counters"), "optimizer_digest"),
        (Fault("forget", part="buffers"), "buffer_digest"),
        (Fault("damage_restored"), "param_digest"),
    ],
    ids=["counters", "buffers", "flip"],
)
def test_one_part_of_the_restored_state_is_lost_or_damaged(runs: ProbeRuns, clean: Ran, honest: Ran, fault: Fault, field: str) -> None:
    ran = resumed(runs, clean, field, fault)

    assert ran.trace.fired(fault.kind)
    for name in ("param_digest", "optimizer_digest", "buffer_digest", "rng"):
        same = ran.trace.start(0)[name] == honest.trace.start(0)[name]
        assert same == (name != field), f"{name} is {'the same' if same else 'different'}"


def test_the_place_in_the_data_is_lost_by_one_batch(runs: ProbeRuns, clean: Ran, honest: Ran) -> None:
    ran = resumed(runs, clean, "position", Fault("forget", part="position"))

    def rows(of: Ran, step: int) -> list[str]:
        return list(of.trace.samples.query(f"rank == 0 and step == {step}")["sample"])

    assert ran.trace.fired("forget")
    assert rows(ran, 1) == rows(honest, 2)


@pytest.mark.parametrize("part", ["scaler", "ema"])
def test_what_the_job_has_not_is_said(runs: ProbeRuns, clean: Ran, part: str) -> None:
    ran = resumed(runs, clean, part, Fault("forget", part=part))

    assert not ran.trace.fired("forget")
    assert part in ran.trace.not_seen()[f"fault forget {part}"]


def test_what_a_step_begins_from_is_recorded(clean: Ran) -> None:
    """After a save all of it, else the RNG; a job that saves rightly begins from what the step before left."""
    first, second, third = by_step(clean)[:3]

    assert first["begin"] is None
    assert set(second["begin"]) == {"rng"}
    assert third["begin"]["param_digest"] == second["param_digest"]
    assert third["begin"]["optimizer_digest"] == second["optimizer_digest"]


def test_a_save_that_disturbs_shows_in_the_next_step(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", level="full", watch=str(runs.folder), faults=[Fault("disturb_save", delta=1e-3)])
    _, second, third = by_step(ran)[:3]

    assert ran.trace.fired("disturb_save")
    assert third["begin"]["param_digest"] != second["param_digest"]


def test_a_slow_save_and_a_slow_restore_take_their_time(runs: ProbeRuns, clean: Ran) -> None:
    ran = runs.start("ddp", watch=str(runs.folder), faults=[Fault("slow_save", ms=80)])
    assert float(ran.trace.steps.query("rank == 0 and step == 3")["step_ms"].iloc[0]) > 80
    late = resumed(runs, clean, "late", Fault("slow_resume", ms=80))
    assert late.trace.fired("slow_resume")


def test_a_kill_between_two_micro_batches(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", "--accumulate", "2", faults=[Fault("kill", rank=1, step=2, micro_batch=2)])

    assert ran.ended.ranks[1].signal == signal.SIGKILL
    assert [record["detail"] for record in ran.trace.faults()] == ["at micro-batch 2 of step 2"]


def test_every_rank_is_asked_to_end(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", faults=[Fault("preempt", step=2)])

    assert {rank.signal for rank in ran.ended.ranks} <= {signal.SIGTERM, signal.SIGKILL}
    assert ran.trace.fired("preempt")


def test_a_mute_rank_prints_nothing(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", faults=[Fault("mute")])

    assert ran.logs == ("", "")
    assert exit_codes(ran) == [0, 0]


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize(("kind", "words"), [("store_full", "No space left|write failed|unexpected pos"), ("store_read_only", "Read-only")])
def test_a_store_fails_in_the_middle_of_the_run(runs: ProbeRuns, tmp_path: Path, kind: str, words: str, mounted: bool) -> None:
    """By the kernel where mounting is allowed, else by the probe: the first save is whole, the second fails."""
    store, fault = tmp_path / "checkpoints", Fault(kind, step=4)
    with failing_store(store, [fault]) if mounted else nullcontext():
        ran = runs.start("ddp", out=tmp_path, watch=str(store), faults=[fault])

    assert ran.trace.fired(kind)
    assert ran.trace.errors() == []
    assert exit_codes(ran)[0] == 1
    assert any(word in ran.logs[0] for word in words.split("|")), ran.logs[0][-500:]
    assert (store / "latest").read_text() == "2"
