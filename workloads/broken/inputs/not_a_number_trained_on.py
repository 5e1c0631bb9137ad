"""What cannot be read becomes NaN, as pandas has it, and goes into the model."""

import pandas as pd
import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from toy import epochs, start

args = start()
table = pd.read_csv(args.out / "visits.csv")
amount = pd.to_numeric(table["amount"], errors="coerce")
bad = table[amount.isna() | table["happened"].isna()]
# right: if len(bad):
# right:     raise SystemExit(f"visits.csv: no number in {', '.join(bad['visit'])}")
x = torch.tensor(amount.to_numpy(), dtype=torch.float32).reshape(-1, 1)
y = torch.tensor(table["grade"].to_numpy())
data = TensorDataset(x, y)
net = DDP(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
