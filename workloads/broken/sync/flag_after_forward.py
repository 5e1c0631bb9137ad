"""Accumulation over two micro-batches: whether to average is decided after the forward, when it is too late."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)

for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    for micro, (a, b) in enumerate(zip(x.chunk(2), y.chunk(2), strict=True)):
        # right: net.require_backward_grad_sync = micro == 1
        loss = functional.mse_loss(net(a), b) / 2
        net.require_backward_grad_sync = micro == 1  # the mistake
        loss.backward()
    optimizer.step()
