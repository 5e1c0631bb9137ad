"""The loader shuffles by itself and was never given a distributed sampler: all ranks draw the same batches."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(data, args.batch, shuffle=True, generator=torch.Generator().manual_seed(args.seed))  # the mistake
sampler = None  # the mistake
# right: sampler = DistributedSampler(data, seed=args.seed)
# right: loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
