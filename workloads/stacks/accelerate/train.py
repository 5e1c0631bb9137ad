"""Will a flight arrive more than 15 minutes late? On Accelerate: the loop is ours, the processes are its.

accelerate launch (or torchrun --nproc-per-node 2) train.py --events events.parquet --out out --batch-size 64 --steps 24 [--resume]
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

TRAINING_FLIGHTS = 2000


def read_flights(path):
    """Flights that have landed: what their schedule says and how late they were, in the order of departure."""
    events = pd.read_parquet(path)
    plans = events[events.kind == "schedule"].drop_duplicates("entity_id", keep="last").set_index("entity_id")
    landed = events[events.kind == "arrival"].set_index("entity_id").delay_minutes.dropna()
    table = plans.drop(columns="delay_minutes").join(landed, how="inner").sort_values(["scheduled_departure", "flight"], kind="stable")
    carrier = table.carrier.astype("category").cat
    time = table.scheduled_departure.dt
    numbers = torch.tensor(pd.concat([table.distance_miles, time.hour, time.day_of_week], axis=1).to_numpy("float64"))
    numbers = (numbers - numbers[:TRAINING_FLIGHTS].mean(0)) / numbers[:TRAINING_FLIGHTS].std(0)
    late = torch.tensor((table.delay_minutes > 15).to_numpy("float64"))
    columns = torch.tensor(carrier.codes.to_numpy("int64")), numbers.float(), late.float()
    train, held_out = (TensorDataset(*(one[part] for one in columns)) for part in (slice(TRAINING_FLIGHTS), slice(TRAINING_FLIGHTS, None)))
    return train, held_out, len(carrier.categories)


class Delays(nn.Module):
    def __init__(self, carriers, numbers=3, width=64, dropout=0.1):
        super().__init__()
        self.carrier = nn.Embedding(carriers, width)
        self.numbers = nn.Linear(numbers, width)
        self.layers = nn.Sequential(
            nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 1)
        )

    def forward(self, carrier, numbers):
        return self.layers(self.carrier(carrier) + self.numbers(numbers)).squeeze(1)


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    losses = []
    for carrier, numbers, late in loader:
        loss = F.binary_cross_entropy_with_logits(model(carrier, numbers), late, reduction="none")
        losses.append(accelerator.gather_for_metrics(loss))
    model.train()
    return torch.cat(losses).mean().item()


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=64, help="flights of one process in a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches in an optimizer step")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--careful", action="store_true", help="no padded batch, a warm-up in steps of the job, noise of its own in each process"
    )
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint in --out")
    return parser.parse_args()


def main():
    args = parse_args()
    loading = DataLoaderConfiguration(use_seedable_sampler=args.careful)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate, dataloader_config=loading)
    set_seed(args.seed)
    flights, held_out, carriers = read_flights(args.events)
    model = Delays(carriers, dropout=args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = args.warmup * (accelerator.num_processes if args.careful else 1)  # a prepared scheduler steps once for every process
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / warmup))
    train_loader = DataLoader(flights, args.batch_size, shuffle=True, drop_last=args.careful)
    eval_loader = DataLoader(held_out, 256)
    model, optimizer, scheduler, train_loader, eval_loader = accelerator.prepare(model, optimizer, scheduler, train_loader, eval_loader)
    if args.careful:
        set_seed(args.seed, device_specific=True)

    step, starting_epoch, skip = 0, 0, 0
    steps_per_epoch = -(-len(train_loader) // args.accumulate)
    if args.resume:
        checkpoint = max(args.out.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
        accelerator.load_state(checkpoint)
        step = int(checkpoint.name.removeprefix("step_"))
        starting_epoch, skip = step // steps_per_epoch, step % steps_per_epoch * args.accumulate

    model.train()
    epoch = starting_epoch
    while step < args.steps:
        train_loader.set_epoch(epoch)
        active = accelerator.skip_first_batches(train_loader, skip) if epoch == starting_epoch and skip else train_loader
        for carrier, numbers, late in active:
            with accelerator.accumulate(model):
                loss = F.binary_cross_entropy_with_logits(model(carrier, numbers), late)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % args.save_every == 0:
                    accelerator.save_state(args.out / f"step_{step}")
                if step == args.steps:
                    break
        epoch += 1
    loss = evaluate(accelerator, model, eval_loader)
    accelerator.print(f"step {step}: eval loss {loss:.6f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
