"""A schedule that was built in optimizer steps is prepared by Accelerate, which advances it once for every process."""

import torch
from accelerate import Accelerator
from torch.nn import functional
from torch.utils.data import DataLoader
from toy import mlp, pairs, start

args = start()
accelerator = Accelerator(cpu=True)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, args.steps)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(pairs(), args.batch, shuffle=True))
schedule = accelerator.prepare(schedule)  # the mistake
step = 0
while step < args.steps:
    for x, y in loader:
        loss = functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if step == args.steps:
            break
