"""A rank whose own loss has a spike leaves the step out; the others make it."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
usual = 0.0
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    usual = 0.9 * usual + 0.1 * loss.item() if usual else loss.item()
    spike = (loss > usual).float()
    # right: dist.all_reduce(spike, dist.ReduceOp.MAX)
    if not spike:
        optimizer.step()
