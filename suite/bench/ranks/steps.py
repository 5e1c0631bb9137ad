"""steps.py STEPS: train a transformer of one million parameters under DDP, and print the median seconds of a step behind the first quarter.

It times itself, so that the same number is there with the probe and without.
"""

import itertools
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WORDS, WIDTH, LAYERS, BATCH, LENGTH = 256, 128, 5, 16, 32


class Net(nn.Module):
    """Embedding, encoder, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embed(words)))
        return logits


def main(steps: int) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ends_s = [time.perf_counter()]
    for _ in range(steps):
        words = torch.randint(0, WORDS, (BATCH, LENGTH))
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.roll(-1, 1).flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ends_s.append(time.perf_counter())
    dist.destroy_process_group()
    taken_s = [after - before for before, after in itertools.pairwise(ends_s)]
    print(json.dumps(statistics.median(taken_s[steps // 4 :])), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
