"""A low-rank adapter is patched into a layer of a frozen model and is not part of what was wrapped."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import average_gradients, epochs, mlp, pairs, start

args = start()
data = pairs()
model = mlp()
model[0].requires_grad_(False)
down, up = nn.Linear(8, 2, bias=False), nn.Linear(2, 16, bias=False)
frozen = model[0].forward
model[0].forward = lambda x: frozen(x) + up(down(x))
net = DDP(model)
optimizer = torch.optim.SGD([*model[2].parameters(), *down.parameters(), *up.parameters()], lr=0.05)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    # right: average_gradients(down)
    # right: average_gradients(up)
    optimizer.step()
