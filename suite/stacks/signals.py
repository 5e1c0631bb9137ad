"""Which of the probe's signals came from a job, as a table: captured, not applicable, or not seen, each with the words of its records.

Trackers (W&B, TensorBoard, MLflow) show what a script logs, and an empty chart says nothing: not wired up, or nothing there? Here every signal has a row.
"Captured" is said of a value in every step of every rank; "not applicable" only where another record shows that the job has no such thing; all else
is "not seen", with the probe's own reason where it gave one. A pure function of traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fixtures.trace import NotSeen, Trace
from suite.signals import ABSENT, cell_of

CAPTURED, NOT_APPLICABLE, NOT_SEEN = "captured", "not applicable", "not seen"
NO_RECORD = "no record of it came"


@dataclass(frozen=True, slots=True)
class Signal:
    """One row: a signal, its state (captured, not applicable, not seen), and what was captured or why not."""

    name: str
    state: str
    words: str


Look = Callable[[Trace], tuple[str, str]]
"""A trace -> (state, words)."""


def signals(plain: Sequence[Trace], resumed: Sequence[Trace] = ()) -> tuple[Signal, ...]:
    """The table of a job. plain: fault-free runs at one world size, of any level; resumed: runs that were started again.

    Runs of several levels show different signals, so a signal is captured if one of the runs shows it.
    """
    rows = [_best(name, look, plain) for name, look in LOOKS.items()]
    rows.append(_best("state restored by a resume", _restored, resumed) if resumed else Signal(*_RESUME_UNKNOWN))
    named = {name for names in REASONS.values() for name in names}
    others = {signal: why for trace in (*plain, *resumed) for signal, why in trace.not_seen().items() if signal not in named}
    return (*rows, *(Signal(name, NOT_SEEN, why) for name, why in sorted(others.items())))


_RESUME_UNKNOWN = ("state restored by a resume", NOT_SEEN, "no run was started again")


def _best(name: str, look: Look, traces: Sequence[Trace]) -> Signal:
    found = [look(trace) for trace in traces] or [(NOT_SEEN, "no run of the job ended")]
    state, words = next((one for one in found if one[0] == CAPTURED), found[-1])
    reasons = [why for trace in traces for signal, why in trace.not_seen().items() if signal in REASONS.get(name, ())]
    return Signal(name, state, reasons[0] if state == NOT_SEEN and reasons else words)


def _filled(trace: Trace, column: str) -> bool:
    """True where every step of every rank has this value."""
    return len(trace.steps) > 0 and bool(trace.steps[column].map(_there).all())


def _there(value: Any) -> bool:
    return len(value) > 0 if isinstance(value, list | dict | str) else not pd.isna(value)


def _in_every_step(column: str, words: Callable[[Trace], str]) -> Look:
    def look(trace: Trace) -> tuple[str, str]:
        return (CAPTURED, words(trace)) if _filled(trace, column) else (NOT_SEEN, NO_RECORD)

    return look


def _where_used(column: str, words: Callable[[Trace], str], absent: str) -> Look:
    """For what a job need not have: the hooks that would have seen it were in place in every step, and nothing came."""

    def look(trace: Trace) -> tuple[str, str]:
        if not len(trace.steps):
            return NOT_SEEN, NO_RECORD
        return (CAPTURED, words(trace)) if trace.steps[column].map(_there).any() else (NOT_APPLICABLE, absent)

    return look


def _steps(trace: Trace) -> tuple[str, str]:
    counts = trace.steps.groupby("rank")["step"].nunique()
    if counts.empty:
        return NOT_SEEN, NO_RECORD
    skipped = int(trace.steps["skipped"].sum())
    return CAPTURED, f"{_span(counts)} on each of {len(counts)} ranks" + (f", {skipped} of them skipped" if skipped else "")


def _gradient(trace: Trace) -> tuple[str, str]:
    try:
        values = trace.gradients(trace.ranks[0])
    except (NotSeen, IndexError) as why:
        return NOT_SEEN, str(why) or NO_RECORD
    return CAPTURED, f"{sum(value.size for value in values.values())} elements of {len(values)} parameters"


def _norms(trace: Trace) -> tuple[str, str]:
    known = trace.gradient_norms["norm"].notna()
    if not known.any():
        return NOT_SEEN, NO_RECORD
    return CAPTURED, "before clipping, of every parameter" + ("" if known.all() else f" that has one ({int((~known).sum())} have none)")


def _parameters(trace: Trace) -> tuple[str, str]:
    if not _filled(trace, "param_digest"):
        return NOT_SEEN, NO_RECORD
    layouts = sorted({str(one.get("layout", "replicated")) for one in _model(trace).get("parameters", ())})
    return CAPTURED, f"digest after every step; {', '.join(layouts) or 'replicated'}"


def _clipping(trace: Trace) -> tuple[str, str]:
    """As the probe's own table has it: gradients that change behind backward with no call of torch's are clipped by hand, perhaps, and not seen."""
    cell = cell_of(trace, "clipping")
    return {CAPTURED: (CAPTURED, "its norm, limit and effect"), ABSENT: (NOT_APPLICABLE, cell.why)}.get(
        cell.state, (NOT_SEEN, cell.why or NO_RECORD)
    )


def _buffers(trace: Trace) -> tuple[str, str]:
    if "buffers" not in _model(trace):
        return NOT_SEEN, NO_RECORD
    held = len(_model(trace)["buffers"])
    return (CAPTURED, f"{held} buffers, digest after every step") if held else (NOT_APPLICABLE, "the model has none")


def _weights(trace: Trace) -> tuple[str, str]:
    noted = [one for row in trace.steps["weights"].dropna() for one in row]
    if not noted:
        return NOT_SEEN, NO_RECORD
    forms = sorted({str(one["form"] or "unknown") for one in noted})
    told = "the weight itself" if "unknown" not in forms else "the norm of its gradient, to be compared between runs"
    return CAPTURED, f"{told} ({', '.join(forms)} loss)"


def _rng_in_forward(trace: Trace) -> tuple[str, str]:
    pairs = [one for one in trace.steps["forward_rng"] if isinstance(one, list) and len(one) == 2]
    if not pairs:
        return NOT_SEEN, NO_RECORD
    drawn = sum(before != after for before, after in pairs)
    return CAPTURED, f"drawn from in {drawn} of {len(pairs)} first forwards"


def _fetches(trace: Trace) -> tuple[str, str]:
    fetches, loaders = (_kind(trace, kind) for kind in ("fetch", "loader"))
    if not loaders:
        return NOT_APPLICABLE, "no torch DataLoader was iterated"
    workers = max(int(one["workers"]) for one in loaders)
    where = f"in {workers} worker processes" if workers else "in the training process"
    return (CAPTURED, f"{len(loaders)} iterators, {where}") if fetches else (NOT_SEEN, f"{len(loaders)} iterators, but no fetch of theirs")


def _data_wait(trace: Trace) -> tuple[str, str]:
    if not _kind(trace, "loader"):
        return NOT_APPLICABLE, "no torch DataLoader was iterated; what the job does for its batches counts as other time"
    return (CAPTURED, "in every step") if _filled(trace, "data_wait_ms") else (NOT_SEEN, NO_RECORD)


def _collectives(trace: Trace) -> tuple[str, str]:
    if trace.collectives.empty:
        alone = len(trace.ranks) < 2
        return (NOT_APPLICABLE, "one rank") if alone else (NOT_SEEN, "ranks of one world exchanged nothing that torch.distributed sees")
    ops = Counter(trace.collectives.loc[trace.collectives["rank"] == trace.ranks[0], "op"])
    done = trace.collectives["done_ns"].notna().mean()
    told = ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))
    return CAPTURED, f"{told} on rank {trace.ranks[0]}; arrival of all, completion of {100 * done:.0f} %"


def _exposed(trace: Trace) -> tuple[str, str]:
    if trace.collectives.empty:
        return NOT_APPLICABLE, "no collective in any step"
    return (CAPTURED, "in every step") if _filled(trace, "exposed_ms") else (NOT_SEEN, NO_RECORD)


def _evaluated(trace: Trace) -> tuple[str, str]:
    found = _kind(trace, "evaluated")
    if not found:
        return NOT_SEEN, "the trained module was not called in evaluation mode without gradients, or was compiled"
    rows = sum(len(one["samples"]) for one in found)
    return CAPTURED, f"{rows} rows in {len(found)} evaluations over all ranks"


def _files(trace: Trace) -> tuple[str, str]:
    if trace.files.empty:
        return NOT_SEEN, "no Python file operation below the checkpoint directory; crash states are recorded below Python"
    ops = Counter(trace.files["op"])
    return CAPTURED, ", ".join(f"{count} {op}" for op, count in sorted(ops.items())) + "; below Python for the crash states"


def _exits(trace: Trace) -> tuple[str, str]:
    ended = {one["rank"] for one in _kind(trace, "exit")}
    missing = sorted(set(trace.ranks) - ended)
    return (NOT_SEEN, f"rank {missing[0]} left no record of its end") if missing else (CAPTURED, f"of {len(ended)} ranks")


def _restored(trace: Trace) -> tuple[str, str]:
    try:
        begun = trace.start(trace.ranks[0])
    except (NotSeen, IndexError) as why:
        return NOT_SEEN, str(why) or NO_RECORD
    parts = {"parameters": "param_digest", "optimizer": "optimizer_digest", "buffers": "buffer_digest", "random numbers": "rng"}
    seen = [name for name, key in parts.items() if begun.get(key)]
    return (CAPTURED, ", ".join(seen) + " before the first step") if seen else (NOT_SEEN, NO_RECORD)


def _exact(trace: Trace) -> tuple[str, str]:
    if trace.spec.get("numerics") != "exact":
        return NOT_SEEN, "no run in float64 ended"
    why = trace.not_seen().get("exact numerics")
    return (NOT_SEEN, why) if why else (CAPTURED, "all parameters in float64, dropout off")


def _kind(trace: Trace, kind: str) -> list[Mapping[str, Any]]:
    return [one for one in trace.records if one["kind"] == kind]


def _model(trace: Trace) -> Mapping[str, Any]:
    try:
        return trace.model(trace.ranks[0])
    except (NotSeen, IndexError):
        return {}


def _span(counts: Iterable[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low} steps" if low == high else f"{low} to {high} steps"


def _samples(trace: Trace) -> tuple[str, str]:
    counts = trace.steps.groupby("step")["n_samples"].sum()
    if trace.steps.empty or not (trace.steps["n_samples"] > 0).all():
        return NOT_SEEN, NO_RECORD
    low, high = int(counts.min()), int(counts.max())
    return CAPTURED, f"{low if low == high else f'{low} to {high}'} rows a step over all ranks"


LOOKS: dict[str, Look] = {
    "optimizer steps": _steps,
    "loss": _in_every_step("losses", lambda trace: f"{int(trace.steps['micro_batches'].max())} backward passes a step"),
    "gradient of the first step": _gradient,
    "gradient norms": _norms,
    "clipping": _clipping,
    "learning rate": _in_every_step("lr", lambda trace: f"{len(trace.steps['lr'].iloc[0])} parameter groups"),
    "schedule": _where_used("schedule", lambda trace: "its position in every step", "no LRScheduler of torch was made"),
    "loss scale": _where_used("loss_scale", lambda trace: "in every step", "no enabled GradScaler of torch was made"),
    "parameters": _parameters,
    "optimizer state": _in_every_step("optimizer_digest", lambda trace: "digest after every step"),
    "buffers": _buffers,
    "samples consumed": _samples,
    "weight of a sample in the loss": _weights,
    "state of all generators": _in_every_step("rng", lambda trace: "digest after every step"),
    "random numbers in forwards": _rng_in_forward,
    "fetches of data loaders": _fetches,
    "collectives": _collectives,
    "step, forward, backward and optimizer times": _in_every_step("backward_ms", lambda trace: "in every step"),
    "wait for data": _data_wait,
    "exposed communication": _exposed,
    "evaluated rows": _evaluated,
    "file operations of saves": _files,
    "end of the rank": _exits,
    "the same run in float64": _exact,
}
"""Signal -> how it is looked for in a trace."""

REASONS = {
    "optimizer steps": ("steps",),
    "loss": ("loss",),
    "gradient of the first step": ("gradient",),
    "gradient norms": ("grad_norms",),
    "parameters": ("whole_parameters",),
    "samples consumed": ("samples",),
    "weight of a sample in the loss": ("row weights",),
    "the same run in float64": ("exact numerics",),
}
"""Signal -> the names under which the probe says why it did not see it."""
