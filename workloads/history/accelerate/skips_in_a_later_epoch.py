"""A run comes back in the middle of a later epoch, with the batches skipped that it had seen of it, as Accelerate's guide says."""

import json

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.nn import functional
from torch.utils.data import DataLoader
from toy import mlp, pairs, start

args = start()
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(pairs(), args.batch, shuffle=True))
folder = args.out / "checkpoints"
step = 0
if args.resume and (folder / "step.json").exists():
    step = json.loads((folder / "step.json").read_text())
    accelerator.load_state(str(folder / f"step{step}"))
while step < args.steps:
    epoch, done = divmod(step, len(loader))
    loader.set_epoch(epoch)
    left = accelerator.skip_first_batches(loader, done) if done else loader
    for x, y in left:
        loss = functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 4 == 0:
            accelerator.save_state(str(folder / f"step{step}"))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                (folder / "step.json").write_text(json.dumps(step))
        if step == args.steps:
            break
