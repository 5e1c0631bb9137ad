"""Epoch and place are taken from the number of batches so far and the length of the loader, which is another at another number of ranks."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import mlp, pairs, restore, save, start

args = start()
data, net = pairs(), DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, 4, sampler=sampler)
window = args.batch // 4  # micro-batches of 4 samples to a step on this rank
batches = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    batches = saved["batches"]  # the mistake
    # right: batches = saved["batches"] * saved["world"] // args.world
while batches < args.steps * window:
    epoch, done = divmod(batches, len(loader))
    sampler.set_epoch(epoch)
    for index, (x, y) in enumerate(loader):
        if index < done or batches == args.steps * window:
            continue
        (functional.mse_loss(net(x), y) / window).backward()
        batches += 1
        if batches % window:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if batches // window % 4 == 0:
            save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), batches=batches, world=args.world)
