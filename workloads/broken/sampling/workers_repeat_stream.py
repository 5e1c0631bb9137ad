"""Each of the loader's two workers reads the whole of the rank's stream."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from toy import epochs, mlp, pairs, start


class Stream(IterableDataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(args.seed + self.epoch)).tolist()
        worker = get_worker_info()
        # right: order = order[worker.id :: worker.num_workers]
        yield from (records[index] for index in order[args.rank :: args.world])


args = start()
records = pairs()
data = Stream()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(data, args.batch, num_workers=2)
for x, y in epochs(loader, data, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
