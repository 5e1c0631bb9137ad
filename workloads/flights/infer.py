"""From raw events to probabilities, in a process of its own, without the training code.

`infer.py --events E --registry R --out O` scores with the artifact in service and writes O/predictions.csv: entity_id, decision_time,
probability of arriving late, for every flight that can be decided; and O/served.json: which artifact, how many flights, how fast. `--model M`
scores with a training's model.pt instead. `--features-only` writes O/hand.json: what the model would be given, unscaled and scaled.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from workloads.flights.distribution import into_range, out_of_distribution_line
from workloads.flights.features import Samples, build_samples
from workloads.flights.inputs import CATEGORIES, FEATURES
from workloads.flights.registry import RegistryError, served
from workloads.flights.schema import MalformedInput, iso, read_events


def main() -> int:
    """Returns the exit code: 2 with one sentence where the events or the model cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="model.pt of a training")
    parser.add_argument("--registry", type=Path, help="folder of published artifacts; the one in service is used")
    parser.add_argument("--entity", default=None, help="only this flight")
    parser.add_argument("--features-only", action="store_true")
    options = parser.parse_args()
    if not options.features_only and (options.model is None) == (options.registry is None):
        parser.error("--registry or --model is needed, or --features-only")
    try:
        samples = _samples(options.events, options.entity)
        options.out.mkdir(parents=True, exist_ok=True)
        if options.features_only:
            described = {str(name): describe(samples, row) for row, name in enumerate(samples.entity_id)}
            _replace(options.out / "hand.json", json.dumps(described, indent=1) + "\n")
        elif options.registry is not None:
            serve(options.registry, samples, options.out)
        else:
            from workloads.flights.predict import predict  # torch takes seconds to import and features alone do not need it

            write_predictions(options.out / "predictions.csv", samples, predict(options.model, samples))
    except (MalformedInput, RegistryError) as error:
        print(f"infer.py: {error}", file=sys.stderr)
        return 2
    return 0


def serve(registry: Path, samples: Samples, out: Path) -> None:
    """Score with the artifact in service; say which it was and how fast it went. Raises RegistryError."""
    from workloads.flights import serving  # as above: torch

    began = time.perf_counter()
    artifact = serving.load(served(registry))
    loaded = time.perf_counter()
    probability = serving.probabilities(artifact, samples)
    scored = time.perf_counter()
    write_predictions(out / "predictions.csv", samples, probability)
    report = {
        "artifact": artifact.name, "identity": artifact.manifest["identity"], "flights": len(samples), "load_s": loaded - began,
        "score_s": scored - loaded, "latencies_ms": serving.latencies_ms(artifact, samples),
        "newest_decision": iso(int(samples.decided.max())) if len(samples) else None,
    }  # fmt: skip
    _replace(out / "served.json", json.dumps(report, indent=1, sort_keys=True) + "\n")


def _samples(path: Path, entity: str | None) -> Samples:
    events, unusual = into_range(read_events(path))
    print(out_of_distribution_line(unusual))
    samples = build_samples(events)
    if entity is None:
        return samples
    chosen = samples.take(samples.entity_id == entity)
    if not len(chosen):
        raise MalformedInput(
            f"{path} has no flight with entity_id {entity} whose schedule was known 2 h before its departure; correct --entity"
        )
    return chosen


def describe(samples: Samples, row: int) -> dict[str, Any]:
    """One flight as the model sees it: features before scaling (absent: not known), after scaling, category codes, label and times."""
    raw = {feature.name: float(samples.raw[feature.name][row]) for feature in FEATURES}
    label = float(samples.label[row])
    return {
        "decision_time": iso(samples.decided[row]),
        "label": None if np.isnan(label) else int(label),
        "features": {name: value for name, value in raw.items() if not np.isnan(value)},
        "scaled": {feature.name: float(samples.numbers[row, column]) for column, feature in enumerate(FEATURES)},
        "categories": {name: int(samples.categories[row, column]) for column, name in enumerate(CATEGORIES)},
    }


def write_predictions(path: Path, samples: Samples, probability: np.ndarray) -> None:
    """A CSV with one row per flight; probabilities are written so that they read back as the same float32."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("entity_id", "decision_time", "probability"))
    for row in range(len(samples)):
        writer.writerow((samples.entity_id[row], iso(samples.decided[row]), f"{probability[row]:.9g}"))
    _replace(path, text.getvalue())


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    unfinished.write_text(text)
    os.replace(unfinished, path)


if __name__ == "__main__":
    sys.exit(main())
