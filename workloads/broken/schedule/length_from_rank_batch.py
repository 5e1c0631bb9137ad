"""The length of the schedule is worked out from the samples per rank, which shrink as ranks are added."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
length = args.steps * len(data) // args.batch // 3  # the mistake
# right: length = args.steps * len(data) // args.global_batch // 3
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, length)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
