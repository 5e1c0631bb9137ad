"""What the probe sees of training loops of every shape: captured, not applicable, or not seen and why. Real runs, one row each.

Tools that watch training document what they support; whether a signal was there on a given loop has to be found out by its user. Here every cell is
read off the trace of a run, and a cell that is neither captured nor explained by the trace is an error, not a blank.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fixtures.trace import Trace, load_trace
from fixtures.world import Launcher, Start, open_launcher

JOBS = Path(__file__).resolve().parent / "selftest" / "jobs"
CAPTURED, ABSENT, UNSEEN, UNEXPLAINED = "captured", "not applicable", "not seen", "UNEXPLAINED"
SIGNALS = (
    *("steps", "loss", "learning rate", "samples", "row weights", "micro-batches", "gradient", "gradient norms", "clipping"),
    *(
        "parameters",
        "optimizer state",
        "buffers",
        "loss scale",
        "RNG",
        "collectives",
        "exposed communication",
        "data wait",
        "phase times",
        "fetches",
    ),
)
OF_STEPS = {
    "learning rate": "lr", "micro-batches": "micro_batches", "parameters": "param_digest",
    "optimizer state": "optimizer_digest", "RNG": "rng", "phase times": "step_ms",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """A loop: its name on the page, the script and kind that run it, and how many ranks do."""

    name: str
    job: str
    kind: str
    ranks: int = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of a signal, and why where it was not captured."""

    state: str
    why: str = ""


SHAPES = (
    Shape("plain loop, one process, batches by hand", "probe_shapes", "plain", 1),
    Shape("DDP", "probe_loops", "ddp"),
    Shape("gradients reduced by hand", "probe_loops", "by_hand"),
    Shape("FSDP2 (`fully_shard`)", "probe_loops", "fsdp"),
    Shape("FSDP1", "probe_loops", "flattened"),
    Shape("ZeRO-1 (ZeroRedundancyOptimizer)", "probe_loops", "zero"),
    Shape("accumulation with `no_sync`", "probe_shapes", "no_sync"),
    Shape("accumulation by toggling the flag", "probe_shapes", "sync_flag"),
    Shape("two optimizers", "probe_loops", "two_optimizers"),
    Shape("two modules", "probe_loops", "two_modules"),
    Shape("closure (LBFGS)", "probe_loops", "lbfgs"),
    Shape("fused optimizer", "probe_shapes", "fused"),
    Shape("foreach optimizer", "probe_shapes", "foreach"),
    Shape("AMP with GradScaler, one step skipped", "probe_loops", "scaler"),
    Shape("torch.compile(model), backend eager", "probe_loops", "compiled"),
    Shape("model.compile(), backend eager", "probe_loops", "compiled_in_place"),
    Shape("torch.compile(optimizer.step), backend eager", "probe_shapes", "compiled_step"),
    Shape("DataLoader workers, forked", "probe_shapes", "workers_fork"),
    Shape("DataLoader workers, spawned", "probe_shapes", "workers_spawn"),
    Shape("DataLoader workers, persistent", "probe_shapes", "workers_persistent"),
    Shape("IterableDataset with workers", "probe_shapes", "iterable_workers"),
    Shape("IterableDataset, no workers", "probe_loops", "stream"),
    Shape("the module returns the loss", "probe_loops", "loss_inside"),
    Shape("sparse gradients, integer inputs", "probe_loops", "sparse"),
    Shape("bare tensors, no module", "probe_loops", "bare_tensors"),
    Shape("no Optimizer, updated by hand", "probe_loops", "no_optimizer"),
)


def observe(launcher: Launcher, shape: Shape, folder: Path) -> Trace:
    """Run a shape once, at level full. Raises RuntimeError where the loop itself fails."""
    run_dir = folder / shape.kind
    ended = launcher.run(
        Start(
            argv=("train.py", "--kind", shape.kind), folder=JOBS / shape.job, world_size=shape.ranks, run_dir=run_dir,
            environment={"RANKPROOF_TRACE": str(run_dir), "RANKPROOF_LEVEL": "full"}, deadline_s=120.0,
        )
    )  # fmt: skip
    if ended.message:
        raise RuntimeError(f"the loop {shape.name!r} failed: {ended.message}; see {run_dir}")
    return load_trace(run_dir)


def signals_of(trace: Trace) -> dict[str, Cell]:
    """Every signal of a trace, in the order of SIGNALS."""
    return {signal: cell_of(trace, signal) for signal in SIGNALS}


def cell_of(trace: Trace, signal: str) -> Cell:
    """One signal of a trace."""
    if _captured(trace, signal):
        return Cell(CAPTURED)
    said = trace.not_seen()
    if signal in said:
        return Cell(UNSEEN, said[signal])
    if trace.steps.empty:
        return Cell(UNSEEN, said.get("steps", "")) if "steps" in said else Cell(UNEXPLAINED)
    if reason := _absent(trace, signal):
        return Cell(ABSENT, reason)
    if signal == "clipping":
        return Cell(
            UNSEEN,
            "no clipping function of torch was called, but something alters the gradient behind backward: clipping by hand cannot be told",
        )
    if signal == "row weights" and "samples" in said:
        return Cell(UNSEEN, said["samples"])
    return Cell(UNEXPLAINED)


def _captured(trace: Trace, signal: str) -> bool:
    """Whether every rank that trained has it."""
    steps, ranks = trace.steps, len(trace.ranks)
    if signal in OF_STEPS:
        return len(steps) > 0 and bool(steps[OF_STEPS[signal]].notna().all())
    kinds = [record["kind"] for record in trace.records]
    found: dict[str, bool] = {
        "steps": len(steps) > 0, "loss": bool(len(steps) and steps["loss"].notna().all()), "samples": trace.samples["rank"].nunique() == ranks,
        "row weights": any(bool(one) for one in steps["weights"]), "gradient": all((trace.folder / f"rank{rank}.gradient.bin").exists() for rank in trace.ranks),
        "clipping": bool(steps["clip"].notna().any()), "buffers": bool(_buffers(trace) and steps["buffer_digest"].notna().all()),
        "loss scale": bool(steps["loss_scale"].notna().any()), "collectives": not trace.collectives.empty, "gradient norms": trace.gradient_norms["rank"].nunique() == ranks,
        "exposed communication": bool((steps["exposed_ms"] > 0).any()), "data wait": bool((steps["data_wait_ms"] > 0).any()), "fetches": "fetch" in kinds,
    }  # fmt: skip
    return found[signal]


def _buffers(trace: Trace) -> bool:
    return any(record["kind"] == "model" and record["buffers"] for record in trace.records)


def _absent(trace: Trace, signal: str) -> str:
    """Why the loop has no such signal, as the trace shows it; "" where it does not."""
    loaders = any(record["kind"] == "loader" for record in trace.records)
    grouped = any(record["kind"] == "backend" and record["backend"] for record in trace.records)
    seen = trace.steps.loc[trace.steps["left_digest"].notna()]
    reasons = {
        "clipping": "" if not seen["left_digest"].eq(seen["grad_digest"]).all() else "the optimizer gets the gradient as backward left it",
        "buffers": "" if _buffers(trace) else "the model has no buffers",
        "loss scale": "there is no GradScaler",
        "collectives": _without_collectives(trace) if grouped else "there is no process group",
        "exposed communication": "" if not trace.collectives.empty and grouped else "there is no communication",
        "data wait": "" if loaders else "there is no DataLoader", "fetches": "" if loaders else "there is no DataLoader",
    }  # fmt: skip
    return reasons.get(signal, "")


def _without_collectives(trace: Trace) -> str:
    """A loop that wraps its model into nothing that communicates, and of which no collective was seen, makes none."""
    models = [record for record in trace.records if record["kind"] == "model"]
    wrapped = any(set(model.get("wrappers") or ()) - {"OptimizedModule"} or "groups" in model for model in models)
    return "" if wrapped else "the loop reduces nothing, and its model is not wrapped"


def signals_page(rows: Sequence[tuple[Shape, dict[str, Cell]]]) -> str:
    """The page in Markdown: a row for each shape, the reasons below, each once."""
    notes: dict[str, int] = {}
    lines = [HEAD, "| loop | " + " | ".join(SIGNALS) + " |", "| --- |" + " --- |" * len(SIGNALS)]
    for shape, cells in rows:
        lines.append(f"| {shape.name} | " + " | ".join(_shown(cells[signal], notes) for signal in SIGNALS) + " |")
    return "\n".join([*lines, "", *(f"{number}. {why}" for why, number in notes.items())]) + "\n"


HEAD = """# What the probe sees

Written by `python -m suite signals`: every row is a real run on gloo, at level full, and every cell is read off its trace. Yes: captured, on every
rank. A number: why not, below; **bold** where the loop has the signal and the probe does not see it, plain where the loop has no such thing.
"""


def _shown(cell: Cell, notes: dict[str, int]) -> str:
    if cell.state == CAPTURED:
        return "yes"
    if cell.state == UNEXPLAINED:
        return UNEXPLAINED
    number = notes.setdefault(f"{cell.state}: {cell.why}", len(notes) + 1)
    return f"**{number}**" if cell.state == UNSEEN else str(number)


def run_signals(out: Path, shapes: Iterable[Shape] = SHAPES) -> list[str]:
    """Run the shapes, write the page; the cells that nothing explains."""
    with tempfile.TemporaryDirectory(prefix="rankproof-signals-") as folder, open_launcher() as launcher:
        rows = [(shape, signals_of(observe(launcher, shape, Path(folder)))) for shape in shapes]
    out.write_text(signals_page(rows))
    return [f"{shape.name}: {signal}" for shape, cells in rows for signal, cell in cells.items() if cell.state == UNEXPLAINED]
