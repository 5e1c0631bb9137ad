"""A transformer of 1 or 20 million parameters on random tokens, under DDP: what the probe's cost is measured on."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

SIZES = {1: {"width": 128, "layers": 5, "batch": 32, "length": 32}, 20: {"width": 512, "layers": 6, "batch": 16, "length": 64}}
WORDS = 256


class Net(nn.Module):
    """Embedding, encoder, head."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(words)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", type=int, choices=SIZES, default=1)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    size = SIZES[given.million]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(size["width"], size["layers"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(given.steps):
        words = torch.randint(0, WORDS, (size["batch"], size["length"]))
        logits = model(words)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.roll(-1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
