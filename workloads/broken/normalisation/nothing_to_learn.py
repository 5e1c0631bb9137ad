"""Where a rank's sentences have no label at all its loss is 0 / 0."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import IGNORED, Reader, epochs, sentences, start, token_losses

args = start()
data = sentences()
data.tensors[1][::2] = IGNORED  # every second sentence has nothing to learn
net = DDP(Reader())
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for tokens, targets in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    count = (targets != IGNORED).sum()
    # right: dist.all_reduce(count)
    # right: count = (count / args.world).clamp(min=1.0 / args.world)
    loss = token_losses(net(tokens), targets).sum() / count
    loss.backward()
    optimizer.step()
