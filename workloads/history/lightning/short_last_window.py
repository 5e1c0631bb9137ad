"""Gradients are accumulated over four batches; ten batches make an epoch, so its last window has two."""

import pytorch_lightning as lightning
import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from toy import labelled, mlp, start

args = start()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = mlp(4)

    def training_step(self, batch, index):
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


trainer = lightning.Trainer(
    accelerator="cpu", devices=args.world, strategy="ddp" if args.world > 1 else "auto", max_steps=args.steps, accumulate_grad_batches=4,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Classifier(), DataLoader(labelled(40), args.batch // 4, shuffle=True))
