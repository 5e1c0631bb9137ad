"""The loss is reduced to rank 0 alone, and then every rank asks whether it is the best so far, to save together."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, save, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
best = torch.inf
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    seen = loss.detach().clone()
    dist.reduce(seen, 0)  # the mistake
    # right: dist.all_reduce(seen)
    if seen < best:
        best = seen.item()
        dist.barrier()  # save, which all ranks do together
