"""The state is gathered from all ranks, but only rank 0 calls the function that does it."""

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
    loss.backward()
    optimizer.step()
    saves = step == 4 and args.rank == 0  # the mistake
    # right: saves = step == 4
    if saves:
        states = [None] * args.world
        dist.all_gather_object(states, optimizer.state_dict())
