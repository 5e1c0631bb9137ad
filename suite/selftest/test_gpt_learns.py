"""The gpt job learns what can be learnt and no more: its held-out loss ends above the entropy of its tokens and within a tenth of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

GPT = Path(__file__).parents[2] / "workloads" / "gpt"
STEPS = 300


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(GPT / program), *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loss_ends_between_the_entropy_and_a_tenth_above_it(tmp_path: Path) -> None:
    said = run("train.py", "--out", str(tmp_path), "--steps", str(STEPS))
    run("evaluate.py", "--out", str(tmp_path), "--sequences", "1024")
    found = json.loads((tmp_path / "evaluation.json").read_text())

    assert f"entropy of {found['entropy_nats']:.6f} nats" in said
    assert found["excess_nats_95"][0] > 0, (
        "a loss below the source's own on the same tokens means that the model has seen what it should predict"
    )
    assert found["loss_nats"] > found["entropy_nats"]
    assert found["loss_over_entropy"] < 1.10
