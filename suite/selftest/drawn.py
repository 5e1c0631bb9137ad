"""Traces whose numbers are drawn from a seed, each rank and step its own: a judge that takes the wrong one of them gives another number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fixtures.trace import Record, Trace
from suite.selftest.synthetic import MS_NS, SECOND_NS, make_trace

USUAL_MS = {"data_wait_ms": 4.0, "forward_ms": 30.0, "backward_ms": 50.0, "optimizer_ms": 10.0, "other_ms": 6.0}


def drawn_trace(
    seed: int, ranks: int = 2, steps: int = 9, *, spread: float = 0.3, usual: Mapping[str, float] | None = None, **options: Any
) -> Trace:
    """A run with drawn times, losses and collectives. spread: of a time, relative to its usual value; the named phases add up to the step."""
    rng = np.random.default_rng([seed, ranks])
    drawn = rng.uniform(1.0 - spread, 1.0 + spread, size=(ranks, steps + 1, 12))
    extra = [record for rank in range(ranks) for record in _ends(rank, rng)]

    def change(record: Record) -> Record:
        return (
            _drawn(record, drawn[record["rank"], record["step"]], {**USUAL_MS, **(usual or {})}, ranks)
            if record["kind"] == "step"
            else record
        )

    return make_trace(steps=steps, ranks=ranks, change=change, **{"extra": extra, **options})


def machine(trace_seed: int, elapsed_s: float, used_s: float, stolen_s: float, cores: int = 4) -> dict[str, Any]:
    """What others used while a run ran, for ``ended``."""
    rng = np.random.default_rng(trace_seed)
    return {"cores": cores, "elapsed_s": elapsed_s, "others_s": used_s * float(rng.uniform(0.5, 1.0)), "stolen_s": stolen_s}


def _drawn(record: Record, factors: Any, usual: Mapping[str, float], ranks: int) -> Record:
    times = {name: round(value * float(factor), 3) for (name, value), factor in zip(usual.items(), factors, strict=False)}
    t_ns, began_ns = record["t_ns"], record["t_ns"] - int(40 * MS_NS * factors[6])
    calls = [
        ["allreduce", 36, began_ns, began_ns + int(6 * MS_NS * factors[7]), "backward"],
        ["allreduce", 16, t_ns - int(8 * MS_NS * factors[8]), t_ns - int(8 * MS_NS * factors[8]) + int(3 * MS_NS * factors[9]), "other"],
    ]
    return {
        **record, **times, "step_ms": round(sum(times.values()), 3), "exposed_ms": round(8.0 * float(factors[10]), 3),
        "losses": [float(factors[11]) / record["step"]], "collectives": calls if ranks > 1 else [],
    }  # fmt: skip


def _ends(rank: int, rng: np.random.Generator) -> list[Record]:
    return [
        {
            "kind": "usage",
            "rank": rank,
            "t_ns": 9 * SECOND_NS,
            "peak_resident_bytes": int(rng.integers(2**20, 2**24)),
            "queued_ns": int(rng.integers(SECOND_NS)),
        }
    ]
