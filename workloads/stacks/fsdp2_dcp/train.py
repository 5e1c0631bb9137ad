"""Will a flight arrive more than 15 minutes late? FSDP2 in bfloat16, checkpoints by torch.distributed.checkpoint.

torchrun --nproc-per-node 2 train.py --batch-size 128 --steps 24 --events events.parquet --out out [--resume]
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

TRAINING_FLIGHTS = 4096


class AppState(Stateful):
    """All that training goes on from; DCP calls state_dict when it saves, and again when it loads, to know what to read."""

    def __init__(self, model, optimizer, scheduler, progress):
        self.model, self.optimizer, self.scheduler, self.progress = model, optimizer, scheduler, progress

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler.state_dict(), "progress": dict(self.progress)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.progress.update(state["progress"])


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Delays(nn.Module):
    def __init__(self, carriers, numbers, width=64, depth=3):
        super().__init__()
        self.carrier = nn.Embedding(carriers, width)
        self.numbers = nn.Linear(numbers, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 1)

    def forward(self, carrier, numbers):
        x = self.carrier(carrier) + self.numbers(numbers)
        return self.head(self.blocks(x)).squeeze(1)


def read_flights(path):
    """Every flight that has landed: what its schedule says, and whether it was late. Training flights first, then those to validate on."""
    events = pd.read_parquet(path)
    plans = events[events.kind == "schedule"].drop_duplicates("entity_id", keep="last").set_index("entity_id")
    landed = events[events.kind == "arrival"].set_index("entity_id").delay_minutes.dropna()
    plans = plans.loc[plans.index.intersection(landed.index)].sort_values(["scheduled_departure", "flight"], kind="stable")
    time = plans.scheduled_departure.dt
    numbers = torch.tensor(pd.concat([plans.distance_miles, time.hour, time.dayofweek, time.month], axis=1).to_numpy("float64"))
    numbers = (numbers - numbers.mean(0)) / numbers.std(0).clamp(min=1e-6)
    carriers = plans.carrier.astype("category").cat
    late = torch.tensor((landed[plans.index] > 15).to_numpy("float64"))
    rows = (torch.tensor(carriers.codes.to_numpy("int64")), numbers.to(torch.get_default_dtype()), late.to(torch.get_default_dtype()))
    training, held_out = ((one[:TRAINING_FLIGHTS] for one in rows), (one[TRAINING_FLIGHTS:] for one in rows))
    return TensorDataset(*training), TensorDataset(*held_out), len(carriers.categories)


@torch.no_grad()
def validate(model, flights):
    """Mean loss over all validation flights, each rank taking its share."""
    model.eval()
    total = torch.zeros(2, dtype=torch.float64)
    own = range(dist.get_rank(), len(flights), dist.get_world_size())
    for carrier, numbers, late in DataLoader(Subset(flights, own), 512):
        loss = F.binary_cross_entropy_with_logits(model(carrier, numbers).to(late.dtype), late, reduction="sum")
        total += torch.tensor([loss.item(), len(late)], dtype=torch.float64)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True, help="flights per rank and step")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--events", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(args.seed)
    flights, held_out, carriers = read_flights(args.events)
    model = Delays(carriers, flights.tensors[1].shape[1])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 8))
    progress = {"step": 0}

    app = {"app": AppState(model, optimizer, scheduler, progress)}
    checkpoints = args.out / "checkpoints"
    whole = sorted(path.parent for path in checkpoints.glob("step-*/.metadata"))
    if args.resume and whole:
        dcp.load(app, checkpoint_id=whole[-1])

    sampler = DistributedSampler(flights, seed=args.seed)
    loader = DataLoader(flights, args.batch_size, sampler=sampler)
    model.train()
    while progress["step"] < args.steps:
        epoch, done = divmod(progress["step"], len(loader))
        sampler.set_epoch(epoch)
        for index, (carrier, numbers, late) in enumerate(loader):
            if index < done or progress["step"] == args.steps:
                continue
            loss = F.binary_cross_entropy_with_logits(model(carrier, numbers).to(late.dtype), late)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            progress["step"] += 1
            if progress["step"] % args.save_every == 0:
                dcp.save(app, checkpoint_id=checkpoints / f"step-{progress['step']:06d}")
    val_loss = validate(model, held_out)
    if dist.get_rank() == 0:
        print(f"step {progress['step']}: val loss {val_loss:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
