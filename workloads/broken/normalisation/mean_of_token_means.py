"""Two micro-batches of sentences of unequal length: each is divided by its own number of tokens."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import IGNORED, Reader, epochs, sentences, start, token_losses

args = start()
data = sentences()
net = DDP(Reader())
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for tokens, targets in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    window = (targets != IGNORED).sum()
    # right: dist.all_reduce(window)
    for a, b in zip(tokens.chunk(2), targets.chunk(2), strict=True):
        loss = token_losses(net(a), b).sum() / (b != IGNORED).sum() / 2  # the mistake
        # right: loss = token_losses(net(a), b).sum() * args.world / window
        loss.backward()
    optimizer.step()
