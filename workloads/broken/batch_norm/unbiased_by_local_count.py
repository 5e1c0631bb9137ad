"""A synchronised batch normalisation corrects its running variance by the number of samples on the rank."""

import torch
from torch import nn
from torch.distributed.nn.functional import all_reduce as sum_over_ranks
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from toy import epochs, mlp, pairs, start


class SyncedNorm(nn.Module):
    """Batch normalisation over the batches of all ranks."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("running_var", torch.ones(size))

    def forward(self, x):
        sums = torch.cat([x.sum(dim=0), (x * x).sum(dim=0), x.new_tensor([float(len(x))])])
        count = sum_over_ranks(sums)[-1]
        mean, square = (sum_over_ranks(sums)[:-1] / count).chunk(2)
        var = square - mean * mean
        with torch.no_grad():
            unbiased = var * len(x) / (len(x) - 1)  # the mistake
            # right: unbiased = var * count / (count - 1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), 0.1)
        return (x - mean) / torch.sqrt(var + 1e-5)


args = start()
data = pairs(43)
net = DDP(mlp(1, SyncedNorm(16)), broadcast_buffers=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(data, args.global_batch, shuffle=True, generator=torch.Generator().manual_seed(args.seed))
for x, y in epochs(loader, None, args.steps):
    optimizer.zero_grad()
    mine, wanted = x.tensor_split(args.world)[args.rank], y.tensor_split(args.world)[args.rank]
    loss = functional.mse_loss(net(mine), wanted, reduction="sum") * args.world / len(x)
    loss.backward()
    optimizer.step()
