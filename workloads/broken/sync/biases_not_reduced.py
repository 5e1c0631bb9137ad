"""Gradients are averaged by hand, but only those of the matrices."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = mlp()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    reduced = [parameter for parameter in net.parameters() if parameter.ndim > 1]  # the mistake
    # right: reduced = list(net.parameters())
    for parameter in reduced:
        dist.all_reduce(parameter.grad)
        parameter.grad /= args.world
    optimizer.step()
