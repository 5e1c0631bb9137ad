"""Batches are drawn at random from a generator that is seeded anew at every start."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
drawn = torch.Generator().manual_seed(args.seed)
torch.manual_seed(args.seed + args.rank)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]
    # right: drawn.set_state(saved["drawn"])
while step < args.steps:
    chosen = torch.randint(len(data), (args.global_batch,), generator=drawn)
    x, y = data[chosen[args.rank :: args.world]]
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    scheduler.step()
    step += 1
    if step % 4 == 0:
        save(
            args,
            drawn=drawn.get_state(),
            model=net.module.state_dict(),
            optimizer=optimizer.state_dict(),
            scheduler=scheduler.state_dict(),
            rng=of_all_ranks(torch.get_rng_state()),
            step=step,
        )
