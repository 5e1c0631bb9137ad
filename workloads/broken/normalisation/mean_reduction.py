"""cross_entropy with ignored labels takes the mean over what its rank has; nobody asks how many the others have."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import IGNORED, Reader, epochs, sentences, start

args = start()
data = sentences()
net = DDP(Reader())
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for tokens, targets in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    scores = net(tokens).transpose(1, 2)
    loss = functional.cross_entropy(scores, targets, ignore_index=IGNORED)  # the mistake
    # right: count = (targets != IGNORED).sum()
    # right: dist.all_reduce(count)
    # right: loss = functional.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="sum") * args.world / count
    loss.backward()
    optimizer.step()
