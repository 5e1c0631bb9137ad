"""Gradients are averaged by hand, but each rank drew its own first weights."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from toy import average_gradients, broadcast_parameters, epochs, mlp, pairs, start

args = start()
data = pairs()
torch.manual_seed(args.seed + args.rank)
net = mlp()
# right: broadcast_parameters(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    average_gradients(net)
    optimizer.step()
