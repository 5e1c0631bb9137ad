"""The slices of the ranks overlap by one sample."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
share = len(data) // args.world
mine = range(args.rank * share, min(len(data), (args.rank + 1) * share + 1))  # the mistake
# right: mine = range(args.rank * share, (args.rank + 1) * share)
data = Subset(data, list(mine))
loader = DataLoader(data, args.batch, shuffle=True, generator=torch.Generator().manual_seed(args.seed))
for x, y in epochs(loader, None, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
