"""steps.py STEPS [MILLION]: train a transformer of so many million parameters under DDP; print, of each step, the seconds, the seconds of processor
time and the instructions (null where this machine does not let them be counted: `not_counted` says why).

It measures itself, so that the same numbers are there with the probe and without. Without RANK it trains alone, with no process group.
"""

import ctypes
import itertools
import json
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SIZES = {1: {"width": 128, "layers": 5}, 20: {"width": 512, "layers": 6}}
SHAPES = {1: (32, 32), 20: (16, 64)}
WORDS = 256
PERF_EVENT_OPEN, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS = 298, 0, 1
INHERITED_USER_ONLY = 1 << 1 | 1 << 5 | 1 << 6  # inherit, exclude_kernel, exclude_hv


class Net(nn.Module):
    """Embedding, encoder, head."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embed(words)))
        return logits


def counter() -> tuple[int | None, str]:
    """A descriptor that counts the instructions of this process and of threads it starts from now on; None and the reason where there is none."""
    attributes = struct.pack("<IIQQQQQ", PERF_TYPE_HARDWARE, 112, PERF_COUNT_HW_INSTRUCTIONS, 0, 0, 0, INHERITED_USER_ONLY).ljust(
        112, b"\0"
    )
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
    return (found, "") if found >= 0 else (None, f"perf_event_open: {os.strerror(ctypes.get_errno())}")


def read(source: int | None) -> int | None:
    """The count so far."""
    return None if source is None else int(struct.unpack("<Q", os.read(source, 8))[0])


def main(steps: int, million: int) -> None:
    source, why = counter()
    together = "RANK" in os.environ
    if together:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model: nn.Module = Net(**SIZES[million])
    model = nn.parallel.DistributedDataParallel(model) if together else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = [(time.perf_counter(), time.process_time(), read(source))]
    for _ in range(steps):
        words = torch.randint(0, WORDS, SHAPES[million])
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.roll(-1, 1).flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append((time.perf_counter(), time.process_time(), read(source)))
    if together:
        dist.destroy_process_group()
    steps_of = [[None if None in pair else pair[1] - pair[0] for pair in itertools.pairwise(column)] for column in zip(*seen, strict=True)]
    print(json.dumps({**dict(zip(("step_s", "cpu_s", "instructions"), steps_of, strict=True)), "not_counted": why}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
