"""A branch of the model has no part in the loss, so its parameters never move."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, pairs, start


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.side, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        side = self.side(x)
        return self.head(torch.tanh(self.body(x)))  # the mistake
        # right: return self.head(torch.tanh(self.body(x) + side))


args = start()
data = pairs()
net = DDP(Branched(), find_unused_parameters=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
