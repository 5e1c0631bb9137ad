"""Train the model: `train.py --out O --size 1m --global-batch 16 --steps 24 --seed 0 [--parallel ddp|fsdp2] [--checkpoint-every 6] [--resume]`.

Runs as a plain process or as ranks of torchrun; the global batch is the same at every world size. It prints the entropy of its tokens,
below which no loss can stay. In --out it leaves checkpoints/, final/ (the weights, read by evaluate.py and infer.py) and metrics.json.
Exit code 2 with one sentence: the options or the checkpoints cannot be used. A restart with --resume continues bit for bit.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from workloads import checkpoint
from workloads.gpt import data, parallel
from workloads.gpt.model import GPT, parameter_count, shape_of, token_losses
from workloads.gpt.settings import Settings, described, identity_of, mismatch, read_settings
from workloads.gpt.source import Source, make_source
from workloads.group import GroupFailure, Place, agree, joined, place_from_environment
from workloads.loop import NotFinite, Recipe, global_step, whole_loss
from workloads.sampler import GlobalBatches, Order, Position, after

SAY_EVERY_STEPS = 6
WARM_UP_STEPS, FULL_RATE_STEPS = 20, 50
SETTLING_STEPS = 3  # allocator, compiler and caches make the first steps slow; they are left out of the step time


@dataclass(slots=True)
class Run:
    """What a training consists of; `step_s` grows by one entry a step."""

    settings: Settings
    place: Place
    source: Source
    order: Order
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR
    step_s: list[float] = field(default_factory=list)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are published."""
        return self.settings.out / "checkpoints"


def main() -> int:
    """Train; returns the exit code."""
    settings = read_settings()
    try:
        place = place_from_environment(settings.device)
        with joined(place, settings.timeout_s), parallel.group_of_one(place, settings.parallel):
            train(settings, place)
    except (GroupFailure, NotFinite, ValueError) as error:
        print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def train(settings: Settings, place: Place) -> None:
    """Everything between the joined group and the written metrics."""
    prepare_device(settings, place)
    run = make_run(settings, place)
    say(place, f"{parameter_count(run.model)} parameters; no loss can stay below the tokens' entropy of {run.source.entropy_nats:.6f} nats")
    position, own = start(run)
    seed(run, position, own)
    loss = take_steps(run, position)
    weights = parallel.whole_model_state(run.model)
    final = {"weights": weights, "settings": described(settings)}
    checkpoint.save(settings.out / "final", settings.steps, final, None, identity=identity_of(settings), keep=1)
    if place.leads:
        write_metrics(run, loss)


def prepare_device(settings: Settings, place: Place) -> None:
    """Sums in a fixed order on CUDA unless told otherwise: a resumed run could not be bit-identical without."""
    if place.device.type == "cuda" and not settings.any_order:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def make_run(settings: Settings, place: Place) -> Run:
    """Source, order, model and optimizer at step 0; every rank draws the same initial weights."""
    torch.manual_seed(settings.seed)
    with place.device:
        model = GPT(shape_of(settings.size, settings.vocabulary))
    if settings.compile:
        for block in model.blocks:
            block.compile()
    spread = parallel.spread(model, settings.parallel, place, bf16=settings.bf16)
    optimizer = torch.optim.AdamW(spread.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    order = Order(settings.sequences, settings.global_batch, settings.seed)
    source = make_source(settings.vocabulary, settings.source_seed)
    return Run(settings, place, source, order, spread, optimizer, LambdaLR(optimizer, rate_factor))


def rate_factor(done: int) -> float:
    """Warm-up, full rate, then falling with the square root of the step: it does not depend on how many steps are still to come."""
    return min(1.0, (done + 1) / WARM_UP_STEPS, float((FULL_RATE_STEPS / (done + 1)) ** 0.5))


def start(run: Run) -> tuple[Position, Any]:
    """Restore, if asked and possible: the position to go on from, and this rank's random state if it had one.

    Raises GroupFailure on every rank where the checkpoints belong to another run.
    """
    if not run.settings.resume:
        there = checkpoint.has_checkpoints(run.checkpoints)
        agree(f"{run.checkpoints} already holds checkpoints: add --resume to continue that run, or give another --out" if there else None)
        return Position(), None
    found = checkpoint.restore(run.checkpoints, lambda line: say(run.place, line))
    if found is None:
        return Position(), None
    agree(mismatch(found.identity, identity_of(run.settings)))
    parallel.load_whole_model_state(run.model, found.shared["model"])
    parallel.load_whole_optimizer_state(run.optimizer, found.shared["optimizer"])
    run.scheduler.load_state_dict(found.shared["training"]["scheduler"])
    return Position(**found.shared["training"]["position"]), found.own


def seed(run: Run, position: Position, own: Any) -> None:
    """The random generators, last of all, so that nothing done to get here shifts them."""
    if own is not None:
        checkpoint.set_random_state(own, run.place.device)
    else:
        checkpoint.seed_rank(run.settings.seed, run.place.rank, position.step)


def take_steps(run: Run, position: Position) -> float | None:
    """All remaining steps; returns the loss of the last global batch in nats per token, None if no step was left."""
    settings, place = run.settings, run.place
    tokens = data.training_tokens(run.source, settings.sequences, settings.sequence, settings.source_seed)
    batches = GlobalBatches(run.order, position, settings.steps, place.rank, place.world_size)
    recipe, loss, began = Recipe(settings.accumulate), None, time.perf_counter()
    run.model.train()
    for batch in data.loader(tokens, batches, settings.workers, settings.seed):
        on_device = [tensor.to(place.device, non_blocking=True) for tensor in batch]
        part = global_step(run.model, on_device, loss_of(run), run.optimizer, run.scheduler, recipe, place.world_size)
        position = after(position, run.order)
        now = time.perf_counter()
        run.step_s.append(now - began)
        if position.step % SAY_EVERY_STEPS == 0 or position.step == settings.steps:
            loss = whole_loss(part, place)
            say(place, f"step {position.step}/{settings.steps} epoch {position.epoch} loss {loss:.6f} {run.step_s[-1] * 1e3:.0f} ms")
        if settings.checkpoint_every and position.step % settings.checkpoint_every == 0:
            save(run, position)
        began = time.perf_counter()
    return loss


def loss_of(run: Run) -> Any:
    """(model, tensors of a Batch) -> share-weighted sum over its rows of the mean nats per token."""

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        inputs, targets, share = batch
        with parallel.numerics(model, bf16=run.settings.bf16):
            logits = model(inputs)
        return (token_losses(logits, targets).mean(dim=1) * share).sum()

    return loss


def save(run: Run, position: Position) -> None:
    """A checkpoint of all the next step depends on, whole at any world size. There is no gradient scaler: bfloat16 needs none."""
    shared = {
        "model": parallel.whole_model_state(run.model),
        "optimizer": parallel.whole_optimizer_state(run.optimizer),
        "training": {"scheduler": run.scheduler.state_dict(), "position": asdict(position)},
    }
    own, identity = checkpoint.random_state(run.place.device), identity_of(run.settings)
    checkpoint.save(run.checkpoints, position.step, shared, own, identity=identity, keep=run.settings.keep)


def write_metrics(run: Run, loss: float | None) -> None:
    """metrics.json: the last loss beside its floor, step time, throughput and peak memory of this rank; null where not measured."""
    settings, timed = run.settings, run.step_s[SETTLING_STEPS:]
    step_s = statistics.median(timed) if timed else None
    on_cuda = run.place.device.type == "cuda"
    content = {
        "entropy_nats": run.source.entropy_nats,
        "identity": identity_of(settings),
        "last_loss_nats": loss,
        "parameters": parameter_count(run.model),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(run.place.device) if on_cuda else None,
        "settings": described(settings),
        "step_ms": step_s * 1e3 if step_s else None,
        "tokens_per_s": settings.global_batch * settings.sequence / step_s if step_s else None,
        "world_size": run.place.world_size,
    }
    unfinished = settings.out / f"metrics.json.tmp-{os.getpid()}"
    unfinished.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    os.replace(unfinished, settings.out / "metrics.json")


def say(place: Place, line: str) -> None:
    """Print on the leading rank, at once."""
    if place.leads:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
