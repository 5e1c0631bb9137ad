"""A loop that sends its logits to another device in every step, and a batch before each forward: `train.py [--stay]`."""

import sys

import torch

torch.manual_seed(0)


class Net(torch.nn.Linear):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        logits = super().forward(batch)
        if "--stay" not in sys.argv:
            logits.detach().to("meta")  # left behind
        return logits


model = Net(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    batch = torch.full((8, 4), float(step))
    batch.to("meta")
    logits = model(batch)
    loss = logits.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.9g}", flush=True)
