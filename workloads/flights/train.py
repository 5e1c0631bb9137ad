"""Train the flights model: `train.py --events E --out O --global-batch 256 --steps 24 --seed 0 [--checkpoint-every 6] [--resume]`.

Runs as a plain process or as ranks of torchrun; the global batch is the same at every world size. It reads only what was available at the
training cutoff. In --out it leaves checkpoints/, model.pt and metrics.json. Exit code 2 with one sentence: the input or the
checkpoints cannot be used. A restart with --resume continues bit for bit; with nothing to resume it starts and says so. Asked to end (SIGTERM) a run that saves
checkpoints saves one more and ends with exit code 0.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from workloads import checkpoint
from workloads.flights import artifact, data, optimize
from workloads.flights.model import FlightModel, Shape
from workloads.flights.schema import MalformedInput
from workloads.group import GroupFailure, Place, agree, joined, place_from_environment
from workloads.loop import NotFinite, Recipe, global_step, replicated, whole_loss
from workloads.preempt import StopRequest, group_store
from workloads.sampler import GlobalBatches, Order, Position, after, own_generator

SAY_EVERY_STEPS = 6


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=Path, required=True, help="events file (Parquet or CSV), see prepare.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, model.pt and metrics.json")
    parser.add_argument("--global-batch", type=int, default=256, help="samples per optimizer step, over all ranks")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="train on this share of the samples, the same ones in every file")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step on each rank")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints, 0 for none")
    parser.add_argument("--keep", type=int, default=2, help="whole checkpoints that are kept")
    parser.add_argument("--resume", action="store_true", help="continue from the newest whole checkpoint")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=0, help="processes that load batches ahead on each rank")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="longest wait of a collective")
    return parser.parse_args()


def main() -> int:
    """Train; returns the exit code."""
    options = arguments()
    try:
        place = place_from_environment(options.device)
        with joined(place, options.timeout_s):
            train(options, place)
    except (GroupFailure, NotFinite, ValueError) as error:
        print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def say(place: Place, line: str) -> None:
    """Print on the leading rank, at once."""
    if place.leads:
        print(line, flush=True)


def load(options: argparse.Namespace, place: Place) -> data.TrainingData:
    """The training data, or the same stop on every rank before the first step."""
    if not 0 < options.share <= 1:
        raise ValueError(f"--share {options.share} must be more than 0 and at most 1")
    error, loaded = None, None
    try:
        loaded = data.load_training(options.events, options.share)
    except MalformedInput as stop:
        error = str(stop)
    agree(error)
    assert loaded is not None
    for line in loaded.report:
        say(place, line)
    return loaded


def train(options: argparse.Namespace, place: Place) -> None:
    """Everything between the joined group and the written metrics."""
    loaded = load(options, place)
    order = Order(len(loaded.samples), options.global_batch, options.seed)
    identity = {"data": loaded.sha256, "code": artifact.code_digest(), "order": str(order), "steps": str(options.steps)}
    torch.manual_seed(options.seed)
    if place.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    model = FlightModel(Shape(dropout=options.dropout)).to(place.device)
    optimizer, scheduler = optimize.adamw(model, options.learning_rate, options.steps)
    run = Run(options, place, identity, model, optimizer, scheduler, order)
    position = run.start()
    loss = run.steps(position, loaded)
    if place.leads and not run.stopped:
        artifact.write_model(options.out / "model.pt", model, Shape(dropout=options.dropout), identity)
        artifact.write_metrics(options.out / "metrics.json", model, identity, options.steps, loss, place.world_size, len(loaded.samples))


class Run:
    """The state of one training: what a checkpoint holds and how a step changes it."""

    def __init__(
        self, options: argparse.Namespace, place: Place, identity: dict[str, str], model: FlightModel, optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LambdaLR, order: Order,
    ) -> None:  # fmt: skip
        self.options, self.place, self.identity = options, place, identity
        self.model, self.optimizer, self.scheduler, self.order = model, optimizer, scheduler, order
        self.own: dict[str, object] | None = None
        self.stopped = False
        self.directory: Path = options.out / "checkpoints"

    def start(self) -> Position:
        """Restore, if asked and possible; returns the position to go on from.

        Raises GroupFailure where the checkpoints belong to another run.
        """
        if not self.options.resume:
            there = checkpoint.has_checkpoints(self.directory)
            agree(
                f"{self.directory} already holds checkpoints: add --resume to continue that run, or give another --out" if there else None
            )
            return Position()
        found = checkpoint.restore(self.directory, lambda line: say(self.place, line))
        if found is None:
            return Position()
        agree(artifact.mismatch(found.identity, self.identity))
        if found.identity["code"] != self.identity["code"]:
            say(self.place, "the code has changed since this checkpoint was saved")
        if found.identity["steps"] != self.identity["steps"]:
            say(
                self.place,
                f"the schedule was for {found.identity['steps']} steps and is now for {self.identity['steps']}: the learning rate takes another course",
            )
        self.model.load_state_dict(found.shared["model"])
        self.optimizer.load_state_dict(found.shared["optimizer"])
        self.scheduler.load_state_dict(found.shared["training"]["scheduler"])
        self.own = found.own
        return Position(**found.shared["training"]["position"])

    def seed(self, position: Position) -> None:
        """The random generators, last of all, so that nothing done to get here shifts them."""
        if self.own is not None:
            checkpoint.set_random_state(self.own, self.place.device)
        else:
            checkpoint.seed_rank(self.options.seed, self.place.rank, position.step)

    def save(self, position: Position) -> None:
        """A checkpoint of everything that the next step depends on. There is no gradient scaler: the job computes in one precision."""
        training = {
            "scheduler": self.scheduler.state_dict(),
            "position": {"step": position.step, "epoch": position.epoch, "consumed": position.consumed},
        }
        shared = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "training": training}
        own = checkpoint.random_state(self.place.device)
        checkpoint.save(self.directory, position.step, shared, own, identity=self.identity, keep=self.options.keep)

    def steps(self, position: Position, loaded: data.TrainingData) -> float | None:
        """All remaining steps, or as many as there is time for; returns the loss of the last global batch, None if no step was left."""
        options, place, stop = self.options, self.place, StopRequest(group_store())
        if options.checkpoint_every:
            stop.listen()
        recipe, model = Recipe(options.accumulate), replicated(self.model, place)
        batches = GlobalBatches(self.order, position, options.steps, place.rank, place.world_size)
        loader = data.loader(loaded, batches, options.workers, own_generator(options.seed))
        model.train()
        iterator, loss, began = iter(loader), None, time.monotonic()
        self.seed(position)
        for batch in iterator:
            on_device = [tensor.to(place.device, non_blocking=True) for tensor in batch]
            part = global_step(model, on_device, data.loss_of, self.optimizer, self.scheduler, recipe, place.world_size)
            position = after(position, self.order)
            if position.step % SAY_EVERY_STEPS == 0 or position.step == options.steps:
                loss = whole_loss(part, place)
                say(place, f"step {position.step}/{options.steps} epoch {position.epoch} loss {loss:.6f} {time.monotonic() - began:.1f} s")
            self.stopped = position.step < options.steps and stop.after(position.step)  # after the last step a peer may be gone
            if options.checkpoint_every and (self.stopped or position.step % options.checkpoint_every == 0):
                self.save(position)
            if self.stopped:
                say(place, f"asked to end: saved step {position.step}, start again with --resume")
                break
        return loss


if __name__ == "__main__":
    sys.exit(main())
