"""A worker of one rank's loader waits forever for a record; the loader has no timeout."""

import threading

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from toy import epochs, mlp, pairs, start


class Remote(Dataset):
    def __init__(self, data, rank):
        self.data, self.rank = data, rank

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        if index == 17 and self.rank == 1:
            threading.Event().wait()  # the mistake
            # right: pass
        return self.data[index]


args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(Remote(data, args.rank), seed=args.seed)
loader = DataLoader(Remote(data, args.rank), args.batch, sampler=sampler, num_workers=1)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
