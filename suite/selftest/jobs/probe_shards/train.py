"""One small regression, its parameters laid out over the ranks in several ways, one per --kind. Every rank prints its losses."""

import argparse
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

GLOBAL_BATCH = 8
FEATURES = 6


def batches(steps: int, part: int, parts: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This part of each global batch: the same samples whatever the layout."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
        own = inputs.chunk(parts)[part]
        yield own, own.sum(1, keepdim=True)


def net() -> nn.Sequential:
    """Layers that divide by two and by four, and one row that does not."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))


def whole(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    return model, dist.get_rank(), dist.get_world_size()


def fsdp(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    sharded(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, dist.get_rank(), dist.get_world_size()


def hsdp(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    """Replicated over the first dimension of the mesh, sharded over the second."""
    sharded(model, init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard")))
    return model, dist.get_rank(), dist.get_world_size()


def tensor(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    """Tensor parallel alone: all ranks see the same samples, and part of the parameters is replicated."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model, 0, 1


def both(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    """Tensor parallel by two, FSDP over what is left: strided shards."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    sharded(model, mesh["data"])
    return model, mesh.get_local_rank("data"), mesh["data"].size()


def bf16(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32))
    return model, dist.get_rank(), dist.get_world_size()


def evaluated_first(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    """The outermost module keeps its parameters gathered from an evaluation on, so the first step begins with them."""
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, dist.get_rank(), dist.get_world_size()


def state_asked(model: nn.Sequential) -> tuple[nn.Module, int, int]:
    """Its optimizer's state is asked for before the first step, as torch.distributed.checkpoint does to know what it loads."""
    return fsdp(model)


def sharded(model: nn.Sequential, mesh: dist.device_mesh.DeviceMesh) -> None:
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


KINDS: dict[str, Callable[[nn.Sequential], tuple[nn.Module, int, int]]] = {
    laid.__name__: laid for laid in (whole, fsdp, hsdp, tensor, both, bf16, evaluated_first, state_asked)
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    model, part, parts = KINDS[given.kind](net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if given.kind == "state_asked":
        get_optimizer_state_dict(model, optimizer)
    if given.kind == "evaluated_first":
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, FEATURES))
        model.train()
    for inputs, targets in batches(3, part, parts):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        print("loss", float(loss.detach()).hex())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
