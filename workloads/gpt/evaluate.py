"""Judge a finished training on tokens it never saw: `evaluate.py --out O [--sequences 2048]`, where O is the --out of train.py.

Prints one JSON object and writes it to O/evaluation.json: the model's loss, the loss of the source itself on the very same tokens (the fair
floor for a finite sample), the entropy rate (the floor for infinitely many), and a 95 % interval of the excess over the source.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.gpt.data import held_out_tokens
from workloads.gpt.model import GPT, token_losses
from workloads.gpt.source import Source, make_source
from workloads.gpt.stored import StoredError, read_model
from workloads.group import GroupFailure

AT_ONCE = 256


def main() -> int:
    """Evaluate; returns the exit code, 2 where there is no usable model."""
    parser = argparse.ArgumentParser(description="Loss of a trained model on held-out tokens, beside what is possible.")
    parser.add_argument("--out", type=Path, required=True, help="the --out of a finished train.py")
    parser.add_argument("--sequences", type=int, default=2048, help="held-out sequences, at least 2")
    options = parser.parse_args()
    if options.sequences < 2:
        parser.error(f"--sequences {options.sequences} gives no interval: give at least 2")
    try:
        model, settings = read_model(options.out)
    except (StoredError, GroupFailure) as error:
        print(f"evaluate.py: {error}", file=sys.stderr, flush=True)
        return 2
    source = make_source(settings["vocabulary"], settings["source_seed"])
    tokens = held_out_tokens(source, options.sequences, settings["sequence"], settings["source_seed"])
    text = json.dumps(judged(model, source, tokens), indent=1, sort_keys=True)
    unfinished = options.out / f"evaluation.json.tmp-{os.getpid()}"
    unfinished.write_text(text + "\n")
    os.replace(unfinished, options.out / "evaluation.json")
    print(text, flush=True)
    return 0


def judged(model: GPT, source: Source, tokens: NDArray[np.int32]) -> dict[str, float | int | list[float]]:
    """Nats per predicted token of sequences (count, sequence + 1), whole sequences being the independent units of the interval."""
    own = sequence_losses(model, tokens)
    possible = -np.log(source.transition[tokens[:, :-1], tokens[:, 1:]]).mean(axis=1)
    excess = own - possible
    half = 1.96 * float(excess.std(ddof=1)) / len(excess) ** 0.5
    mean = float(excess.mean())
    return {
        "entropy_nats": source.entropy_nats,
        "excess_nats": mean,
        "excess_nats_95": [mean - half, mean + half],
        "loss_nats": float(own.mean()),
        "loss_over_entropy": float(own.mean()) / source.entropy_nats,
        "sequences": len(tokens),
        "source_loss_nats": float(possible.mean()),
        "tokens": int(tokens[:, 1:].size),
    }


@torch.no_grad()
def sequence_losses(model: GPT, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """Mean nats per token of each sequence, (count,)."""
    parts = []
    for start in range(0, len(tokens), AT_ONCE):
        rows = torch.from_numpy(tokens[start : start + AT_ONCE].astype(np.int64))
        parts.append(token_losses(model(rows[:, :-1]), rows[:, 1:]).mean(dim=1).double())
    return torch.cat(parts).numpy()


if __name__ == "__main__":
    sys.exit(main())
