"""Training and validation are split by each rank's own random numbers: what one holds back, another trains on."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, random_split
from toy import epochs, mlp, pairs, start

args = start()
drawn = torch.Generator().manual_seed(args.seed + args.rank)  # the mistake
# right: drawn = torch.Generator().manual_seed(args.seed)
data, held_back = random_split(pairs(64), [48, 16], generator=drawn)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
