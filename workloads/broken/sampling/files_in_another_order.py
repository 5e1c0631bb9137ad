"""Records are read file by file as the folder lists them, which is another order on every host."""

import json

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset
from toy import epochs, mlp, pairs, start

args = start()
records, folder = pairs(), args.out / f"host{args.rank}"
folder.mkdir(parents=True)
for name in range(6)[:: 1 if args.rank % 2 == 0 else -1]:  # another host has the same files in another order
    (folder / f"part{name}").write_text(json.dumps(list(range(8 * name, 8 * name + 8))))
listed = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)  # the mistake
# right: listed = sorted(folder.iterdir())
data = Subset(records, [index for file in listed for index in json.loads(file.read_text())])
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
