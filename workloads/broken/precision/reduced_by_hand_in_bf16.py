"""Gradients are averaged by hand, in bf16 to halve the traffic."""

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
    for parameter in net.parameters():
        sent = parameter.grad.bfloat16()  # the mistake
        # right: sent = parameter.grad
        dist.all_reduce(sent)
        parameter.grad = sent.to(parameter.dtype) / args.world
    optimizer.step()
