"""All ranks read from one disk that serves one reader at a time."""

import fcntl
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from toy import epochs, pairs, start


class Shelf(Dataset):
    """Samples on a disk that hands out one at a time; the lock stands for the disk."""

    def __init__(self, data, disk):
        self.data, self.disk = data, disk

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        with open(self.disk, "a") as file:  # the mistake
            fcntl.flock(file, fcntl.LOCK_EX)  # the mistake
            time.sleep(0.0005)  # the mistake
        return self.data[index]


args = start()
data = Shelf(pairs(2048), args.out / "disk")
net = DDP(nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
