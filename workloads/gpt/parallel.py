"""One model on many ranks: DDP or FSDP2, and the whole (unsharded) state that a checkpoint holds at any world size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from workloads.gpt.model import GPT
from workloads.group import Place
from workloads.loop import replicated

PARALLEL = ("ddp", "fsdp2")


@contextlib.contextmanager
def group_of_one(place: Place, parallel: str) -> Iterator[None]:
    """FSDP2 needs a process group on a single rank too, so that one rank computes by the same rules as many; elsewhere this does nothing."""
    if place.world_size > 1 or parallel != "fsdp2":
        yield
        return
    backend = "nccl" if place.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        dist.destroy_process_group()


def spread(model: GPT, parallel: str, place: Place, *, bf16: bool) -> nn.Module:
    """The model as all ranks train it. Every rank must pass the same weights.

    FSDP2 shards block by block; in bfloat16 it gathers half as many bytes, keeps activations between blocks in bfloat16 too (autocast does
    not), and still reduces gradients in the weights' dtype. It reduces after every micro-batch: keeping whole gradients until the last one
    would undo what sharding saves.
    """
    if parallel == "ddp":
        return replicated(model, place)
    mesh = init_device_mesh(place.device.type, (place.world_size,))
    wide = torch.get_default_dtype()
    inner = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=wide) if bf16 else MixedPrecisionPolicy()
    outer = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=wide, output_dtype=wide) if bf16 else inner
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=inner)
    fully_shard(model, mesh=mesh, mp_policy=outer)
    return model


def numerics(model: nn.Module, *, bf16: bool) -> contextlib.AbstractContextManager[Any]:
    """Where the forward pass runs: under bfloat16 autocast if asked, unless FSDP2 casts by its own policy."""
    if not bf16 or isinstance(model, FSDPModule):
        return contextlib.nullcontext()
    return torch.autocast(next(model.parameters()).device.type, torch.bfloat16)


def whole_model_state(model: nn.Module) -> dict[str, Tensor]:
    """Unsharded weights on the CPU under the bare model's names; every rank must call it, since sharded weights are gathered."""
    return {name: whole(value) for name, value in bare(model).state_dict().items()}


def load_whole_model_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Put unsharded weights into the model, each rank keeping its own shard; KeyError or RuntimeError if they are another model's."""
    own = bare(model).state_dict()
    bare(model).load_state_dict({name: sharded_like(value, own[name]) for name, value in state.items()})


def whole_optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Unsharded optimizer state on the CPU, in torch's own layout; every rank must call it."""
    saved = optimizer.state_dict()
    states = {number: {key: whole(value) for key, value in state.items()} for number, state in saved["state"].items()}
    return {"state": states, "param_groups": saved["param_groups"]}


def load_whole_optimizer_state(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Put unsharded optimizer state back. The helpers of torch.distributed.checkpoint take a step with a zero rate for this;
    an optimizer that loads a checkpoint should not step."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    states = {}
    for number, state in saved["state"].items():
        like = weights[number]
        states[number] = {key: sharded_like(value, like) if same_shape(value, like) else value for key, value in state.items()}
    optimizer.load_state_dict({"state": states, "param_groups": saved["param_groups"]})


def bare(model: nn.Module) -> nn.Module:
    """The model without DDP around it."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def whole(value: Any) -> Any:
    """A tensor gathered from its shards and copied to the CPU; anything else as it is."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def sharded_like(value: Tensor, like: Tensor) -> Tensor:
    """This rank's shard of a whole tensor, placed as `like` is. All ranks read the same file, so nothing is sent."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def same_shape(value: Any, like: Tensor) -> bool:
    """Whether a piece of optimizer state belongs to each element of the weight, as moments do and step counts do not."""
    return isinstance(value, Tensor) and value.shape == like.shape
