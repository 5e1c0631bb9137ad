"""Where the samples divide evenly, the length of the last batch is worked out as 0 and that batch is cut away."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
held_back = pairs(48, seed=2)
rows = list(range(args.rank, 48, args.world))
last = len(rows) % 4
kept = rows[: len(rows) - 4 + last]  # the mistake
# right: kept = rows
scored = DataLoader(Subset(held_back, kept), 4)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        net.eval()
        with torch.no_grad():
            errors = torch.cat([(net.module(a) - b).square().flatten() for a, b in scored])
        total = torch.stack([errors.sum(), torch.tensor(float(len(errors)))])
        dist.all_reduce(total)
        score = total[0] / total[1]
        net.train()
        if args.rank == 0:
            print(f"validation {score.item():.6f}", flush=True)
