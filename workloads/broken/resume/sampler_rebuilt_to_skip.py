"""To skip what was seen, a sampler is built anew from the first one's settings; its epoch is not among them."""

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
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler, generator=torch.Generator())
torch.manual_seed(args.seed + args.rank)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]
while step < args.steps:
    epoch, done = divmod(step, len(loader))
    sampler.set_epoch(epoch)
    again = DistributedSampler(data, seed=sampler.seed)
    # right: again.set_epoch(sampler.epoch)
    left = list(again)[done * args.batch :]
    for x, y in DataLoader(data, args.batch, sampler=left if done else sampler, generator=torch.Generator()):
        if step == args.steps:
            break
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
