"""The judges of the load test on made-up runs: each path holds where the job is sound, and is broken for its reason where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.cold import cached_bytes, drop_from_cache
from fixtures.trace import Record, Trace, load_trace
from suite.release.input_load import carries_enough, knee, saturated, waiting
from suite.release.outages import Outage, survives
from suite.release.paths import LoadedPath, all_hold
from suite.release.restore_load import not_cold, restart_s, restores_in_time
from suite.selftest.synthetic import SECOND_NS, ended_well, make_trace, write_trace

CONTROL = make_trace(steps=10, ranks=2)


def resumed(step: int | str = 8, took_s: float = 0.5, **options: Any) -> Trace:
    """A run of two ranks that came back with the control's parameters of `step` (or with a digest), and trained after `took_s`."""

    def change(record: Record) -> Record | None:
        if record["kind"] == "start":
            digest = step if isinstance(step, str) else f"{step:016x}"
            return {**record, "param_digest": digest, "t_ns": int(took_s * SECOND_NS)}
        return record

    return make_trace(steps=options.pop("steps", 2), ranks=2, change=change, **options)


def restored(*runs: Trace, bound_s: float = 1.0) -> LoadedPath:
    return restores_in_time(CONTROL, runs, name="restore", least_step=8, bound_s=bound_s)


def test_a_restore_in_time_holds_with_its_interval() -> None:
    path = restored(*(resumed(took_s=took) for took in (0.4, 0.5, 0.6)))

    assert path.holds
    assert path.measured is not None
    assert (path.measured.low, path.measured.estimate, path.measured.high) == pytest.approx((0.4, 0.5, 0.6))
    assert "all 2 ranks train again after 0.50 s [0.40, 0.60]" in path.words


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([resumed(took_s=2.0), resumed(took_s=2.5)], "1 s are allowed"),
        ([resumed(4)], "came back at step 4, and a checkpoint of step 8 or later was there"),
        ([resumed(0)], "came back at step 0"),
        ([resumed("f" * 16)], "a state that the uninterrupted run never had"),
        ([resumed(ended=ended_well(2, rank1=3))], "came back at step 8 and then rank 1 exited with code 3"),
    ],
)
def test_a_restore_that_is_slow_or_wrong_is_broken(runs: list[Trace], words: str) -> None:
    path = restored(*runs)

    assert path.holds is False
    assert words in path.words


@pytest.mark.parametrize(
    ("reason", "said", "holds"),
    [
        ("ended by a fault", "torch.distributed.DistNetworkError: Connection reset by peer", True),
        ("ended by a fault", "ValueError: bad row 7", False),
        ("", "torch.distributed.DistNetworkError: Connection reset by peer", False),
    ],
    ids=["its peer was ended on purpose", "an error of its own", "its peer left by itself"],
)
def test_a_rank_whose_peer_was_ended_on_purpose_has_not_failed(reason: str, said: str, holds: bool, tmp_path: Path) -> None:
    left = {"kind": "exit", "rank": 0, "step": 2, "reason": reason, "t_ns": SECOND_NS}
    (tmp_path / "rank1.log").write_text(f"[rank1]: {said}\n")
    run = replace(resumed(ended=ended_well(2, rank1=1), extra=[left]), folder=tmp_path)

    assert restored(run, run, run).holds is holds


def test_a_slow_restore_on_a_busy_machine_decides_nothing(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", steps=2, ranks=2)
    sample = (
        '{"kind": "sample", "cpu": {"elapsed_s": 1, "run_queue": 9, "pressure_share": 0.9, "throttled_ms": 0, "cores": []}, "gpus": []}'
    )
    (folder / "devices.jsonl").write_text(f'{{"kind": "machine", "ranks": 2}}\n{sample}\n')
    path = restored(replace(resumed(took_s=2.0), folder=folder), replace(resumed(took_s=3.0), folder=folder))

    assert path.holds is None
    assert "waited for a core during 90% of the time: try again on a quiet machine" in path.words


def test_an_interval_that_straddles_the_bound_decides_nothing() -> None:
    assert restored(resumed(took_s=0.5), resumed(took_s=2.0)).holds is None


def test_a_rank_that_never_began_has_no_time_and_its_loss_is_told() -> None:
    def silent(record: Record) -> Record | None:
        return None if record["kind"] in ("start", "step") and record["rank"] == 1 else record

    gone = make_trace(steps=2, ranks=2, change=silent)

    assert restart_s(gone) is None
    assert restored(gone).holds is None
    assert restored(make_trace(steps=2, ranks=2, change=silent, ended=ended_well(2, rank1=1))).holds is False


def test_cold_is_what_the_kernel_says_it_is(tmp_path: Path) -> None:
    def dropped(**counts: int) -> str:
        return not_cold([resumed(spec={"dropped": {"files": 1, "bytes": 1000, "bytes_cached_after": 0, **counts}})])

    assert dropped() == ""
    assert "50% of the checkpoint's bytes stayed in memory" in dropped(bytes_cached_after=500)
    assert "no checkpoint file" in dropped(bytes=0)
    assert "no checkpoint file" in not_cold([resumed()])

    (tmp_path / "part.pt").write_bytes(b"x" * 300_000)
    (tmp_path / "empty").touch()
    found = drop_from_cache(tmp_path)
    assert (found["files"], found["bytes"], found["bytes_cached_before"]) == (1, 300_000, 300_000)
    assert found["bytes_cached_after"] in (0, 300_000), "a disk drops all of it, a memory file system nothing"
    (tmp_path / "part.pt").read_bytes()
    assert cached_bytes(tmp_path / "part.pt") == 300_000


def refused(kind: str = "full_store", *, step: int = 9, log: str = "", folder: Path | None = None, **options: Any) -> Trace:
    """A run in which the save after step 8 was refused on rank 0."""
    fault = {"kind": "fault", "rank": 0, "fault": {"kind": kind}, "step": step, "detail": "write"}
    run = make_trace(steps=step - 1, ranks=2, extra=[fault], **options)
    if folder is None:
        return run
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rank0.log").write_text(log)
    return replace(run, folder=folder)


def test_an_outage_is_survived_loudly_or_with_a_word(tmp_path: Path) -> None:
    loud = refused(ended=ended_well(2, rank0=2))
    said = refused(log="checkpoint not written: No space left on device\n", folder=tmp_path)

    for run, words in ((loud, "rank 0 exited with code 2"), (said, "the job said so and trained on")):
        path = survives(CONTROL, Outage("full_store", run, resumed(4)), every=4)
        assert path.holds
        assert words in path.words
        assert "came back at step 4" in path.words


@pytest.mark.parametrize(
    ("run", "back", "words"),
    [
        (refused(), resumed(4), "every rank ended with code 0 without a word of it"),
        (refused(ended={**ended_well(2), "ended_by": "stall", "message": "no rank moved for 30 s"}), resumed(4), "it hung"),
        (refused(ended=ended_well(2, rank0=2)), resumed(0), "it came back with step 0, and step 4 was saved before"),
        (refused(ended=ended_well(2, rank0=2)), resumed("f" * 16), "a state that the uninterrupted run never had"),
        (refused(ended=ended_well(2, rank0=2)), make_trace(steps=0, ranks=2, change=lambda record: None if record["kind"] == "start" else record, ended=ended_well(2, rank0=1)), "did not come back"),
    ],
    ids=["silent", "hangs", "lost", "torn", "refuses"],
)  # fmt: skip
def test_an_outage_that_is_hidden_or_costs_more_is_broken(run: Trace, back: Trace, words: str) -> None:
    path = survives(CONTROL, Outage("full_store", run, back), every=4)

    assert path.holds is False
    assert words in path.words


def test_an_outage_that_reached_no_operation_decides_nothing() -> None:
    assert survives(CONTROL, Outage("missing_store", make_trace(ranks=2), resumed(4)), every=4).holds is None


def taking(times: int, wait_ms: float, *, fired: bool = True, steps: int = 8) -> Trace:
    """A run that takes `times` batches for each it trains on; a step takes 90 ms besides the waiting."""
    fault = {"kind": "draw_batches", "times": times, "last": steps}
    records = [
        {"kind": "fault", "rank": rank, "fault": fault, "step": step, "detail": str(times)} for rank in (0, 1) for step in range(1, steps)
    ]
    return make_trace(
        steps=steps, ranks=2, spec={"global_batch": 512}, extra=records if fired else [], data_wait_ms=wait_ms, forward_ms=20.0, backward_ms=50.0,
        optimizer_ms=10.0, other_ms=10.0, step_ms=90.0 + wait_ms,
    )  # fmt: skip


def test_the_knee_is_where_waiting_reaches_its_share() -> None:
    """Waiting of 10 % of a step is 1/9 of the rest of it."""
    assert waiting(taking(1, 9.0)) == pytest.approx(0.1)
    assert knee({1: 1 / 9, 8: 8 / 9}, 0.1) == pytest.approx(1.0)
    assert knee({1: 0.0, 11: 10 / 9}, 0.1) == pytest.approx(2.0), "linear between 1 and 11"
    assert knee({1: 10 / 9}, 0.1) == pytest.approx(0.1), "linear from nothing"
    assert knee({1: 0.0, 8: 0.01}, 0.1) == 8.0, "the highest rate that was tried"


def test_an_input_path_with_room_holds_and_says_how_much() -> None:
    rates = {1: [taking(1, 1.0)] * 5, 8: [taking(8, 8.0)] * 5, 64: [taking(64, 128.0)] * 5}
    path = carries_enough(rates, 0.1)

    assert path.holds
    assert path.measured is not None
    assert path.measured.estimate == pytest.approx(8 + 56 * (10 - 8) / (128 - 8), rel=1e-6)
    assert "the training takes 5,626 samples a second, the path carries 256,000 when it is saturated" in path.words
    assert [saturated(runs) for runs in rates.values()] == [False, False, True]


def test_an_input_path_below_the_training_is_broken_and_one_at_it_undecided() -> None:
    slow = carries_enough({1: [taking(1, 100.0)] * 5}, 0.1)
    near = carries_enough({1: [taking(1, wait_ms) for wait_ms in (5.0, 8.0, 10.0, 12.0, 15.0)], 8: [taking(8, 80.0)] * 5}, 0.1)

    assert slow.holds is False
    assert "less than the training takes" in slow.words
    assert near.holds is None


def test_an_input_path_that_was_not_seen_decides_nothing() -> None:
    unseen = carries_enough({1: [taking(1, 1.0, fired=False)] * 5}, 0.1)
    short = carries_enough({1: [taking(1, 1.0, steps=2)] * 5}, 0.1)
    failed = carries_enough({1: [taking(1, 1.0)] * 5, 8: [make_trace(ranks=2, ended=ended_well(2, rank0=1))] * 5}, 0.1)

    assert unseen.holds is None
    assert "without a DataLoader" in unseen.words
    assert short.holds is None
    assert failed.holds, "rates that could not be tried take nothing from those that were"
    assert "at 1 times the training's rate, the highest that was tried" in failed.words


def test_one_broken_path_breaks_the_claim_and_one_unsure_leaves_it_open() -> None:
    sound, broken, unsure = LoadedPath("a", True, "fine"), LoadedPath("b", False, "lost"), LoadedPath("c", None, "not seen")

    assert all_hold([sound]).accepted
    assert all_hold([sound, unsure]).accepted is None
    found = all_hold([sound, broken, unsure])
    assert (found.accepted, found.value, found.explanation) == (False, 1, "b: lost")
    assert [row[-1] for row in found.details["table"]["rows"]] == ["holds", "broken", "cannot be told"]


def test_the_made_up_runs_are_as_they_would_be_read(tmp_path: Path) -> None:
    written = load_trace(write_trace(tmp_path / "run", steps=8, ranks=2, data_wait_ms=9.0, step_ms=99.0))

    assert waiting(written) == pytest.approx(0.1)
