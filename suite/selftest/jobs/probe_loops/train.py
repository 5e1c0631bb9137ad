"""Training loops of many shapes, one per --kind, each a few lines as its users would write it. Every loop prints its losses."""

import argparse
import os
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

GLOBAL_BATCH = 8
FEATURES = 6


def batches(steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's part of each global batch, made by hand: the same samples at any world size."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
        part = inputs.chunk(world_size)[rank]
        yield part, part.sum(1, keepdim=True)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))


def by_hand(steps: int) -> None:
    """No DDP: the gradients are reduced by hand, one all_reduce each."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs), targets)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        report(loss)
    total(model)


def ddp(steps: int) -> None:
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
    total(model)


def loss_inside(steps: int) -> None:
    """The module takes inputs and targets by keyword and returns the loss."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, *, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": functional.mse_loss(self.net(inputs), targets)}

    model = nn.parallel.DistributedDataParallel(Whole())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for inputs, targets in batches(steps):
        loss = model(inputs=inputs, targets=targets)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def loss_beside(steps: int) -> None:
    """The module returns its loss beside its output, in a wrapper that looks for unused parameters and so hands out copies of both.

    As after an evaluation, only the module inside is put back into training mode.
    """

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()
            self.spare = nn.Parameter(torch.zeros(2))

        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
            out = self.net(inputs)
            return {"loss": functional.mse_loss(out, targets), "out": out}

    model = nn.parallel.DistributedDataParallel(Whole(), find_unused_parameters=True)
    model.eval()
    model.module.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for inputs, targets in batches(steps):
        loss = model(inputs, targets)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def lbfgs(steps: int) -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for inputs, targets in batches(steps):

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        report(optimizer.step(closure))
    total(model)


def evaluated_first(steps: int) -> None:
    """A look at some rows before training, as a trainer's sanity check: no module of the job has been trained by then."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.cat([inputs for inputs, _ in batches(steps)]))
    with torch.no_grad():
        model.eval()
        for (inputs,) in DataLoader(data, GLOBAL_BATCH):
            model(inputs)
    model.train()
    for (inputs,) in DataLoader(data, GLOBAL_BATCH // dist.get_world_size()):
        loss = functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
    total(model)


def scaler(steps: int) -> None:
    """AMP with GradScaler; the second step overflows and is skipped."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number, (inputs, targets) in enumerate(batches(steps), 1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(inputs), targets) * (float("inf") if number == 2 else 1.0)
        optimizer.zero_grad()
        grad_scaler.scale(loss).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        report(loss)
    total(model)


def two_optimizers(steps: int) -> None:
    """Two optimizers over one backward: one step."""
    model = net()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[2].parameters(), lr=0.01)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        loss.backward()
        first.step()
        second.step()
        first.zero_grad()
        second.zero_grad()
        report(loss)
    total(model)


def two_modules(steps: int) -> None:
    """An encoder and a decoder called one after the other, and a loss module."""
    torch.manual_seed(0)
    encoder, decoder, criterion = nn.Linear(FEATURES, 4), nn.Linear(4, 1), nn.MSELoss()
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    for inputs, targets in batches(steps):
        loss = criterion(decoder(encoder(inputs)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def no_optimizer(steps: int) -> None:
    model = net()
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        report(loss)


def bare_tensors(steps: int) -> None:
    """No module at all."""
    weight = torch.zeros(FEATURES, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(inputs @ weight, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def zero(steps: int) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def fsdp(steps: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        report(loss)


def flattened(steps: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def explicit_float32(steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(FEATURES, 1, dtype=torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs.to(torch.float32)), targets.to(torch.float32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def sparse(steps: int) -> None:
    """An embedding with sparse gradients over integer inputs; evaluation in between; no_grad and eval forwards do not count."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(32, 4, sparse=True), nn.Flatten(), nn.Linear(4 * FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches(steps):
        words = (inputs.abs() * 10).long().clamp(0, 31)
        loss = functional.mse_loss(model(words), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
        model.eval()
        with torch.no_grad():
            model(words)
        model.train()


class Stream(IterableDataset):
    """An endless stream of dicts."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(9)
        while True:
            inputs = torch.randn(FEATURES, generator=generator)
            yield {"inputs": inputs, "targets": inputs.sum(0, keepdim=True)}


def stream(steps: int) -> None:
    """IterableDataset of dicts, two spawn workers' worth of trouble left out."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, batch in enumerate(DataLoader(Stream(), batch_size=4)):
        if number == steps:
            break
        loss = functional.mse_loss(model(batch["inputs"]), batch["targets"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def dropout(steps: int) -> None:
    """A DataLoader, dropout in every form, float32 from numpy."""
    torch.manual_seed(0)
    values = torch.randn(32, FEATURES, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(values, values.sum(1, keepdim=True))
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 8, dropout=0.5, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (1, FEATURES)), layer, nn.Flatten(), nn.Dropout(0.5), nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _, (inputs, targets) in zip(range(steps), DataLoader(data, batch_size=8), strict=False):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)
    total(model)


def compiled(steps: int) -> None:
    model = torch.compile(net(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def compiled_in_place(steps: int) -> None:
    model = net()
    model.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(loss)


def children(steps: int) -> None:
    """A rank that starts programs and forks: neither is the rank."""
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, __file__, "--kind", "by_hand", "--alone"], check=True, env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    )
    if os.fork() == 0:
        net()(torch.ones(1, FEATURES)).sum().backward()
        os._exit(0)
    os.wait()
    by_hand(steps)


def report(loss: torch.Tensor) -> None:
    print("loss", float(loss.detach()).hex())


def total(model: nn.Module) -> None:
    print("parameters", float(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).sum()).hex())
    print("draws", torch.rand(()).item().hex())


KINDS: dict[str, Callable[[int], None]] = {
    loop.__name__: loop
    for loop in (
        *(by_hand, ddp, loss_inside, loss_beside, lbfgs, scaler, two_optimizers, two_modules, no_optimizer, bare_tensors, zero, fsdp),
        *(evaluated_first, flattened, explicit_float32, sparse, stream, dropout, compiled, compiled_in_place, children),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    if given.alone:
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    else:
        dist.init_process_group("gloo")
    KINDS[given.kind](given.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
