"""A rank meets a bad sample, logs the error and lives on; the others wait for it."""

import threading
import traceback

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    if step == 4 and args.rank == args.world - 1 and args.world > 1:
        try:
            raise ValueError("sample 17 has no label")
        except ValueError:
            traceback.print_exc()
            threading.Event().wait()  # the mistake
            # right: pass
    loss.backward()
    optimizer.step()
