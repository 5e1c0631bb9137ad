"""`benchmarks.json` of two audits, as pytest-benchmark writes it: joined by full name, so that a renamed benchmark is a missing one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.compare_model import Row
from reports.compare_numbers import Series, judged
from reports.compare_policy import CompareBounds
from reports.compare_ratio import Limits, Measured
from reports.compare_rows import worst
from reports.evidence import EvidenceError
from reports.wording import sentence

FILE = "benchmarks.json"
BACKEND = "benchmark"
NOTCH = 1.57  # median +- 1.57 IQR / sqrt(n) holds the median in about 95 % of cases (McGill, Tukey and Larsen 1978)


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """The benchmarks of one audit: seconds per call by full name, and what pytest-benchmark noted of the machine."""

    seconds: Mapping[str, Measured] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)


def read_benchmarks(folder: Path) -> Benchmarks:
    """The benchmarks in an audit directory; none where it has no such file. Raises EvidenceError for one that cannot be read."""
    file = folder / FILE
    if not file.is_file():
        return Benchmarks()
    try:
        stored = json.loads(file.read_text())
        seconds = {str(item["fullname"]): _measured(item["stats"]) for item in stored["benchmarks"]}
        if len(seconds) != len(stored["benchmarks"]):
            raise ValueError("two benchmarks have the same fullname")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{file} cannot be read as the JSON of pytest-benchmark: {error!r}; write it with --benchmark-json.") from error
    info = stored.get("machine_info") or {}
    cpu = info.get("cpu") or {}
    return Benchmarks(seconds, {"cpu": cpu.get("brand_raw"), "cores": cpu.get("count")})


def benchmark_rows(base: Benchmarks, head: Benchmarks, bounds: CompareBounds) -> tuple[Row, ...]:
    """One row per benchmark of either side; a benchmark has no verdict, only a time."""
    return tuple(
        _row(name, base.seconds.get(name), head.seconds.get(name), bounds) for name in dict.fromkeys([*base.seconds, *head.seconds])
    )


def _row(name: str, base: Measured | None, head: Measured | None, bounds: CompareBounds) -> Row:
    if head is None:
        return Row(
            name, BACKEND, False, "missing", "measured", "", "The base measured it, the head did not: it was removed, renamed or not run."
        )
    if base is None:
        return Row(name, BACKEND, False, "new", "", "measured", "The base did not measure it.")
    limits = Limits(bounds.bound(name), bounds.between_audits, bounds.level)
    before, after = (Series("time per call", "s", True, True, side) for side in (base, head))
    number = judged((before, after), limits, timed=True, named=bounds.named(name) is not None)
    return Row(name, BACKEND, False, worst((number,)), "measured", "measured", sentence(f"{number.name}: {number.words}"), (number,))


def _measured(stats: Mapping[str, Any]) -> Measured:
    """Every round where they were kept (--benchmark-save-data), else the median with the notch of its box plot."""
    data = tuple(float(value) for value in stats.get("data") or ())
    median, rounds = float(stats["median"]), int(stats.get("rounds") or len(data) or 1)
    if not all(map(math.isfinite, (median, *data))):
        raise ValueError(f"a time is {median!r}")
    if data:
        return Measured(median, samples=len(data), repeats=data)
    if rounds < 2 or not isinstance(stats.get("iqr"), int | float):
        return Measured(median, samples=rounds)
    half = NOTCH * float(stats["iqr"]) / math.sqrt(rounds)
    return Measured(median, median - half, median + half, rounds)
