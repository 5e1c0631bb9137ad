"""A plain DDP job, small enough to start hundreds of times: an MLP on drawn samples, saved every 5 steps."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def samples(seed):
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(256, 8, generator=drawn)
    return TensorDataset(x, x @ torch.randn(8, 1, generator=drawn))


def save(folder, step, state):
    target, partial = folder / f"step-{step:04d}", folder / f".step-{step:04d}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    with open(partial / "state.pt", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)


def newest(folder):
    return max(folder.glob("step-*"), default=None)


def main():
    parser = argparse.ArgumentParser()
    for name in ("batch", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = samples(args.seed)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    step, checkpoints = 0, args.out / "checkpoints"
    if args.resume and (found := newest(checkpoints)):
        state = torch.load(found / "state.pt", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while step < args.steps:
        epoch, done = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for index, (x, y) in enumerate(loader):
            if index < done or step == args.steps:
                continue
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            if step % 5 == 0 and rank == 0:
                save(checkpoints, step, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
