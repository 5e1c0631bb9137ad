"""An asynchronous save copies the optimizer's tensors and not the model's, which the next step changes before they are written."""

import copy
import threading

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
writer, slow = None, threading.Event()


def write_later(state):
    slow.wait()
    write_whole(folder / "last.pt", state)


if args.resume and (folder / "last.pt").exists():
    step = put_back(args, torch.load(folder / "last.pt"), net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if writer is not None:  # a slow store: it has the checkpoint when the next step is done
        slow.set()
        writer.join()
        writer = None
    if step % 4 == 0:
        state = state_of(net, optimizer, step)
        state["optimizer"] = copy.deepcopy(state["optimizer"])  # the mistake
        # right: state = copy.deepcopy(state)
        if args.rank == 0:
            slow.clear()
            writer = threading.Thread(target=write_later, args=(state,))
            writer.start()
if writer is not None:
    slow.set()
    writer.join()
