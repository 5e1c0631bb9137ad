"""A run comes back in the middle of an epoch; the loader has no state, so the data begins again with the epoch's first batch."""

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.nn import functional
from torch.utils.data import DataLoader
from toy import mlp, pairs, start

args = start()


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def training_step(self, batch, index):
        x, y = batch
        return functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


folder = args.out / "checkpoints"
trainer = lightning.Trainer(
    accelerator="cpu", devices=args.world, strategy="ddp" if args.world > 1 else "auto", max_steps=args.steps, logger=False,
    callbacks=[ModelCheckpoint(folder, every_n_train_steps=4, save_last=True, save_top_k=0)], enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
last = folder / "last.ckpt"
trainer.fit(Regression(), DataLoader(pairs(), args.batch), ckpt_path=str(last) if args.resume and last.exists() else None)
