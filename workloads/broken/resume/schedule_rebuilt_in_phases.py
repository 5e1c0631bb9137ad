"""A schedule of two phases is built again with last_epoch, which starts only its first phase."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)


def schedule(done):
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0, 100, last_epoch=done)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9, last_epoch=done)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [constant, falling], [3], last_epoch=done)


scheduler = schedule(-1)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler, generator=torch.Generator())
torch.manual_seed(args.seed + args.rank)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler = schedule(saved["step"])  # the mistake
    # right: scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]
while step < args.steps:
    epoch, done = divmod(step, len(loader))
    sampler.set_epoch(epoch)
    for index, (x, y) in enumerate(loader):
        if index < done or step == args.steps:
            continue
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 4 == 0:
            save(
                args,
                model=net.module.state_dict(),
                optimizer=optimizer.state_dict(),
                scheduler=scheduler.state_dict(),
                rng=of_all_ranks(torch.get_rng_state()),
                step=step,
            )
