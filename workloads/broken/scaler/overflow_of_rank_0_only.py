"""Only rank 0's loss is looked at: a loss that is not a number on another rank poisons all weights."""

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

for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    if step == 3 and args.rank == args.world - 1:
        loss = loss * torch.nan  # as a broken sample does it
    loss.backward()
    bad = torch.isnan(loss).float()
    dist.broadcast(bad, 0)  # the mistake
    # right: dist.all_reduce(bad, dist.ReduceOp.MAX)
    if not bad:
        optimizer.step()
