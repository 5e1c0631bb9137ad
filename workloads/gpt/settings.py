"""What a training run of this job is told: its options, checked once, and the identity that a checkpoint keeps of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from workloads.gpt.model import SIZES
from workloads.gpt.parallel import PARALLEL


@dataclass(frozen=True, slots=True)
class Settings:
    """One training run, as `train.py --help` explains it."""

    out: Path
    size: str
    vocabulary: int
    sequences: int
    sequence: int
    source_seed: int
    global_batch: int
    accumulate: int
    steps: int
    checkpoint_every: int
    keep: int
    learning_rate: float
    seed: int
    parallel: str
    bf16: bool
    compile: bool
    any_order: bool
    resume: bool
    device: str
    workers: int
    timeout_s: float


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Options to settings; exits with code 2 and a sentence that names option, value and fix."""
    parser = argparse.ArgumentParser(description="Train a decoder-only model on tokens of known entropy.")
    add_options(parser)
    settings = Settings(**vars(parser.parse_args(arguments)))
    if settings.learning_rate <= 0:
        parser.error(f"--learning-rate {settings.learning_rate} must be positive: give, for example, 3e-3")
    if settings.workers < 0:
        parser.error(f"--workers {settings.workers} must not be negative: give 0 to load in the training process")
    return settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option of the job, with its default."""
    option, whole = parser.add_argument, positive_whole
    option("--out", type=Path, required=True, help="folder for checkpoints/, final/ and metrics.json")
    option("--size", choices=tuple(SIZES), default="1m", help="about how many parameters")
    option("--vocabulary", type=whole, default=64, help="number of different tokens")
    option("--sequences", type=whole, default=16_384, help="training sequences in an epoch")
    option("--sequence", type=whole, default=16, help="predicted tokens in a sequence")
    option("--source-seed", type=int, default=0, help="which source, and which sequences of it")
    option("--global-batch", type=whole, default=16, help="sequences per optimizer step, over all ranks and micro-batches")
    option("--accumulate", type=whole, default=1, help="micro-batches per step on each rank")
    option("--steps", type=whole, default=24, help="optimizer steps, counted from the start of training")
    option("--checkpoint-every", type=int, default=0, help="steps between checkpoints, 0 for none")
    option("--keep", type=whole, default=2, help="whole checkpoints that are kept")
    option("--learning-rate", type=float, default=3e-3, help="rate between warm-up and decay")
    option("--seed", type=int, default=0, help="initial weights and order of the sequences")
    option("--parallel", choices=PARALLEL, default="ddp", help="replicate the model or shard it")
    option("--bf16", action="store_true", help="forward and backward pass in bfloat16, weights and their updates in the default dtype")
    option("--compile", action="store_true", help="compile each block")
    option(
        "--any-order", action="store_true", help="on CUDA, let faster kernels add in any order: a resumed run may differ in the last bits"
    )
    option("--resume", action="store_true", help="continue from the newest whole checkpoint, if there is one")
    option("--device", choices=("auto", "cpu", "cuda"), default="auto")
    option("--workers", type=int, default=0, help="processes that load batches ahead on each rank")
    option("--timeout-s", type=float, default=300.0, help="longest wait of a collective")


def identity_of(settings: Settings) -> dict[str, str]:
    """What must be the same for a checkpoint to be continued. World size, layout, micro-batches and the number of steps may change."""
    groups = {
        "model": ("size", "vocabulary"),
        "data": ("source_seed", "vocabulary", "sequences", "sequence"),
        "order": ("seed", "sequences", "global_batch"),
        "numerics": ("bf16", "learning_rate"),
    }
    return {group: " ".join(f"{name}={getattr(settings, name)}" for name in names) for group, names in groups.items()}


def mismatch(saved: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why a checkpoint cannot be continued by this run, as a sentence; None if it can."""
    for group, value in now.items():
        if saved.get(group) != value:
            return f"the checkpoint has {group} {saved.get(group)}, this run {value}: give the options it was saved with, or another --out"
    return None


def described(settings: Settings) -> dict[str, str | int | float | bool]:
    """All settings but where they are written, in types that JSON and a checkpoint hold."""
    return {field.name: getattr(settings, field.name) for field in fields(Settings) if field.name not in ("out", "resume")}


def positive_whole(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} must be at least 1")
    return value
