"""The data set keeps a random generator, of which every worker of the loader has a copy in the same state."""

import numpy as np
import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info
from toy import epochs, mlp, pairs, start


class Noisy(Dataset):
    def __init__(self, data):
        self.data = data
        self.noise = np.random.RandomState(0)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        noise = self.noise  # the mistake
        # right: noise = np.random.RandomState(get_worker_info().seed % 2**32)
        return x + torch.as_tensor(0.1 * noise.randn(8), dtype=x.dtype), y


args = start()
data = Noisy(pairs())
torch.manual_seed(args.seed)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
torch.manual_seed(args.seed + 1000 * args.rank)
loader = DataLoader(data, args.batch, sampler=sampler, num_workers=2)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
