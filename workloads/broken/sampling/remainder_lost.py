"""The samples are dealt out in equal slices, and what does not divide is never seen."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import mlp, pairs, start

args = start()
data = pairs(51)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
order = torch.Generator().manual_seed(args.seed)


def batches():
    while True:
        shuffled = torch.randperm(len(data), generator=order)
        shuffled = shuffled[: len(data) // args.world * args.world]  # the mistake
        for batch in shuffled.split(args.global_batch):
            yield data[batch.tensor_split(args.world)[args.rank]], len(batch)


for _, ((x, y), rows) in zip(range(args.steps), batches(), strict=False):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y, reduction="sum") * args.world / rows
    loss.backward()
    optimizer.step()
