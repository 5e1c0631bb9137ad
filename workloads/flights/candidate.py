"""Train a candidate for release and lay out what its release is judged by: `candidate.py --events E --out O`.

It trains on the flights from August to the training cutoff, for 60 steps of 512 (some 8 s of one core; a full training is in evaluate.py),
and leaves in O
    build/             what publish.py publishes
    faulty/            the same model with its calibration set wrong by 2 logits: what the rollback is rehearsed with
    held_out.parquet   every second day after the cutoff: label, probability, baseline, day, and the slices of each flight
    recent.parquet     the first 30 of those days as a monitor sees them, scored by each of the two builds
    reference.csv      the probabilities of the flights in E by the training's own code
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from workloads.flights import artifact, baseline, cache, data, export, optimize
from workloads.flights.distribution import into_range
from workloads.flights.features import DAY, MINUTE, Samples, build_samples, for_training, held_out, local_minutes
from workloads.flights.infer import write_predictions
from workloads.flights.inputs import CATEGORIES
from workloads.flights.model import FlightModel, Shape
from workloads.flights.schema import MalformedInput, microseconds, read_events
from workloads.flights.task import TRAIN_UNTIL
from workloads.flights.version import feature_version
from workloads.group import Place
from workloads.loop import Recipe, global_step
from workloads.sampler import GlobalBatches, Order, Position, own_generator

BEGIN = "2013-08-01T04:00:00Z"
STEPS, GLOBAL_BATCH, SEED, LEARNING_RATE = 60, 512, 0, 1e-3
HELD_OUT_EVERY_DAYS = 2
RECENT_DAYS = 30
WRONG_LOGITS = 2.0
EVENING_HOURS = (17, 18, 19, 20, 21)
LARGE_DESTINATION = 2000
"""Flights to the destination in the training months, from which it counts as large; below a quarter of it as small."""


def main() -> int:
    """Returns the exit code: 2 with one sentence where the events cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=Path, required=True, help="the flights that the reference is given for")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        build(options.events, options.out)
    except MalformedInput as error:
        print(f"candidate.py: {error}", file=sys.stderr)
        return 2
    return 0


def build(events: Path, out: Path) -> None:
    """Everything that main's help lists. Raises MalformedInput."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    samples, data_hash = _samples_since(BEGIN, out / "months.parquet")
    cutoff = microseconds(TRAIN_UNTIL)
    training, later = for_training(samples, cutoff), held_out(samples, cutoff)
    model = trained(training)
    configuration = {"steps": STEPS, "global_batch": GLOBAL_BATCH, "seed": SEED, "learning_rate": LEARNING_RATE, "begin": BEGIN}
    identity = {
        "code": artifact.code_digest(), "data": data_hash, "features": feature_version(), "configuration": json.dumps(configuration, sort_keys=True),
        "environment": f"torch {torch.__version__}", "trained_until": TRAIN_UNTIL,
    }  # fmt: skip
    graph = export.graph_of(model)
    names = [export.write_build(out / "build", graph, identity), export.write_build(out / "faulty", graph, identity, shift=WRONG_LOGITS)]
    scored = later.take(_days(later) % HELD_OUT_EVERY_DAYS == 0)
    table = _held_out(scored, _logits(model, scored), baseline.probability(baseline.fit(training), scored), training)
    pq.write_table(pa.table(table), out / "held_out.parquet", compression="zstd")
    pq.write_table(pa.table(_recent(table, names)), out / "recent.parquet", compression="zstd")
    torch.set_num_threads(1)  # as inference computes, so that the reference differs from it by nothing but the export
    served = build_samples(into_range(read_events(events))[0])
    write_predictions(out / "reference.csv", served, _sigmoid(_logits(model, served)))
    print(f"{names[0]} built from {len(training)} flights; {len(scored)} held-out flights scored")


def _samples_since(begin: str, path: Path) -> tuple[Samples, str]:
    """Samples of the year's events from `begin` on, and the digest of those events."""
    year = cache.cached_year(cache.default_folder(), cache.source_folder())
    cache.write_atomically(cache.since(year, begin), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    samples = build_samples(into_range(read_events(path))[0])
    path.unlink()
    return samples, digest


def trained(training: Samples) -> FlightModel:
    """The model after STEPS steps on one device."""
    torch.manual_seed(SEED)
    model = FlightModel(Shape())
    optimizer, scheduler = optimize.adamw(model, LEARNING_RATE, STEPS)
    loaded = data.TrainingData(training, np.ones(len(training)), "", ())
    batches = GlobalBatches(Order(len(training), GLOBAL_BATCH, SEED), Position(), STEPS)
    for batch in data.loader(loaded, batches, 0, own_generator(SEED)):
        global_step(model, list(batch), data.loss_of, optimizer, scheduler, Recipe(), ALONE.world_size)
    return model.eval()


ALONE = Place(0, 1, torch.device("cpu"))


def _logits(model: FlightModel, samples: Samples) -> np.ndarray:
    with torch.inference_mode():
        parts = [
            model(torch.from_numpy(samples.categories[rows]), torch.from_numpy(samples.numbers[rows]).float()).double().numpy()
            for rows in data.slices(len(samples), 4096)
        ]
    return np.concatenate(parts)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    probability: np.ndarray = torch.sigmoid(torch.from_numpy(logits)).numpy()
    return probability


def _days(samples: Samples) -> np.ndarray:
    days: np.ndarray = local_minutes(samples.departs) // (DAY // MINUTE)
    return days


def _held_out(scored: Samples, logits: np.ndarray, rates: np.ndarray, training: Samples) -> dict[str, Any]:
    """The columns of held_out.parquet."""
    words = {name: _words(scored, name) for name in ("origin", "carrier", "destination", "hour")}
    place = list(CATEGORIES).index("destination")
    flights = np.bincount(training.categories[:, place], minlength=len(CATEGORIES["destination"]) + 1)[scored.categories[:, place]]
    size = np.select([flights >= LARGE_DESTINATION, flights >= LARGE_DESTINATION // 4], ["large", "medium"], "small")
    return {
        "label": scored.label, "logit": logits, "probability": _sigmoid(logits), "baseline": rates, "day": _days(scored),
        "month": local_minutes(scored.departs).astype("datetime64[m]").astype("datetime64[M]").astype(str),
        "hour": words["hour"], "origin": words["origin"], "carrier": words["carrier"], "destination_size": size,
        "route": np.char.add(np.char.add(words["origin"], "-"), words["destination"]),
        "evening": np.isin(words["hour"].astype(int), EVENING_HOURS),
    }  # fmt: skip


def _words(samples: Samples, name: str) -> np.ndarray:
    words: np.ndarray = np.array(["unknown", *CATEGORIES[name]])[samples.categories[:, list(CATEGORIES).index(name)]]
    return words


def _recent(table: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The first days of the held-out table, once as each build would have scored them."""
    rows = np.flatnonzero(table["day"] < np.unique(table["day"])[0] + RECENT_DAYS)
    kept = {name: np.tile(table[name][rows], 2) for name in ("label", "baseline", "day")}
    shifted = [_sigmoid(table["logit"][rows] + shift) for shift in (0.0, WRONG_LOGITS)]
    return kept | {"probability": np.concatenate(shifted), "artifact": np.repeat(np.array(names), len(rows))}


if __name__ == "__main__":
    sys.exit(main())
