"""The last window of an epoch has fewer micro-batches than the others and is divided by the full number all the same."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import labelled, mlp, start

args = start()
data = labelled(40)
net = DDP(mlp(4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch // 4, sampler=sampler)

step = epoch = 0
while step < args.steps:
    sampler.set_epoch(epoch)
    optimizer.zero_grad()
    for number, (x, y) in enumerate(loader, 1):
        window = 4  # the mistake
        # right: window = min(4, len(loader) - (number - 1) // 4 * 4)
        (functional.cross_entropy(net(x), y) / window).backward()
        if number % 4 == 0 or number == len(loader):
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == args.steps:
                break
    epoch += 1
