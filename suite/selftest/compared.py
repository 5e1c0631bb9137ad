"""Made-up sides of a comparison, in memory: a sound audit with measured times whose noise is like that of a shared machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.compare_benchmarks import Benchmarks
from reports.compare_find import Side
from reports.compare_model import Title
from reports.evidence import Entry, Evidence, Finding, Record, Run

STARTED = "2026-08-21T09:12:00+00:00"
RUN = Run("w2-run", {"world_size": 2, "numerics": "as_run"}, {"started_utc": STARTED}, {})
META: dict[str, Any] = {
    "job": {"name": "flights", "command": "train.py", "global_batch": 256, "steps": 24, "seed": 0, "capabilities": {}, "targets": {}},
    "identity": {"code_commit": "5f3c0e9a1b7d4c2288e1a6f09d3b5c7e11aa42de", "dirty": False},
    "environment": {"cpu": "Xeon 2.1 GHz", "cores": 2, "gpus": 0, "gpu_names": [], "torch": "2.13.0"},
    "world": {"world_size": 2, "world_sizes": [1, 2], "launcher": "warm", "backends": ["gloo"]},
    "session": {"started_utc": STARTED, "finished_utc": STARTED, "complete": True},
}
TITLE = Title("audits/flights", "5f3c0e9a1b7d4c2288e1a6f09d3b5c7e11aa42de", False, "flights", STARTED)
GRADIENT, SCALING, WAIT, EXACT = "equivalence.gradient", "efficiency.scaling", "efficiency.breakdown", "recovery.continuation"


def entry(id: str, version: int = 1, backend: str = "gloo") -> Entry:
    return Entry(
        id,
        backend,
        "It holds.",
        ({"part": "twin", "words": "a fault", "because": "planted"},),
        version,
        timed=id.startswith(("efficiency.", "stragglers.")),
    )


def side(
    findings: Mapping[str, Finding], *, versions: Mapping[str, int] | None = None, benchmarks: Benchmarks | None = None, **meta: Any
) -> Side:
    """A side whose criteria gave these findings, each with its twin rejected. meta: keys changed inside a table of META."""
    catalogue = tuple(entry(id, (versions or {}).get(id, 1)) for id in findings)
    records = {}
    for one in catalogue:
        parts: tuple[tuple[Any, Finding, bool | None], ...] = (
            ("as_is", findings[one.id], None), ("twin", Finding(False, explanation="the planted fault was seen"), True)
        )  # fmt: skip
        for part, finding, fired in parts:
            outcome: Any = {True: "accepted", False: "rejected", None: "undecided"}[finding.accepted]
            records[one.id, one.backend, part] = Record(one.id, one.backend, part, outcome, finding, fired, (RUN.run_id,), STARTED, 1.0)
    changed = {key: {**table, **meta.get(key, {})} for key, table in META.items()}
    return Side(TITLE, Evidence(changed, catalogue, records, {RUN.run_id: RUN}), benchmarks or Benchmarks())


def audited(
    rng: np.random.Generator, *, repeats: int = 9, slower: float = 1.0, bound: float = 0.65, keep_repeats: bool = True
) -> dict[str, Finding]:
    """The findings of one audit of a job that takes 41 ms a step on one rank, 24 ms on two.

    Noise as on a shared machine: this audit as a whole is off by about 1.5 % (its neighbours), each run by another 3 %, and one run in twenty
    takes up to 40 % longer. slower: what every step takes times this.
    """
    whole = math.exp(rng.normal(0.0, 0.015)) * slower
    one, two = (_times(rng, base_ms * whole, repeats) for base_ms in (41.2, 24.0))
    share = np.clip(rng.normal(0.03, 0.004, repeats), 0.0, None)
    return {
        GRADIENT: Finding(True, 1.4e-7, "relative", 6e-7, explanation="The gradients agree.", interval=(0.9e-7, 2.1e-7), samples=42),
        EXACT: Finding(True, 0.0, "bits", 0.0, "equal", "The resumed run is bitwise equal.", samples=2),
        SCALING: scaling(one, two, bound, keep_repeats),
        WAIT: _measured(share, "share of the step in data wait", 0.1, "at_most", keep_repeats),
    }  # fmt: skip


def scaling(one: Sequence[float], two: Sequence[float], bound: float, keep_repeats: bool = True) -> Finding:
    """The finding of the scaling criterion from step times (ms) on one rank and on two."""
    points = []
    for size, times in ((1, one), (2, two)):
        point = {"world_size": size, "step_ms": float(np.median(times)), "low": min(times), "high": max(times)}
        points.append({**point, "repeats_ms": list(times)} if keep_repeats else point)
    found = np.asarray(one) / np.asarray(two) / 2.0
    return _measured(found, "speed-up per rank", bound, "at_least", keep_repeats, {"scaling": points, "world_size": 2})


def benchmark_file(folder: Path, times: Mapping[str, Sequence[float]], *, keep: bool = True) -> Path:
    """A `benchmarks.json` as pytest-benchmark writes it. times: seconds per round by full name."""
    found = []
    for name, seconds in times.items():
        low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        stats = {"median": float(median), "iqr": float(high - low), "rounds": len(seconds), **({"data": list(seconds)} if keep else {})}
        found.append({"name": name.rsplit("::", 1)[-1], "fullname": name, "stats": stats})
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "benchmarks.json"
    file.write_text(json.dumps({"machine_info": {"cpu": {"brand_raw": "Xeon 2.1 GHz", "count": 2}}, "benchmarks": found}))
    return file


def _times(rng: np.random.Generator, median_ms: float, repeats: int) -> list[float]:
    late = np.where(rng.random(repeats) < 0.05, rng.uniform(1.0, 1.4, repeats), 1.0)
    return [float(value) for value in median_ms * np.exp(rng.normal(0.0, 0.03, repeats)) * late]


def _measured(
    values: Any, unit: str, bound: float, direction: Any, keep_repeats: bool, details: Mapping[str, Any] | None = None
) -> Finding:
    value = float(np.median(values))
    accepted = value <= bound if direction == "at_most" else value >= bound
    kept = {**(details or {}), **({"repeats": [float(one) for one in values]} if keep_repeats else {})}
    return Finding(
        accepted, value, unit, bound, direction, "Measured.", interval=(float(np.min(values)), float(np.max(values))), samples=len(values), details=kept
    )  # fmt: skip
