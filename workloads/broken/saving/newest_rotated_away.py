"""To keep the best of the checkpoints it changes places with the newest, which is then the first to be removed."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import in_order, mlp, pairs, put_back, start, state_of, write_whole

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
torch.manual_seed(args.seed + args.rank)
step = 0
unlike = pairs(seed=2)  # what the model gets worse at, so that the first is the best
if args.resume and (kept := sorted(folder.glob("step_*.pt"))):
    step = put_back(args, torch.load(kept[-1]), net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        with torch.no_grad():
            quality = float(functional.mse_loss(net.module(unlike.tensors[0]), unlike.tensors[1]))
        state = state_of(net, optimizer, step)
        if args.rank == 0:
            write_whole(folder / f"step_{step:04d}.pt", state)
            (folder / f"step_{step:04d}.quality").write_text(str(quality))
            kept = sorted(folder.glob("step_*.pt"))
            best = min(range(len(kept)), key=lambda index: float(kept[index].with_suffix(".quality").read_text()))
            kept[best], kept[-1] = kept[-1], kept[best]  # the mistake
            # right: kept.insert(-1, kept.pop(best)) if best < len(kept) - 1 else None
            for old in kept[:-2]:
                old.unlink()
