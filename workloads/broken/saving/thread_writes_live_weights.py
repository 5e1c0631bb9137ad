"""A thread in the background writes the weights themselves, while the training goes on to change them."""

import copy
import threading

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import pairs, rows_of, start, sync_folder, write

args = start()
data, net = pairs(), DDP(nn.Sequential(nn.Linear(8, 16), *(nn.Linear(16, 16) for _ in range(10)), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
step = 0
writers = []
if args.resume and (found := max(folder.glob("step_????"), default=None)):
    net.module.load_state_dict({path.name: torch.load(path) for path in found.glob("*.*")})
    rest = torch.load(found / "rest")
    optimizer.load_state_dict(rest["optimizer"])
    step = rest["step"]


def write_out(final, model, rest):
    """In the background: a file per tensor, as a sharded store has them, and the name when all are there."""
    staging = final.with_suffix(".tmp")
    staging.mkdir(exist_ok=True)
    write(staging / "rest", rest)
    for key, tensor in model.items():
        write(staging / key, tensor)
    sync_folder(staging)
    staging.rename(final)
    sync_folder(folder)


def keep():
    """The writer before is waited for, then the state is handed to a new one."""
    while writers:
        writers.pop().join()
    if args.rank == 0:
        rest = {"optimizer": copy.deepcopy(optimizer.state_dict()), "step": step}
        model = net.module.state_dict()  # the mistake
        # right: model = copy.deepcopy(net.module.state_dict())
        writer = threading.Thread(target=write_out, args=(folder / f"step_{step:04d}", model, rest))
        writer.start()
        writers.append(writer)


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        keep()
while writers:
    writers.pop().join()
