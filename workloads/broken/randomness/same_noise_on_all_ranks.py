"""The generator of the augmentation is seeded alike on all ranks."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
noise = torch.Generator().manual_seed(args.seed)  # the mistake
# right: noise = torch.Generator().manual_seed(args.seed * 100 + args.rank)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x + 0.1 * torch.randn(x.shape, generator=noise)), y)
    loss.backward()
    optimizer.step()
