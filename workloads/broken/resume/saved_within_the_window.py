"""The checkpoint is written between two micro-batches; the gradient gathered so far is not in it."""

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
loader = DataLoader(data, args.batch // 2, sampler=sampler, generator=torch.Generator())
torch.manual_seed(args.seed + args.rank)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]


def state():
    model, moments, rate = net.module.state_dict(), optimizer.state_dict(), scheduler.state_dict()
    return {"model": model, "optimizer": moments, "scheduler": rate, "rng": of_all_ranks(torch.get_rng_state()), "step": step}


resumed = 1 if saved else 0
while step < args.steps:
    epoch, done = divmod(2 * step, len(loader))
    done += resumed  # the mistake
    resumed = 0  # the mistake
    sampler.set_epoch(epoch)
    for index, (x, y) in enumerate(loader):
        if index < done or step == args.steps:
            continue
        (functional.mse_loss(net(x), y) / 2).backward()
        if index % 2 == 0:
            if step % 4 == 0 and step:  # the mistake
                save(args, **state())  # the mistake
            continue
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        step += 1
        # right: if step % 4 == 0:
        # right:     save(args, **state())
