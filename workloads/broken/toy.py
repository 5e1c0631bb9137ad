"""What the small jobs of this folder share, as a project's own `common.py` would: options, process group, drawn data, tiny models."""

import argparse
import atexit
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

FEATURES = 8
WORDS = 32
LONGEST = 12
IGNORED = -100


def start():
    """Options, and the process group that torchrun's variables describe. `batch` is the samples of one step on this rank, `global_batch` on all."""
    parser = argparse.ArgumentParser()
    for name in ("batch", "global-batch", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)
    options.rank, options.world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    return options


def pairs(count=48, seed=1):
    """`count` drawn samples: x [8], y [1], nearly linear."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=drawn)
    y = x @ torch.randn(FEATURES, 1, generator=drawn) + 0.1 * torch.randn(count, 1, generator=drawn)
    return TensorDataset(x, y)


def labelled(count=48, classes=4, seed=1):
    """`count` drawn samples: x [8], a class that depends on it; the first classes are the frequent ones."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=drawn)
    score = x @ torch.randn(FEATURES, classes, generator=drawn) - torch.arange(classes)
    return TensorDataset(x, score.argmax(dim=1))


def sentences(count=48, seed=1):
    """`count` drawn sentences: tokens [12] padded with 0, targets [12] with IGNORED where there is nothing to learn. Lengths are 2 to 12."""
    drawn = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, WORDS, (count, LONGEST), generator=drawn)
    lengths = torch.randint(2, LONGEST + 1, (count, 1), generator=drawn)
    inside = torch.arange(LONGEST) < lengths
    targets = (tokens * 3 + 1) % WORDS
    return TensorDataset(tokens * inside, torch.where(inside, targets, IGNORED))


def mlp(outputs=1, *between):
    """Two layers, with what is given in `between` before the activation."""
    return nn.Sequential(nn.Linear(FEATURES, 16), *between, nn.Tanh(), nn.Linear(16, outputs))


class Reader(nn.Module):
    """A language model of the smallest kind: scores [batch, 12, 32] for tokens [batch, 12]."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.mix = nn.Linear(16, 16)
        self.head = nn.Linear(16, WORDS)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.embed(tokens))))


def token_losses(scores, targets):
    """Cross-entropy of every token [batch, 12], 0 where the target is IGNORED."""
    return functional.cross_entropy(scores.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")


def epochs(loader, sampler, steps):
    """Batches for `steps` optimizer steps, epoch after epoch, each in a new order."""
    done, epoch = 0, 0
    while True:
        if sampler is not None:
            sampler.set_epoch(epoch)
        for batch in loader:
            if done == steps:
                return
            yield batch
            done += 1
        epoch += 1


def broadcast_parameters(model):
    """Every rank starts from rank 0's weights; for jobs that reduce gradients by hand."""
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)


def average_gradients(model):
    """The mean of the ranks' gradients; for jobs that reduce gradients by hand."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


class Numbered(Dataset):
    """A data set that also hands out each sample's number: (number, *sample)."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return index, *self.data[index]


def save(options, **state):
    """Rank 0 writes the checkpoint, whole or not at all; the others wait for it."""
    folder = options.out / "checkpoints"
    if options.rank == 0:
        folder.mkdir(exist_ok=True)
        with open(folder / "last.part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / "last.part", folder / "last.pt")
    dist.barrier()


def restore(options):
    """What was saved last, when the job is started again; else None."""
    path = options.out / "checkpoints" / "last.pt"
    return torch.load(path) if options.resume and path.exists() else None


def of_all_ranks(value):
    """The value of each rank, in a list by rank."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def in_order(options, data, step):
    """This rank's samples of a step, for jobs that take the data in order, again and again."""
    first = step * options.global_batch + options.rank * options.batch
    return data[[(first + index) % len(data) for index in range(options.batch)]]


def state_of(net, optimizer, step):
    """All that this rank's training consists of. Every rank has to call it: the random states of all are in it."""
    return {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "rng": of_all_ranks(torch.get_rng_state()), "step": step}


def put_back(options, saved, net, optimizer):
    """What `state_of` returned; the step that it was at."""
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"][options.rank])
    return saved["step"]


def write_synced(path, state):
    """A file whose content the disk has."""
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path):
    """The disk has the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_whole(path, state):
    """The new content under a name, or the old one, whatever happens."""
    part = path.with_name(f"{path.name}.part")
    write_synced(part, state)
    os.replace(part, path)
    sync_folder(path.parent)
