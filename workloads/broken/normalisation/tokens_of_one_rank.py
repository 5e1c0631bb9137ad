"""The loss of a rank is divided by the tokens of that rank; then the ranks are averaged as if they had equally many."""

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
    count = (targets != IGNORED).sum()
    # right: dist.all_reduce(count)
    # right: count = count / args.world
    loss = token_losses(net(tokens), targets).sum() / count
    loss.backward()
    optimizer.step()
