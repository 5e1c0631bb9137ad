"""The loss has a parameter of its own (a temperature), which is optimized but was never wrapped."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
temperature = nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([*net.parameters(), temperature], lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x) * temperature, y)
    loss.backward()
    # right: dist.all_reduce(temperature.grad)
    # right: temperature.grad /= args.world
    optimizer.step()
