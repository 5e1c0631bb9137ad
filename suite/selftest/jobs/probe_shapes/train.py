"""Further training loops, one per --kind: how batches arrive, how steps are made of them, and by which kind of optimizer. Every loop prints its losses."""

import argparse
import os
import random
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

FEATURES, BATCH, MICRO_BATCHES = 6, 8, 2


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples by index."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(FEATURES, generator=torch.Generator().manual_seed(index))
        return inputs, inputs.sum(0, keepdim=True)


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The same samples without an index, each for one worker of one rank."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker, rows = get_worker_info(), Rows()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        for index in range(dist.get_rank() * workers + number if dist.is_initialized() else number, len(rows), world_size() * workers):
            yield rows[index]


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))


def fetched(steps: int, **options: object) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of a DataLoader over several epochs."""
    data = Rows()
    sampler = DistributedSampler(data) if dist.is_initialized() else None
    loader = DataLoader(data, batch_size=BATCH // world_size(), sampler=sampler, **options)  # type: ignore[arg-type]
    made = 0
    while True:
        for batch in loader:
            made += 1
            yield batch
            if made == steps:
                return


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for inputs, targets in batches:
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def ddp() -> nn.Module:
    return nn.parallel.DistributedDataParallel(net())


def plain(steps: int) -> None:
    """One process, no process group: batches and shuffling by hand."""
    model, rows, order = net(), Rows(), list(range(64))
    random.Random(1).shuffle(order)
    parts = [order[begin : begin + BATCH] for begin in range(0, BATCH * steps, BATCH)]
    train(model, sgd(model), ((torch.stack([rows[one][0] for one in part]), torch.stack([rows[one][1] for one in part])) for part in parts))


def no_sync(steps: int) -> None:
    _accumulated(steps, by_flag=False)


def sync_flag(steps: int) -> None:
    _accumulated(steps, by_flag=True)


def _accumulated(steps: int, *, by_flag: bool) -> None:
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = sgd(model)
    for number, (inputs, targets) in enumerate(fetched(steps * MICRO_BATCHES), 1):
        last = number % MICRO_BATCHES == 0
        if by_flag:
            model.require_backward_grad_sync = last
            loss = functional.mse_loss(model(inputs), targets) / MICRO_BATCHES
            loss.backward()
        elif last:
            loss = functional.mse_loss(model(inputs), targets) / MICRO_BATCHES
            loss.backward()
        else:
            with model.no_sync():
                loss = functional.mse_loss(model(inputs), targets) / MICRO_BATCHES
                loss.backward()
        print("loss", loss.item().hex())
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()


def fused(steps: int) -> None:
    model = ddp()
    train(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True), fetched(steps))


def foreach(steps: int) -> None:
    model = ddp()
    train(model, torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True), fetched(steps))


def workers_fork(steps: int) -> None:
    model = ddp()
    train(model, sgd(model), fetched(steps, num_workers=2, multiprocessing_context="fork"))


def workers_spawn(steps: int) -> None:
    model = ddp()
    train(model, sgd(model), fetched(steps, num_workers=1, multiprocessing_context="spawn"))


def workers_persistent(steps: int) -> None:
    """Long enough for a second epoch by the same workers."""
    model = ddp()
    train(model, sgd(model), fetched(max(steps, 10), num_workers=2, persistent_workers=True, multiprocessing_context="fork"))


def iterable_workers(steps: int) -> None:
    model, loader = ddp(), DataLoader(Stream(), batch_size=BATCH // world_size(), num_workers=2, multiprocessing_context="fork")
    train(model, sgd(model), (batch for _, batch in zip(range(steps), loader, strict=False)))


def compiled_step(steps: int) -> None:
    """The optimizer's step is compiled, so that no hook of it is called by Python."""
    model = ddp()
    optimizer = sgd(model)
    step = torch.compile(optimizer.step, backend="eager")
    for inputs, targets in fetched(steps):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        step()
        print("loss", loss.item().hex())


KINDS: dict[str, Callable[[int], None]] = {
    loop.__name__: loop
    for loop in (
        plain,
        no_sync,
        sync_flag,
        fused,
        foreach,
        workers_fork,
        workers_spawn,
        workers_persistent,
        iterable_workers,
        compiled_step,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    together = given.kind != "plain" and "RANK" in os.environ
    if together:
        dist.init_process_group("gloo")
    KINDS[given.kind](given.steps)
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
