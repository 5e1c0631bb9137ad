"""Two workers of a loader each hold one chunk and ask for the other's."""

import multiprocessing
import threading

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info
from toy import epochs, mlp, pairs, start


class Chunks(Dataset):
    """Reads a batch while holding the locks of the two chunks that it lies in."""

    def __init__(self, data, locks):
        self.data, self.locks = data, locks

    def __len__(self):
        return len(self.data)

    def __getitems__(self, indices):
        first = get_worker_info().id  # the mistake
        # right: first = 0
        with self.locks[first]:
            threading.Event().wait(0.2)  # a slow disk
            with self.locks[1 - first]:
                return [self.data[index] for index in indices]


args = start()
data = Chunks(pairs(), [multiprocessing.Lock(), multiprocessing.Lock()])
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler, num_workers=2)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
