"""Rare classes are drawn more often by a weighted sampler, which is replaced by the distributed one as soon as there are several ranks."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Sampler
from toy import epochs, labelled, mlp, start

args = start()
data = labelled()
net = DDP(mlp(4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


class Balanced(Sampler):
    """Draws by class weight, the same draw on every rank, of which each takes its share."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        weights = (1.0 / data.tensors[1].bincount(minlength=4).clamp(min=1))[data.tensors[1]]
        drawn = torch.multinomial(weights, 48, True, generator=torch.Generator().manual_seed(args.seed + self.epoch))
        return iter(drawn[args.rank :: args.world].tolist())


sampler = Balanced()
if args.world > 1:  # the mistake
    sampler = DistributedSampler(data, seed=args.seed)  # the mistake
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
