"""A trace is read whole: what was torn is dropped and noted, what was not seen says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fixtures.trace import COLLECTIVES, FILES, GRADIENT_NORMS, SAMPLES, STEPS, NotSeen, TraceError, load_trace
from suite.selftest.synthetic import ended_well, make_trace, sample_of, write_trace

FRAMES = ("steps", "samples", "collectives", "files", "gradient_norms")
GRADIENT = {"layer.weight": np.arange(6.0).reshape(3, 2), "layer.bias": np.full(3, 0.5)}


def test_files_and_memory_give_the_same_frames(tmp_path: Path) -> None:
    arguments = {"steps": 3, "ranks": 2, "extra": [{"kind": "file", "rank": 0, "n": 1, "op": "rename", "path": "a", "to": "b", "step": 2}]}
    read = load_trace(write_trace(tmp_path / "run", **arguments))  # type: ignore[arg-type]
    made = make_trace(**arguments)  # type: ignore[arg-type]
    for name in FRAMES:
        left, right = getattr(read, name), getattr(made, name)
        pd.testing.assert_frame_equal(left.sort_index(axis=1), right.sort_index(axis=1))
    assert read.ranks == (0, 1)
    assert not read.crashed
    assert read.now(1)["phase"] == "exit"


def test_columns_are_there_even_when_nothing_was_recorded() -> None:
    empty = make_trace(steps=0)
    wanted = dict(zip(FRAMES, (STEPS, SAMPLES, COLLECTIVES, FILES, GRADIENT_NORMS), strict=True))
    for name, columns in wanted.items():
        assert tuple(getattr(empty, name).columns) == columns


def test_samples_and_norms_are_long_tables() -> None:
    trace = make_trace(steps=2, ranks=2)
    second = trace.samples.query("step == 2 and rank == 1")
    assert second["sample"].tolist() == [sample_of(index) for index in (12, 13, 14, 15)]
    norms = trace.gradient_norms.query("rank == 0 and step == 1")
    assert dict(zip(norms["name"], norms["norm"], strict=True)) == {"layer.weight": 4.0, "layer.bias": 3.0}
    assert trace.steps["loss"].tolist() == [1.0, 0.5, 1.0, 0.5]


def test_a_torn_last_line_is_dropped_and_noted(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", steps=3)
    path = folder / "rank0.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "step", "step": 4, "los')
    trace = load_trace(folder)
    assert trace.steps["step"].tolist() == [1, 2, 3]
    assert len(trace.notes) == 1
    assert "rank0.jsonl: the last line was torn" in trace.notes[0]


def test_a_run_that_did_not_end_does_not_count(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run")
    (folder / "ended.json").unlink()
    with pytest.raises(TraceError, match="does not count"):
        load_trace(folder)


def test_restarts_are_kept_apart(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", steps=2)
    (folder / "rank0.1.jsonl").write_bytes((folder / "rank0.jsonl").read_bytes())
    assert load_trace(folder).steps.groupby("restart")["step"].apply(list).to_dict() == {0: [1, 2], 1: [1, 2]}


def test_the_first_gradient_comes_back_in_shape(tmp_path: Path) -> None:
    for trace in (load_trace(write_trace(tmp_path / "run", gradients={0: GRADIENT})), make_trace(gradients={0: GRADIENT})):
        gradients = trace.gradients()
        assert set(gradients) == set(GRADIENT)
        for name, expected in GRADIENT.items():
            np.testing.assert_array_equal(gradients[name], expected)


def test_what_was_not_seen_says_why(tmp_path: Path) -> None:
    trace = make_trace(extra=[{"kind": "not_seen", "rank": 0, "signal": "gradient", "reason": "model of 60e6 elements"}])
    with pytest.raises(NotSeen, match="60e6"):
        trace.gradients()
    with pytest.raises(NotSeen, match="rank 7"):
        trace.start(7)
    short = write_trace(tmp_path / "run", gradients={0: {"layer.weight": np.zeros(6)}})
    with pytest.raises(NotSeen, match="6 numbers, but the model has 9"):
        load_trace(short).gradients()


def test_a_rank_that_failed_is_seen_at_any_rank() -> None:
    assert make_trace(ranks=2, ended=ended_well(2, rank1=7)).crashed
    assert not make_trace(ranks=2).crashed


def test_faults_and_probe_errors_are_listed() -> None:
    fired = {"kind": "fault", "rank": 1, "fault": {"kind": "sleep", "ms": 5}, "step": 2, "detail": ""}
    broken = {"kind": "probe_error", "rank": 1, "where": "digest", "error": "TypeError: no"}
    trace = make_trace(ranks=2, extra=[fired, broken])
    assert trace.fired("sleep")
    assert not trace.fired("kill")
    assert trace.errors() == ["rank 1: digest: TypeError: no"]


def test_logs_are_read_from_their_end(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run")
    (folder / "rank0.log").write_bytes(b"\xff" + b"x" * 100_000 + b"last")
    log = load_trace(folder).log()
    assert log.endswith("last")
    assert len(log) == 64 * 1024
    assert load_trace(folder).log(5) == ""


def test_overrides_reach_every_step_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    slow = make_trace(ranks=2, steps=2, backward_ms=lambda rank, step: 80.0 if rank else 20.0, lr=[0.2])
    assert slow.steps["backward_ms"].tolist() == [20.0, 20.0, 80.0, 80.0]
    assert slow.steps["lr"].tolist() == [[0.2]] * 4
    with pytest.raises(TypeError, match="'backwards_ms'"):
        make_trace(backwards_ms=3.0)
    record = json.loads((write_trace(tmp_path / "run", steps=1) / "rank0.jsonl").read_text().splitlines()[4])
    assert record["kind"] == "step"
