"""The rate is halved at the seventh batch as enumerate counts them; a loader that goes on in the middle begins to count again."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs(192)
net = DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
sampler = DistributedSampler(data, seed=args.seed)
loader = StatefulDataLoader(data, args.batch, sampler=sampler)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"][args.rank])
    step = saved["step"]
for index, (x, y) in enumerate(loader):
    if step == args.steps:
        break
    batch = index  # the mistake
    # right: batch = step
    if batch == 6:
        optimizer.param_groups[0]["lr"] /= 2
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        states = of_all_ranks(loader.state_dict())
        save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), loader=states, step=step)
