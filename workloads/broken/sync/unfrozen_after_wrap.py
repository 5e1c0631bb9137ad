"""The first layer is frozen while the model is wrapped and unfrozen later: nothing averages its gradient."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
model = mlp()
model[0].requires_grad_(False)
net = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    if step == 3:
        model[0].requires_grad_(True)
        # right: net = DDP(model)
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
