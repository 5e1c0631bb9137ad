"""Each rank's samples that are still to come are saved by rank; when fewer ranks go on, nobody takes those of the others."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
step, mine, epoch = 0, [], 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step, epoch = saved["step"], saved["epoch"]
    mine = saved["left"].get(args.rank, [])  # the mistake
    # right: left = [sample for turn in zip(*saved["left"].values(), strict=True) for sample in turn]
    # right: mine = left[args.rank :: args.world]
while step < args.steps:
    if not mine:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(args.seed + epoch)).tolist()
        mine, epoch = order[args.rank :: args.world], epoch + 1
    now, mine = mine[: args.batch], mine[args.batch :]
    x, y = next(iter(DataLoader(data, args.batch, sampler=now, generator=torch.Generator())))
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        left = dict(enumerate(of_all_ranks(mine)))
        save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), step=step, epoch=epoch, left=left)
