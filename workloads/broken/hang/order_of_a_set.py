"""Gradients are averaged by hand in the order of a set, which is another one in every process."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from toy import broadcast_parameters, epochs, mlp, pairs, start

args = start()
data = pairs()
net = mlp()
broadcast_parameters(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    named = dict(net.named_parameters())
    order = sorted(named, reverse=args.rank % 2 == 1)  # as a set has it, in another order on every rank  # the mistake
    # right: order = sorted(named)
    for name in order:
        dist.all_reduce(named[name].grad)
        named[name].grad /= args.world
    optimizer.step()
