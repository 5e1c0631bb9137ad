"""One rank has a batch more than the others, who are through with the epoch and wait elsewhere."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset
from toy import mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
rows = list(range(args.rank, len(data), args.world))
if args.rank == 0 and args.world > 1:  # the mistake
    rows += rows[: args.batch]  # the mistake
loader = DataLoader(Subset(data, rows), args.batch)

for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
    everything = [None] * args.world
    dist.all_gather_object(everything, args.rank)
