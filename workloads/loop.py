"""One optimizer step on one global batch, the same step at every world size and every number of micro-batches.

Each sample carries its share of the global batch (its weight over the weight of all samples of the step, on all ranks). Shares of a step
sum to 1, so the sum over a micro-batch of share x loss, added up over micro-batches and ranks, is the one-device weighted mean, also
where slices are uneven or empty. DistributedDataParallel divides by the number of ranks; the loss is multiplied by it to undo that.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from workloads.group import Place

LossOf = Callable[[nn.Module, Sequence[torch.Tensor]], torch.Tensor]
"""(model, tensors of a micro-batch [rows, ...]) -> share-weighted sum of the losses of its rows, a scalar."""

BUCKET_MB = 8
"""Smaller than 8 MB the latency of more all-reduces costs more than their overlap with the backward pass saves on these sizes."""


class NotFinite(RuntimeError):
    """Loss or gradient is NaN or infinite; the message names the step. Nothing was applied to the parameters."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a step is done: micro-batches per step, and the gradient norm that is clipped to."""

    accumulate: int = 1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.accumulate < 1 or self.clip_norm <= 0:
            raise ValueError(f"accumulate={self.accumulate} must be at least 1 and clip_norm={self.clip_norm} positive")


def replicated(model: nn.Module, place: Place) -> nn.Module:
    """The model with its gradients averaged over ranks, or the model itself in a world of one.

    find_unused_parameters is on although every parameter is used: it keeps the buckets as they are at construction. Otherwise DDP lays
    them out anew after its first step, sums of three or more ranks are then added in another order, and a resumed run, whose first step is
    a later one, would differ in the last bit from the uninterrupted run.
    """
    if place.world_size == 1:
        return model
    devices = [place.device.index] if place.device.type == "cuda" else None
    return DistributedDataParallel(
        model, device_ids=devices, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True, find_unused_parameters=True
    )


def gradients(model: nn.Module, batch: Sequence[torch.Tensor], loss_of: LossOf, *, accumulate: int, world_size: int) -> float:
    """Leave the gradient of the global batch in `.grad` on every rank; returns this rank's part of the loss.

    `batch` holds this rank's rows. Only the last micro-batch's backward pass communicates.
    """
    micro_batches = list(zip(*(tensor.tensor_split(accumulate) for tensor in batch), strict=True))
    total = 0.0
    for index, micro_batch in enumerate(micro_batches):
        is_last = index == len(micro_batches) - 1
        local = model.no_sync() if isinstance(model, DistributedDataParallel) and not is_last else contextlib.nullcontext()
        with local:
            loss = loss_of(model, micro_batch) * world_size
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item() / world_size
    return total


def global_step(
    model: nn.Module,
    batch: Sequence[torch.Tensor],
    loss_of: LossOf,
    optimizer: torch.optim.Optimizer,
    scheduler: LambdaLR,
    recipe: Recipe,
    world_size: int,
) -> float:
    """Gradient, clipping, optimizer and schedule; returns this rank's part of the loss.

    Raises NotFinite on every rank, before anything is applied: the reduced gradient is the same everywhere.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = gradients(model, batch, loss_of, accumulate=recipe.accumulate, world_size=world_size)
    norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    if not torch.isfinite(norm):
        raise NotFinite(
            f"step {scheduler.last_epoch + 1}: the gradient norm is {norm.item()}, nothing was applied; look at the samples of this step"
        )
    optimizer.step()
    scheduler.step()
    return loss


def warm_up_and_cosine(warm_up_steps: int, total_steps: int) -> Callable[[int], float]:
    """Factor of the learning rate by global step: linear to 1 over the warm-up, then half a cosine down to 0.05 at the end."""

    def factor(step: int) -> float:
        if step < warm_up_steps:
            return (step + 1) / warm_up_steps
        progress = min(1.0, (step - warm_up_steps) / max(1, total_steps - warm_up_steps))
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))

    return factor


def whole_loss(part: float, place: Place) -> float:
    """The loss of the global batch from each rank's part. A collective: every rank calls it, or none."""
    if place.world_size == 1:
        return part
    total = torch.tensor(part, dtype=torch.float64, device=place.device)
    torch.distributed.all_reduce(total)
    return float(total)
