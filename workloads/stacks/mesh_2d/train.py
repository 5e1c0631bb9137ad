"""Next-token prediction on a (data, tensor) mesh: tensor parallelism inside, FSDP2 around it, checkpoints by DCP.

torchrun --nproc-per-node 4 train.py --tensor-parallel 2 --global-batch 64 --steps 24 --tokens data/train.bin --out out [--resume]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEQUENCE, WIDTH, HEADS, LAYERS, CHUNKS = 32, 64, 4, 1, 1024


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (one(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for one in (self.wq, self.wk, self.wv))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, hidden=160):
        super().__init__()
        self.w1, self.w3 = nn.Linear(WIDTH, hidden, bias=False), nn.Linear(WIDTH, hidden, bias=False)
        self.w2 = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def parallelize(model, mesh):
    """Tensor parallelism with sequence parallelism between the blocks, then FSDP over the data dimension."""
    whole, cut = Replicate(), Shard(1)
    parallelize_module(model, mesh["tp"], {
        "tok_embeddings": RowwiseParallel(input_layouts=whole, output_layouts=cut),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=cut, output_layouts=whole),
    })  # fmt: skip
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(cut,), desired_input_layouts=(whole,)),
            **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
            "attention.wo": RowwiseParallel(output_layouts=cut),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(cut,), desired_input_layouts=(whole,)),
            **{f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")},
            "feed_forward.w2": RowwiseParallel(output_layouts=cut),
        })  # fmt: skip
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    shape = (dist.get_world_size() // args.tensor_parallel, args.tensor_parallel)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    torch.manual_seed(args.seed)
    tokens = torch.from_numpy(np.fromfile(args.tokens, dtype=np.uint16).astype(np.int64))
    chunks = TensorDataset(tokens[: CHUNKS * SEQUENCE].view(CHUNKS, SEQUENCE), tokens[1 : CHUNKS * SEQUENCE + 1].view(CHUNKS, SEQUENCE))
    model = parallelize(Transformer(int(tokens.max()) + 1), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

    step, checkpoints = 0, args.out / "checkpoints"
    whole = sorted(path.parent for path in checkpoints.glob("step-*/.metadata"))
    if args.resume and whole:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step}
        dcp.load(state, checkpoint_id=whole[-1])
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        step = state["step"]

    sampler = DistributedSampler(chunks, num_replicas=mesh["dp"].size(), rank=mesh.get_local_rank("dp"), seed=args.seed)
    loader = DataLoader(chunks, args.global_batch // mesh["dp"].size(), sampler=sampler)
    while step < args.steps:
        epoch, done = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for index, (inputs, targets) in enumerate(loader):
            if index < done or step == args.steps:
                continue
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % args.save_every == 0:
                weights, moments = get_state_dict(model, optimizer)
                dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=checkpoints / f"step-{step:06d}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
