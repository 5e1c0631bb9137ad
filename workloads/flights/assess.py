"""The evaluation report of a candidate, from its held-out table: `assess.py --held-out T --out O` writes O/evaluation.json.

Needs no model and no torch: the table holds label, probability, baseline and day of each flight, and the columns that it is sliced by.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow.parquet as pq

from workloads import atomic
from workloads.flights import scores

SLICES = ("month", "hour", "origin", "carrier", "destination_size", "route", "evening")
FEWEST_IN_SLICE = 100


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table = {name: column.to_numpy(zero_copy_only=False) for name, column in _columns(options.held_out).items()}
    options.out.mkdir(parents=True, exist_ok=True)
    atomic.replace_file(options.out / "evaluation.json", (json.dumps(report(table), indent=1, sort_keys=True) + "\n").encode())
    return 0


def _columns(path: Path) -> dict[str, Any]:
    table = pq.read_table(path)
    return {name: table[name].combine_chunks() for name in table.column_names}


def report(table: dict[str, np.ndarray]) -> dict[str, Any]:
    """Model, baseline, their difference with its interval, and the difference in each slice of at least 100 flights."""
    ours, theirs = (scores.log_losses(table[name], table["label"]) for name in ("probability", "baseline"))
    found = []
    for kind in SLICES:
        for value in np.unique(table[kind]).tolist():
            rows = table[kind] == value
            if rows.sum() >= FEWEST_IN_SLICE:
                found.append({"by": kind, "value": str(value)} | scores.difference(ours[rows], theirs[rows], table["day"][rows]))
    return {
        "model": scores.summary(table["probability"], table["label"]),
        "baseline": scores.summary(table["baseline"], table["label"]),
        "difference": scores.difference(ours, theirs, table["day"]),
        "slices": found,
    }


if __name__ == "__main__":
    sys.exit(main())
