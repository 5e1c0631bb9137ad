"""The flights job as a program: interrupted and resumed it ends in the very state of the uninterrupted run; wrong use stops it."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from workloads.flights import baseline, cache, evaluate, infer, scores, train
from workloads.flights.features import build_samples, held_out
from workloads.flights.schema import microseconds, read_events
from workloads.flights.task import TRAIN_UNTIL

Run = Callable[..., int]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real events of 400 flights: about 290 training samples, so that five steps of 64 end an epoch."""
    path = tmp_path_factory.mktemp("flights") / "events.parquet"
    cache.write_atomically(cache.select(cache.cached_year(cache.default_folder(), cache.source_folder()), 400), path)
    return path


@pytest.fixture
def run(events: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run train.py in this process; returns its exit code."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)

    def start(out: Path, *more: str, steps: int = 8) -> int:
        line = [
            "train.py",
            "--events",
            str(events),
            "--out",
            str(out),
            "--global-batch",
            "64",
            "--steps",
            str(steps),
            "--dropout",
            "0.1",
            "--device",
            "cpu",
        ]
        monkeypatch.setattr(sys, "argv", [*line, *more])
        return train.main()

    return start


def parts(checkpoint: Path) -> dict[str, str]:
    """The checksums of every part but the manifest."""
    files: dict[str, dict[str, object]] = json.loads((checkpoint / "manifest.json").read_text())["files"]
    return {name: str(entry["pieces"]) for name, entry in files.items()}


def test_a_resumed_run_ends_bit_for_bit_like_the_uninterrupted_one(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With dropout, over the end of an epoch: weights, optimizer, schedule, position and random generators."""
    assert run(tmp_path / "whole", "--checkpoint-every", "3", "--keep", "9") == 0
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "step_00000003", tmp_path / "again" / "checkpoints" / "step_00000003")
    torch.rand(5)
    capsys.readouterr()
    assert run(tmp_path / "again", "--checkpoint-every", "3", "--resume") == 0
    assert "resumed from step 3\n" in capsys.readouterr().out
    wanted, found = (parts(tmp_path / name / "checkpoints" / "step_00000006") for name in ("whole", "again"))
    assert found == wanted
    assert (tmp_path / "again" / "model.pt").read_bytes() == (tmp_path / "whole" / "model.pt").read_bytes()


def test_resume_with_nothing_on_disk_starts_and_says_so(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--resume", steps=1) == 0
    assert "no complete checkpoint: starting from step 0" in capsys.readouterr().out


def test_a_new_run_does_not_mix_with_the_checkpoints_of_another(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--checkpoint-every", "1", steps=1) == 0
    assert run(tmp_path, "--checkpoint-every", "1", steps=1) == 2
    assert "already holds checkpoints: add --resume" in capsys.readouterr().err
    assert run(tmp_path, "--resume", "--seed", "5", steps=2) == 2
    assert "saved with another order (number of samples, global batch or seed)" in capsys.readouterr().err


def test_malformed_events_stop_before_the_first_step(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--events", str(tmp_path / "gone.parquet")) == 2
    seen = capsys.readouterr()
    assert "gone.parquet is missing" in seen.err
    assert "step 1" not in seen.out
    assert not (tmp_path / "metrics.json").exists()


def test_evaluation_and_inference_agree_with_the_baseline_and_the_model(
    run: Run, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, steps=8) == 0
    shared = ["--events", str(events), "--model", str(tmp_path / "model.pt"), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *shared])
    assert evaluate.main() == 0
    monkeypatch.setattr(sys, "argv", ["infer.py", *shared])
    assert infer.main() == 0
    report = json.loads((tmp_path / "evaluation.json").read_text())
    rows = [line.split(",") for line in (tmp_path / "predictions.csv").read_text().splitlines()[1:]]
    assert len(rows) == len(build_samples(read_events(events)))
    predicted = {row[0]: float(row[2]) for row in rows}
    assert report["model"]["n"] == report["baseline"]["n"] > 50
    assert report["difference"]["log_loss"]["mean"] == pytest.approx(report["model"]["log_loss"] - report["baseline"]["log_loss"])
    samples = held_out(build_samples(read_events(events)), microseconds(TRAIN_UNTIL))
    loss = scores.log_losses(np.array([predicted[name] for name in samples.entity_id]), samples.label).mean()
    assert report["model"]["log_loss"] == pytest.approx(float(loss), abs=1e-6)


def test_scores_of_four_flights_by_hand() -> None:
    """Two late, two not: 3 of the 4 pairs are in order, one is a tie."""
    probability, label = np.array([0.8, 0.4, 0.4, 0.1]), np.array([1.0, 1.0, 0.0, 0.0])
    found = scores.summary(probability, label)
    assert found["auc"] == pytest.approx(3.5 / 4)
    assert found["brier"] == pytest.approx((0.04 + 0.36 + 0.16 + 0.01) / 4)
    assert found["log_loss"] == pytest.approx(-(np.log(0.8) + np.log(0.4) + np.log(0.6) + np.log(0.9)) / 4)


def test_the_baseline_is_the_smoothed_rate_of_route_and_hour(events: Path) -> None:
    samples = build_samples(read_events(events))
    known = samples.take(~np.isnan(samples.label))
    rates = baseline.fit(known)
    one = known.take(np.array([0]))
    same = np.all(known.categories[:, 1:4] == one.categories[:, 1:4], axis=1)
    expected = (known.label[same].sum() + 20 * known.label.mean()) / (same.sum() + 20)
    assert baseline.probability(rates, one)[0] == pytest.approx(expected)
