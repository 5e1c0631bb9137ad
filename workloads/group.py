"""The ranks of a run as one group: who this rank is, and how ranks fail together instead of waiting for each other.

Without rank variables in the environment, or with a world of one, there is no process group and every call here is local.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


class GroupFailure(RuntimeError):
    """A rank could not go on, so none does; the message names the first rank that failed and what it said."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands: its rank of `world_size`, and the device it computes on."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """True on the one rank that prints and publishes."""
        return self.rank == 0


def place_from_environment(device: str) -> Place:
    """The place that torchrun's variables give; a plain process is rank 0 of 1. `device` is auto, cpu or cuda.

    Raises GroupFailure when cuda is asked for and there is no device for this rank.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    n_devices = torch.cuda.device_count()
    if device == "cuda" and local_rank >= n_devices:
        raise GroupFailure(
            f"--device cuda needs a GPU for local rank {local_rank}, found {n_devices}: start fewer ranks or use --device cpu"
        )
    uses_cuda = device == "cuda" or (device == "auto" and local_rank < n_devices)
    chosen = torch.device("cuda", local_rank) if uses_cuda else torch.device("cpu")
    return Place(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), chosen)


@contextlib.contextmanager
def joined(place: Place, timeout_s: float) -> Iterator[None]:
    """The process group, for the time of the block: gloo on CPU, nccl on CUDA. No collective waits longer than `timeout_s`."""
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    if place.world_size == 1:
        yield
        return
    backend = "nccl" if place.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    try:
        yield
    finally:
        dist.destroy_process_group()


def gather(value: T) -> list[T]:
    """The value of every rank, in order of rank, on every rank. Values must pickle."""
    if not dist.is_initialized():
        return [value]
    values: list[T] = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def agree(error: str | None) -> None:
    """Raise GroupFailure on every rank if any rank brings an error; the ranks that are well learn whose it was."""
    stop_on(gather(error))


def stop_on(errors: Sequence[str | None]) -> None:
    """Raise GroupFailure if there is an error among those of the ranks (in order of rank), for those who gathered them with something else."""
    failed = [rank for rank, said in enumerate(errors) if said is not None]
    if failed:
        own = dist.get_rank() if dist.is_initialized() else 0
        raise GroupFailure(str(errors[own]) if own in failed else f"rank {failed[0]} stopped: {errors[failed[0]]}")
