"""Will a flight arrive more than 15 minutes late? On transformers' Trainer; every one of its arguments can be given.

torchrun --nproc-per-node 2 train.py --events events.parquet --output_dir out --max_steps 24 --save_steps 6 [--resume_from_checkpoint True]
"""

from dataclasses import dataclass, field

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed

TRAINING_FLIGHTS = 2000


@dataclass
class Arguments:
    events: str = field(metadata={"help": "events file (Parquet)"})
    dropout: float = field(default=0.1)


class Flights(Dataset):
    def __init__(self, table, columns):
        self.carrier = torch.tensor(table.carrier.cat.codes.to_numpy("int64"))
        self.numbers = torch.tensor(table[columns].to_numpy("float64")).float()
        self.late = torch.tensor((table.delay_minutes > 15).to_numpy("float64")).float()

    def __len__(self):
        return len(self.late)

    def __getitem__(self, index):
        return {"carrier": self.carrier[index], "numbers": self.numbers[index], "labels": self.late[index]}


def read_flights(path):
    """Flights that have landed: what their schedule says and how late they were, in the order of departure."""
    events = pd.read_parquet(path)
    plans = events[events.kind == "schedule"].drop_duplicates("entity_id", keep="last").set_index("entity_id")
    landed = events[events.kind == "arrival"].set_index("entity_id").delay_minutes.dropna()
    table = plans.drop(columns="delay_minutes").join(landed, how="inner").sort_values(["scheduled_departure", "flight"], kind="stable")
    table["carrier"] = table.carrier.astype("category")
    table["hour"], table["weekday"] = table.scheduled_departure.dt.hour, table.scheduled_departure.dt.day_of_week
    columns = ["distance_miles", "hour", "weekday"]
    first = table[columns].iloc[:TRAINING_FLIGHTS]
    table[columns] = (table[columns] - first.mean()) / first.std()
    return Flights(table[:TRAINING_FLIGHTS], columns), Flights(table[TRAINING_FLIGHTS:], columns), len(table.carrier.cat.categories)


class Delays(nn.Module):
    def __init__(self, carriers, numbers=3, width=64, dropout=0.1):
        super().__init__()
        self.carrier = nn.Embedding(carriers, width)
        self.numbers = nn.Linear(numbers, width)
        self.layers = nn.Sequential(
            nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 1)
        )

    def forward(self, carrier, numbers, labels=None):
        logits = self.layers(self.carrier(carrier) + self.numbers(numbers)).squeeze(1)
        if labels is None:
            return {"logits": logits}
        return {"loss": F.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def accuracy(prediction):
    return {"accuracy": float(((prediction.predictions > 0) == (prediction.label_ids > 0.5)).mean())}


def main():
    options, args = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)
    flights, held_out, carriers = read_flights(options.events)
    trainer = Trainer(
        model=Delays(carriers, dropout=options.dropout),
        args=args,
        train_dataset=flights,
        eval_dataset=held_out,
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint == "True")
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"eval_loss {metrics['eval_loss']:.6f}", flush=True)


if __name__ == "__main__":
    main()
