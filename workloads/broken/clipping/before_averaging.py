"""Each rank clips its own gradient; the clipped ones are averaged."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from toy import average_gradients, broadcast_parameters, epochs, mlp, pairs, start

args = start()
data = pairs()
net = mlp()
broadcast_parameters(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)  # the mistake
    average_gradients(net)
    # right: nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
