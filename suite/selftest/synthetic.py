"""Traces made by hand, so that a judge can be tested without starting a rank.

trace = make_trace(steps=4, ranks=2)   # a correct run: same samples, digests, losses at any number of ranks
slow = make_trace(ranks=2, backward_ms=lambda rank, step: 80.0 if rank == 1 else 20.0)
late = make_trace(ranks=2, change=lambda record: None if record["kind"] == "step" and record["step"] > 3 else record)
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.trace import PHASES, Record, Trace, trace_from_records

GLOBAL_BATCH = 8
SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
PARAMETERS: tuple[dict[str, Any], ...] = ({"name": "layer.weight", "shape": [3, 2]}, {"name": "layer.bias", "shape": [3]})
Change = Callable[[Record], Record | None]


def make_trace(
    *,
    steps: int = 6,
    ranks: int = 1,
    change: Change | None = None,
    extra: Sequence[Record] = (),
    spec: Mapping[str, Any] | None = None,
    ended: Mapping[str, Any] | None = None,
    gradients: Mapping[int, Mapping[str, Any]] | None = None,
    **overrides: Any,
) -> Trace:
    """A trace in memory.

    ``overrides`` replace a value in every step record: a constant, or a function of (rank, step). ``change`` sees every record
    (with its rank) last and may return another or None to drop it. ``extra`` records (each with kind and rank) are added: faults,
    files, not_seen. ``gradients`` is by rank, then name.
    """
    records = _records(steps, ranks, change, extra, overrides)
    values = {rank: {name: np.asarray(value, "f8") for name, value in named.items()} for rank, named in (gradients or {}).items()}
    return trace_from_records(
        records,
        spec={"world_size": ranks, "steps": steps, **(spec or {})},
        ended=ended or ended_well(ranks),
        gradient_values=values if gradients is not None else None,
    )


def write_trace(
    folder: Path,
    *,
    steps: int = 6,
    ranks: int = 1,
    change: Change | None = None,
    extra: Sequence[Record] = (),
    spec: Mapping[str, Any] | None = None,
    ended: Mapping[str, Any] | None = None,
    gradients: Mapping[int, Mapping[str, Any]] | None = None,
    **overrides: Any,
) -> Path:
    """The same trace as files, in the layout that a run leaves behind. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    records = _records(steps, ranks, change, extra, overrides)
    for rank in range(ranks):
        mine = [{name: value for name, value in record.items() if name != "rank"} for record in records if record["rank"] == rank]
        (folder / f"rank{rank}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in mine))
        (folder / f"rank{rank}.log").write_text("")
        (folder / f"rank{rank}.now").write_bytes(struct.pack("<qqqq", steps + 1, 0, PHASES.index("exit"), SECOND_NS).ljust(64, b"\0"))
    for rank, named in (gradients or {}).items():
        values = np.concatenate([np.asarray(value, "<f8").ravel() for value in named.values()])
        (folder / f"rank{rank}.gradient.bin").write_bytes(values.tobytes())
    (folder / "spec.json").write_text(json.dumps({"world_size": ranks, "steps": steps, **(spec or {})}))
    (folder / "ended.json").write_text(json.dumps(ended or ended_well(ranks)))
    return folder


def ended_well(ranks: int, **exits: int) -> dict[str, Any]:
    """An ``ended.json`` in which every rank ended by exit code 0, but those named: ``ended_well(2, rank1=7)``."""
    ends = [{"rank": rank, "exit_code": exits.get(f"rank{rank}", 0), "signal": None, "killed_by_us": False} for rank in range(ranks)]
    return {"wall_s": 1.0, "started_utc": "2026-01-01T00:00:00Z", "ended_by": "exit", "ranks": ends, "message": ""}


def sample_of(index: int) -> str:
    """The 16 hex digits that stand for sample ``index`` of the data set."""
    return f"{index + 0xA000:016x}"


def _records(steps: int, ranks: int, change: Change | None, extra: Sequence[Record], overrides: Mapping[str, Any]) -> list[Record]:
    made: list[Record] = []
    for rank in range(ranks):
        made += _opening(rank, ranks)
        made += [_overridden(_step(rank, step, ranks), overrides) for step in range(1, steps + 1)]
        made.append({"kind": "exit", "rank": rank, "step": steps, "reason": "end", "t_ns": (steps + 1) * SECOND_NS})
    made += [{"t_ns": SECOND_NS, **record} for record in extra]
    return list(_changed(made, change))


def _changed(records: Iterable[Record], change: Change | None) -> Iterable[Record]:
    for record in records:
        if (kept := change(record) if change else record) is not None:
            yield kept


def _overridden(record: Record, overrides: Mapping[str, Any]) -> Record:
    unknown = sorted(set(overrides) - set(record))
    if unknown:
        raise TypeError(f"a step record has no {unknown[0]!r}; it has {sorted(record)}")
    place = (record["rank"], record["step"])
    return {**record, **{name: value(*place) if callable(value) else value for name, value in overrides.items()}}


def _opening(rank: int, ranks: int) -> list[Record]:
    sized = [{**parameter, "dtype": "float32", "numel": math.prod(parameter["shape"])} for parameter in PARAMETERS]
    return [
        {
            "kind": "meta",
            "rank": rank,
            "world_size": ranks,
            "local_rank": rank,
            "pid": 1000 + rank,
            "restart": 0,
            "torch": "2.13.0",
            "python": "3.11",
            "numerics": "as_run",
            "level": "default",
            "t_ns": 0,
        },
        {"kind": "backend", "rank": rank, "backend": "gloo", "device": "cpu"},
        {"kind": "model", "rank": rank, "module": "Net", "parameters": sized, "buffers": [], "parameter_count": 9},
        {"kind": "start", "rank": rank, "step": 0, "param_digest": f"{0:016x}", "rng": f"{rank:016x}", "t_ns": SECOND_NS // 2},
    ]


def _step(rank: int, step: int, ranks: int) -> Record:
    per_rank = GLOBAL_BATCH // ranks
    first = (step - 1) * GLOBAL_BATCH + rank * per_rank
    t_ns = step * SECOND_NS
    return {
        "kind": "step",
        "rank": rank,
        "step": step,
        "t_ns": t_ns,
        "losses": [1.0 / step],
        "lr": [0.1],
        "clip_norm": None,
        "grad_norm": 5.0 / step,
        "grad_norms": [4.0 / step, 3.0 / step],
        "grad_digest": f"{step + 1000:016x}",
        "param_digest": f"{step:016x}",
        "optimizer_digest": None,
        "buffer_digest": f"{0:016x}",
        "samples": [sample_of(first + row) for row in range(per_rank)],
        "micro_batches": 1,
        "input_low": -1.0,
        "input_high": 1.0,
        "rng": f"{step * 100 + rank:016x}",
        "skipped": False,
        "scales": None,
        "copy_digest": None,
        "begin": None,
        "weights": [],
        "loss_scale": None,
        "schedule": None,
        "forward_rng": ["s", "s"],
        "loop_rng": None,
        "buffers": None,
        "clip": None,
        "left_digest": f"{step + 1000:016x}",
        "left_norms": [4.0 / step, 3.0 / step],
        "reduced": {"float32": 36} if ranks > 1 else {},
        "step_ms": 100.0,
        "data_wait_ms": 5.0,
        "forward_ms": 30.0,
        "backward_ms": 50.0,
        "optimizer_ms": 10.0,
        "exposed_ms": 8.0,
        "other_ms": 5.0,
        "probe_ms": 0.5,
        "collectives": [["allreduce", 36, t_ns - 30 * MS_NS, t_ns - 22 * MS_NS, "backward"]] if ranks > 1 else [],
    }
