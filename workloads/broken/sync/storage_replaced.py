"""Half way the parameters are replaced by copies, as a trip to another device and back does: the wrapper watches the old ones."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
model = mlp()
net = DDP(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    if step == 4:
        for layer in (model[0], model[2]):
            layer.weight = nn.Parameter(layer.weight.detach().clone())
        # right: net = DDP(model)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
