"""What each rank has left of its epoch is saved by rank; on fewer ranks what the others had left is never seen."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data, net = pairs(), DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
step, epoch, left = 0, 0, []


def dealt(epoch):
    """This rank's samples of an epoch, in order."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(100 * args.seed + epoch)).tolist()
    return order[args.rank :: args.world]


if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step, epoch = saved["step"], saved["epoch"]
    left = saved["left"].get(args.rank, [])  # the mistake
    # right: left = [one for turn in zip(*saved["left"].values(), strict=True) for one in turn][args.rank :: args.world]
while step < args.steps:
    if not left:
        left, epoch = dealt(epoch), epoch + 1
    for x, y in DataLoader(data, args.batch, sampler=list(left)):
        if step == args.steps:
            break
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
        step, left = step + 1, left[args.batch :]
        if step % 4 == 0:
            everything = dict(enumerate(of_all_ranks(left)))
            save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), step=step, epoch=epoch, left=everything)
