"""Embeddings are gathered from all ranks, but only the rank's own carry a gradient, and the wrapper averages that away."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp(4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    embedded = functional.normalize(net(torch.cat([x, x + 0.1 * y])), dim=1)
    gathered = [torch.zeros_like(embedded) for _ in range(args.world)]
    dist.all_gather(gathered, embedded.detach())
    gathered[args.rank] = embedded
    halves = [one.chunk(2) for one in gathered]
    left, right = (torch.cat([half[side] for half in halves]) for side in (0, 1))
    loss = functional.cross_entropy(left @ right.T / 0.1, torch.arange(len(left)))
    loss.backward()  # the mistake
    # right: (loss * args.world).backward()
    optimizer.step()
