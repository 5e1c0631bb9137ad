"""The last batch of an epoch is split unevenly, and the ranks' means are averaged as if they had equally many samples."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from toy import epochs, mlp, pairs, start

args = start()
data = pairs(43)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(data, args.global_batch, shuffle=True, generator=torch.Generator().manual_seed(args.seed))
for x, y in epochs(loader, None, args.steps):
    optimizer.zero_grad()
    mine, wanted = x.tensor_split(args.world)[args.rank], y.tensor_split(args.world)[args.rank]
    loss = functional.mse_loss(net(mine), wanted)  # the mistake
    # right: loss = functional.mse_loss(net(mine), wanted, reduction="sum") * args.world / len(x)
    loss.backward()
    optimizer.step()
