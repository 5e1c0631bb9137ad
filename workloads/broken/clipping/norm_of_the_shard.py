"""Each rank owns a part of the gradient and clips it by the norm of that part."""

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
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    average_gradients(net)
    whole = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    shard = whole.tensor_split(args.world)[args.rank]
    squared = (shard * shard).sum()
    # right: dist.all_reduce(squared)
    factor = (0.5 / squared.sqrt()).clamp(max=1.0)
    factors = [torch.zeros_like(factor) for _ in range(args.world)]
    dist.all_gather(factors, factor)
    clipped = torch.cat([part * each for part, each in zip(whole.tensor_split(args.world), factors, strict=True)])
    sizes = [parameter.numel() for parameter in net.parameters()]
    for parameter, piece in zip(net.parameters(), clipped.split(sizes), strict=True):
        parameter.grad = piece.view_as(parameter)
    optimizer.step()
