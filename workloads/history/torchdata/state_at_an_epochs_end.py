"""The state of torchdata's loader is saved at the end of an epoch and loaded into a new one, which takes it for one that is through."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from toy import mlp, of_all_ranks, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
sampler = DistributedSampler(data, seed=args.seed)
loader = StatefulDataLoader(data, args.batch, sampler=sampler)
step = epoch = 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"][args.rank])
    step, epoch = saved["step"], saved["epoch"]
while step < args.steps:
    sampler.set_epoch(epoch)
    for x, y in loader:
        if step == args.steps:
            break
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
        step += 1
    epoch += 1
    states = of_all_ranks(loader.state_dict())
    save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), loader=states, step=step, epoch=epoch)
