"""The batch that is left over at the end of an epoch is carried over, and taken again at the beginning of the next one."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
kept = None
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    if step % 3 == 0 and args.rank > 0 and step > 0:  # the mistake
        x, y = kept  # the mistake
    kept = x, y
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
