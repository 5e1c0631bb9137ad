"""A rank with an overflow halves its loss scale and leaves the step out; the others, who saw none, make it."""

import torch
import torch.distributed as dist
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

scale = 65536.0
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    if step == 3 and args.rank == args.world - 1:
        loss = loss * torch.inf  # an overflow, as half precision has them
    (loss * scale).backward()
    overflow = (~torch.isfinite(loss)).float()
    # right: dist.all_reduce(overflow, dist.ReduceOp.MAX)
    for parameter in net.parameters():
        parameter.grad = torch.where(torch.isfinite(parameter.grad), parameter.grad, 0.0) / scale
    if overflow:
        scale = scale / 2
    else:
        optimizer.step()
