"""Results are gathered from all processes with the rows by which Accelerate filled the last batch up."""

import torch
from accelerate import Accelerator
from torch.nn import functional
from torch.utils.data import DataLoader
from toy import mlp, pairs, start

args = start()
accelerator = Accelerator(cpu=True)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
held_out = DataLoader(pairs(45, seed=2), 4)
model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, DataLoader(pairs(), args.batch), held_out)
step = 0
while step < args.steps:
    for x, y in loader:
        loss = functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == args.steps:
            break
model.eval()
found = []
for x, y in held_out:
    with torch.no_grad():
        errors = (model(x) - y).square().flatten()
    found.append(accelerator.gather(errors))  # the mistake
    # right: found.append(accelerator.gather_for_metrics(errors))
accelerator.print(f"validation {torch.cat(found).mean().item():.8f}", flush=True)
