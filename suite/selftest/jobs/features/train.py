"""A small classifier that has what other jobs lack: dropout, batch statistics, loader workers, augmentation, accumulation, bf16, a scaler, an evaluation."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SAMPLES, HELD_OUT, FEATURES, CLASSES = 96, 24, 12, 3


class Points(Dataset):
    """Points around the centre of their class; with noise, a little elsewhere each time."""

    def __init__(self, count: int, noise: float, begin: int = 0) -> None:
        drawn = torch.Generator().manual_seed(begin + 5)
        self.noise = noise
        self.labels = torch.randint(0, CLASSES, (count,), generator=drawn)
        self.points = torch.eye(CLASSES, FEATURES)[self.labels] * 2 + torch.randn(count, FEATURES, generator=drawn)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        moved = self.points[index] + (self.noise * torch.randn(FEATURES) if self.noise else 0.0)
        return moved.to(torch.get_default_dtype()), self.labels[index]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("batch", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("dropout", "noise", "learning_rate"):
        parser.add_argument(f"--{name}", type=float, default=0.05 if name == "learning_rate" else 0.0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--norm", choices=("none", "batch", "sync"), default="none")
    parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp")
    for flag in ("bf16", "scaler", "evaluate", "pads", "own-statistics", "unused"):
        parser.add_argument(f"--{flag}", action="store_true")
    return parser.parse_args()


def net(given: argparse.Namespace) -> nn.Module:
    layers = [nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES)]
    if given.norm != "none":
        layers.insert(1, nn.BatchNorm1d(16) if given.norm == "batch" else Synchronised(16))
    if given.dropout:
        layers.insert(-1, nn.Dropout(given.dropout))
    model = nn.Sequential(*layers)
    if given.unused:
        model.spare = nn.Linear(2, 2)
        model.forward = lambda inputs: [inputs := layer(inputs) for layer in layers][-1]
    return model


class Synchronised(nn.BatchNorm1d):
    """Batch statistics over all ranks, on gloo: torch's SyncBatchNorm needs a GPU."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(inputs)
        from torch.distributed.nn.functional import all_reduce

        count = inputs.shape[0] * dist.get_world_size()
        mean = all_reduce(inputs.sum(0)) / count
        variance = all_reduce((inputs - mean).square().sum(0)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(variance.detach() * count / (count - 1), self.momentum)
        return (inputs - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


def spread(model: nn.Module, given: argparse.Namespace) -> nn.Module:
    if given.parallel == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return DistributedDataParallel(model, broadcast_buffers=not given.own_statistics, find_unused_parameters=given.unused)


def evaluate(model: nn.Module, pads: bool) -> float:
    """The share of held-out rows that are classified rightly, each counted once; with `pads`, over what a padding sampler hands out."""
    data, rank, ranks = Points(HELD_OUT - 1, 0.0, begin=1), dist.get_rank(), dist.get_world_size()
    sampler = DistributedSampler(data, ranks, rank, shuffle=False) if pads else range(rank, len(data), ranks)
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    sums = torch.zeros(2, dtype=torch.float64)
    inner.eval()
    with torch.no_grad():
        for inputs, labels in DataLoader(data, batch_size=4, sampler=sampler):
            losses = nn.functional.cross_entropy(inner(inputs), labels, reduction="none")
            sums += torch.stack([losses.double().sum(), torch.tensor(float(len(labels)), dtype=torch.float64)])
    inner.train()
    dist.all_reduce(sums)
    return float(sums[0] / sums[1])


def main() -> None:
    given = arguments()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(given.seed)
    model = spread(net(given), given)
    optimizer = torch.optim.SGD(model.parameters(), lr=given.learning_rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 20))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=given.scaler)
    data = Points(SAMPLES, given.noise)
    sampler = DistributedSampler(data, ranks, rank, seed=given.seed)
    loader = DataLoader(data, batch_size=given.batch, sampler=sampler, num_workers=given.workers)
    torch.manual_seed(given.seed + 1000 * (rank + 1))
    step = epoch = 0
    while step < given.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for inputs, labels in loader:
            rows = len(labels)
            optimizer.zero_grad()
            pieces = list(zip(inputs.tensor_split(given.accumulate), labels.tensor_split(given.accumulate), strict=True))
            for number, (some, their) in enumerate(pieces, 1):
                quiet = isinstance(model, DistributedDataParallel) and number < len(pieces)
                with model.no_sync() if quiet else contextlib.nullcontext():
                    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=given.bf16):
                        logits = model(some)
                    loss = nn.functional.cross_entropy(logits.to(torch.get_default_dtype()), their, reduction="sum") / rows
                    scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            step += 1
            if given.evaluate and step % 6 == 0:
                value = evaluate(model, given.pads)
                if rank == 0:
                    print(f"step {step} val_loss {value:.6f}", flush=True)
            if step == given.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
