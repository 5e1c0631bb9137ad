"""A plain DDP job: DataLoader, dropout, accumulation with no_sync, clipping, AdamW, schedule, torch.save with os.replace. Prints its losses."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--crash-at", type=int, default=0)
    parser.add_argument("--pickle-model", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.1)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 12, generator=generator), torch.randint(0, 3, (64,), generator=generator))
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(given.dropout), nn.Linear(32, 3))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=16 // world_size // given.accumulate, sampler=sampler, num_workers=given.workers)
    step = micro = 0
    epoch = 0
    latest = os.path.join(given.out, "checkpoints", "latest")
    if given.resume and os.path.exists(latest):
        with open(latest) as file:
            state = torch.load(os.path.join(given.out, "checkpoints", f"step{file.read()}.pt"), weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        step = state["step"]
    while step < given.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for inputs, targets in loader:
            micro += 1
            last = micro % given.accumulate == 0
            wrapped.require_backward_grad_sync = last
            loss = nn.functional.cross_entropy(wrapped(inputs), targets) / given.accumulate
            loss.backward()
            print(f"loss {step} {loss.item().hex()}")
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if given.crash_at == step:
                raise RuntimeError(f"planned crash in step {step}")
            if rank == 0 and step % 2 == 0:
                save(model, optimizer, schedule, step, given.out)
            if step == given.steps:
                break
    print("parameters", torch.cat([p.detach().reshape(-1) for p in model.parameters()]).sum().item().hex())
    print("draws", torch.rand(()).item().hex())
    if given.pickle_model and rank == 0:
        torch.save(wrapped.module, os.path.join(given.out, "model.pt"))
    dist.destroy_process_group()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LambdaLR, step: int, out: str) -> None:
    folder = os.path.join(out, "checkpoints")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step{step}.pt")
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    saved = {name: part.state_dict() for name, part in state.items()}
    torch.save({**saved, "rng": torch.get_rng_state(), "step": step}, path + ".tmp")
    os.replace(path + ".tmp", path)
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write(str(step))
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main()
