"""Will a flight arrive more than 15 minutes late? On Lightning: a LightningModule, a DataModule, and Trainer does the rest.

torchrun --nproc-per-node 2 train.py --events events.parquet --out out --batch-size 64 --devices 2 --steps 24 [--resume]
"""

import argparse
from pathlib import Path

import lightning as L
import pandas as pd
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAINING_FLIGHTS = 2000


class Flights(L.LightningDataModule):
    """Flights that have landed: what their schedule says and how late they were, in the order of departure."""

    def __init__(self, events, batch_size):
        super().__init__()
        self.events, self.batch_size = events, batch_size

    def setup(self, stage):
        events = pd.read_parquet(self.events)
        plans = events[events.kind == "schedule"].drop_duplicates("entity_id", keep="last").set_index("entity_id")
        landed = events[events.kind == "arrival"].set_index("entity_id").delay_minutes.dropna()
        table = plans.drop(columns="delay_minutes").join(landed, how="inner").sort_values(["scheduled_departure", "flight"], kind="stable")
        time = table.scheduled_departure.dt
        numbers = torch.tensor(pd.concat([table.distance_miles, time.hour, time.day_of_week], axis=1).to_numpy("float64"))
        numbers = (numbers - numbers[:TRAINING_FLIGHTS].mean(0)) / numbers[:TRAINING_FLIGHTS].std(0)
        late = torch.tensor((table.delay_minutes > 15).to_numpy("float64"))
        columns = torch.tensor(table.carrier.astype("category").cat.codes.to_numpy("int64")), numbers.float(), late.float()
        self.train = TensorDataset(*(one[:TRAINING_FLIGHTS] for one in columns))
        self.held_out = TensorDataset(*(one[TRAINING_FLIGHTS:] for one in columns))

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, 256)


class Delays(L.LightningModule):
    def __init__(self, carriers=20, numbers=3, width=64, dropout=0.1, learning_rate=1e-3, warmup=8):
        super().__init__()
        self.save_hyperparameters()
        self.carrier = nn.Embedding(carriers, width)
        self.numbers = nn.Linear(numbers, width)
        self.layers = nn.Sequential(
            nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 1)
        )

    def forward(self, carrier, numbers):
        return self.layers(self.carrier(carrier) + self.numbers(numbers)).squeeze(1)

    def training_step(self, batch, batch_idx):
        carrier, numbers, late = batch
        loss = F.binary_cross_entropy_with_logits(self(carrier, numbers), late)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        carrier, numbers, late = batch
        self.log("val_loss", F.binary_cross_entropy_with_logits(self(carrier, numbers), late), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / self.hparams.warmup))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=64, help="flights of one device in a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches in an optimizer step")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--save-every", type=int, default=6, help="steps between checkpoints, 0 for one at the end of each epoch")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    L.seed_everything(args.seed)
    checkpoints = ModelCheckpoint(args.out / "checkpoints", every_n_train_steps=args.save_every or None, save_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=args.devices,
        max_steps=args.steps,
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=1.0,
        callbacks=[checkpoints],
        default_root_dir=args.out,
        enable_progress_bar=False,
        log_every_n_steps=6,
    )
    model, flights = Delays(dropout=args.dropout), Flights(args.events, args.batch_size)
    trainer.fit(model, datamodule=flights, ckpt_path="last" if args.resume else None)
    metrics = trainer.validate(model, datamodule=flights, verbose=False)
    if trainer.is_global_zero:
        print(f"val_loss {metrics[0]['val_loss']:.6f}", flush=True)


if __name__ == "__main__":
    main()
