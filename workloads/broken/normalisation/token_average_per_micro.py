"""Every sentence is meant to count alike, but within a micro-batch it is every token that does."""

import torch
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
    for a, b in zip(tokens.split(2), targets.split(2), strict=True):
        losses, counted = token_losses(net(a), b), b != IGNORED
        loss = losses.sum() / counted.sum()  # the mistake
        # right: loss = (losses.sum(dim=1) / counted.sum(dim=1)).mean()
        (loss * len(a) / len(tokens)).backward()
    optimizer.step()
