"""The loader that skips what was trained on already is built with a sampler of its own, which nobody tells the epoch."""

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
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler, generator=torch.Generator())
torch.manual_seed(args.seed + args.rank)
step = 0


def skipping(loader, batches):
    """The loader without its first batches."""
    rest = DistributedSampler(loader.dataset, seed=args.seed)  # the mistake
    # right: rest = loader.sampler
    return DataLoader(loader.dataset, args.batch, sampler=list(rest)[batches * args.batch :], generator=torch.Generator())


if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]
while step < args.steps:
    epoch, done = divmod(step, len(loader))
    sampler.set_epoch(epoch)
    for x, y in skipping(loader, done) if done else loader:
        if step == args.steps:
            break
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
        step += 1
        if step % 4 == 0:
            rng = of_all_ranks(torch.get_rng_state())
            save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), rng=rng, step=step)
