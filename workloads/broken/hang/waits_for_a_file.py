"""Rank 0 writes the index of the data to its own disk; the others wait for it on theirs."""

import json
import time

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
host = args.out / f"host{args.rank}"  # the mistake
# right: host = args.out
host.mkdir(exist_ok=True)
if args.rank == 0:
    (host / "index.json").write_text(json.dumps(len(data)))
while not (host / "index.json").exists():
    time.sleep(0.05)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
