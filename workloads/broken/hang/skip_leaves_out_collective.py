"""A rank whose loss is no number leaves the whole rest of the step out, collectives included."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from toy import average_gradients, broadcast_parameters, epochs, mlp, pairs, start

args = start()
data = pairs()
net = mlp()
broadcast_parameters(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    if step == 4 and args.rank == args.world - 1:
        loss = loss * torch.nan  # as a broken sample does it
    bad = torch.isnan(loss).float()
    # right: dist.all_reduce(bad, dist.ReduceOp.MAX)
    if bad:
        continue
    loss.backward()
    average_gradients(net)
    optimizer.step()
