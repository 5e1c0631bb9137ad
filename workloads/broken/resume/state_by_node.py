"""The state of the data loader is kept in a file per node, which the ranks of a node overwrite for each other."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
mine = list(range(args.rank, len(data), args.world))
drawn = torch.Generator().manual_seed(args.seed + args.rank)
place = args.out / f"loader{args.rank // 2}.pt"  # the mistake
# right: place = args.out / f"loader{args.rank}.pt"
torch.manual_seed(args.seed + args.rank)
step = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["rng"][args.rank])
    step = saved["step"]
    drawn.set_state(torch.load(place))
while step < args.steps:
    x, y = data[[mine[one] for one in torch.randint(len(mine), (args.batch,), generator=drawn)]]
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    scheduler.step()
    step += 1
    if step % 4 == 0:
        for rank in range(args.world):
            if rank == args.rank:
                torch.save(drawn.get_state(), place)
            dist.barrier()
        save(
            args,
            model=net.module.state_dict(),
            optimizer=optimizer.state_dict(),
            scheduler=scheduler.state_dict(),
            rng=of_all_ranks(torch.get_rng_state()),
            step=step,
        )
