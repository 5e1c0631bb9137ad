"""A nanoGPT-style script: no DataLoader, batches from a memmap by random offsets, DDP by hand. Runs on one device or with
$ torchrun --standalone --nproc_per_node=2 train.py --batch_size=8 --max_iters=24
"""

import math
import os
import pickle
import sys
from ast import literal_eval

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# default config values
out_dir = "out"
data_dir = "data"
eval_interval = 6
eval_iters = 4
init_from = "scratch"  # 'scratch' or 'resume'
seed = 1337
gradient_accumulation_steps = 4  # used to simulate larger batch sizes
batch_size = 8  # if gradient_accumulation_steps > 1, this is the micro-batch size
block_size = 32
n_layer, n_head, n_embd, dropout = 2, 4, 64, 0.0
learning_rate, weight_decay, beta1, beta2, grad_clip = 3e-3, 1e-1, 0.9, 0.95, 1.0
max_iters, warmup_iters, lr_decay_iters, min_lr = 24, 4, 100, 1e-4
backend, device = "gloo", "cpu"
# overrides: --key=value
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for key, val in (arg.removeprefix("--").split("=") for arg in sys.argv[1:]):
    assert key in config_keys, f"Unknown config key: {key}"
    globals()[key] = val if isinstance(globals()[key], str) else literal_eval(val)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # weight-tying

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


# various inits, derived attributes, I/O setup
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    ddp_rank, ddp_world_size = 0, 1
master_process = ddp_rank == 0
os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(seed + ddp_rank)


def get_batch(split):
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    rows = torch.stack([torch.from_numpy((data[i : i + block_size + 1]).astype(np.int64)) for i in ix])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


with open(os.path.join(data_dir, "meta.pkl"), "rb") as f:
    model_args = {"vocab_size": pickle.load(f)["vocab_size"], "block_size": block_size}
iter_num, best_val_loss = 0, 1e9
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model_args, iter_num, best_val_loss = checkpoint["model_args"], checkpoint["iter_num"], checkpoint["best_val_loss"]
model = GPT(**model_args).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(beta1, beta2), weight_decay=weight_decay)
if init_from == "resume":
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
if ddp:
    model = DDP(model)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {split: sum(raw_model(*get_batch(split))[1].item() for _ in range(eval_iters)) / eval_iters for split in ["train", "val"]}
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    decay_ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)


# training loop
X, Y = get_batch("train")
raw_model = model.module if ddp else model
while True:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num % eval_interval == 0 and master_process:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
        best_val_loss = min(best_val_loss, losses["val"])
        if iter_num > 0:
            state = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": model_args}
            torch.save({**state, "iter_num": iter_num, "best_val_loss": best_val_loss}, os.path.join(out_dir, "ckpt.pt"))
    if iter_num >= max_iters:
        break
    for micro_step in range(gradient_accumulation_steps):
        if ddp:  # sync gradients only at the last micro step
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")  # prefetch the next batch while the device works
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
if ddp:
    destroy_process_group()
