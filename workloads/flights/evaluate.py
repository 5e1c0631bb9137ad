"""Compare a stored model with the declared baseline on held-out later months.

`evaluate.py --events E --model O/model.pt --out O` writes O/evaluation.json and prints the comparison. The baseline (late rates by route and
hour) sees the same training months as the model; both are scored on flights decided after them. A full training (about 3 epochs, some
3 minutes of one core) and its evaluation:

    python prepare.py --rows 0 --events year.parquet
    python train.py --events year.parquet --out full --steps 1500 --global-batch 512 --seed 0
    python evaluate.py --events year.parquet --model full/model.pt --out full
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from workloads.flights import baseline, scores
from workloads.flights.distribution import into_range, out_of_distribution_line
from workloads.flights.features import DAY, MINUTE, Samples, build_samples, for_training, held_out, local_minutes
from workloads.flights.inputs import CATEGORIES
from workloads.flights.predict import predict
from workloads.flights.schema import MalformedInput, microseconds, read_events
from workloads.flights.task import TRAIN_UNTIL

FEWEST_IN_SLICE = 100


def main() -> int:
    """Returns the exit code: 2 with one sentence where the events or the model cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        report = evaluate(options.events, options.model)
    except MalformedInput as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    unfinished = options.out / f"evaluation.json.tmp-{os.getpid()}"
    unfinished.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    os.replace(unfinished, options.out / "evaluation.json")
    for line in lines(report):
        print(line)
    return 0


def evaluate(events_path: Path, model_path: Path) -> dict[str, Any]:
    """The whole report: model, baseline, their difference, and slices. Raises MalformedInput."""
    cutoff = microseconds(TRAIN_UNTIL)
    events, unusual = into_range(read_events(events_path))
    print(out_of_distribution_line(unusual))
    samples = build_samples(events)
    training, held = for_training(samples, cutoff), held_out(samples, cutoff)
    if not len(training) or not len(held):
        raise MalformedInput(
            f"{events_path} has {len(training)} flights before and {len(held)} after {TRAIN_UNTIL}, but needs both; prepare more rows"
        )
    rates = baseline.fit(training)
    ours, theirs = predict(model_path, held), baseline.probability(rates, held)
    return {
        "split": TRAIN_UNTIL,
        "n_training": len(training),
        "model": scores.summary(ours, held.label),
        "baseline": scores.summary(theirs, held.label) | {"name": "late rate by route and hour in the training months"},
        "difference": {
            "log_loss": scores.difference(scores.log_losses(ours, held.label), scores.log_losses(theirs, held.label), days(held)),
            "brier": scores.difference(np.square(ours - held.label), np.square(theirs - held.label), days(held)),
        },
        "slices": slices(held, ours, theirs),
    }


def days(samples: Samples) -> np.ndarray:
    """int64 [n]: the local day of the scheduled departure."""
    return local_minutes(samples.departs) // (DAY // MINUTE)


def slices(held: Samples, ours: np.ndarray, theirs: np.ndarray) -> list[dict[str, Any]]:
    """The difference in log-loss by month, origin, carrier and hour, where a slice has at least 100 flights."""
    month = local_minutes(held.departs).astype("datetime64[m]").astype("datetime64[M]").astype(str)
    by = {"month": month} | {name: _words(held, name) for name in ("origin", "carrier", "hour")}
    found = []
    for kind, values in by.items():
        for value in sorted(set(values.tolist())):
            rows = values == value
            if rows.sum() >= FEWEST_IN_SLICE:
                found.append({"by": kind, "value": value} | _slice(held.take(rows), ours[rows], theirs[rows]))
    return found


def _words(samples: Samples, name: str) -> np.ndarray:
    vocabulary = np.array(["unknown", *CATEGORIES[name]])
    words: np.ndarray = vocabulary[samples.categories[:, list(CATEGORIES).index(name)]]
    return words


def _slice(held: Samples, ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    losses, baseline_losses = scores.log_losses(ours, held.label), scores.log_losses(theirs, held.label)
    change = scores.difference(losses, baseline_losses, days(held))
    return {
        "n": len(held),
        "log_loss": float(losses.mean()),
        "baseline_log_loss": float(baseline_losses.mean()),
        "low": change["low"],
        "high": change["high"],
    }


def lines(report: dict[str, Any]) -> list[str]:
    """The comparison in a few lines."""
    told = []
    for name in ("model", "baseline"):
        one = report[name]
        told.append(
            f"{name:8} n {one['n']}  log-loss {one['log_loss']:.4f}  AUC {one['auc']:.4f}  Brier {one['brier']:.4f}  calibration error {one['calibration_error']:.4f}"
        )
    change = report["difference"]["log_loss"]
    verdict = "better than" if change["high"] < 0 else "worse than" if change["low"] > 0 else "not told apart from"
    told.append(
        f"log-loss model - baseline {change['mean']:+.4f} (95 % interval {change['low']:+.4f} to {change['high']:+.4f}, {change['days']} days resampled): "
        f"the model is {verdict} the baseline"
    )
    worse = [f"{one['by']} {one['value']}" for one in report["slices"] if one["low"] > 0]
    told.append(f"slices where the model is worse, with certainty: {', '.join(worse) or 'none'} (of {len(report['slices'])})")
    return told


if __name__ == "__main__":
    sys.exit(main())
