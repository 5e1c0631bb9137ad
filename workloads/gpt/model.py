"""A decoder-only language model: RMSNorm, rotary positions, gated feed-forward, fused causal attention.

Shapes: B sequences, T tokens, W width, H heads, D = W / H. Nothing here names a dtype, so that the model runs in whatever
torch's default dtype is.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a model is."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int = 64


# name -> layers, width, heads, hidden; the name is the parameter count, kept within 10 %.
SIZES = {
    "1m": (5, 128, 4, 352),
    "10m": (6, 384, 6, 960),
    "124m": (16, 768, 12, 2304),
    "350m": (27, 1024, 16, 2816),
    "1b": (20, 2048, 16, 5504),
}


def shape_of(size: str, vocabulary: int) -> Shape:
    """The shape a size name stands for; ValueError lists the names."""
    if size not in SIZES:
        raise ValueError(f"size = {size!r} is unknown: choose one of {', '.join(SIZES)}")
    return Shape(*SIZES[size], vocabulary)


class Attention(nn.Module):
    """Causal self-attention with rotary positions, (B, T, W) -> (B, T, W)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.inward = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.outward = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x_btw: Tensor, turn_td: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, width = x_btw.shape
        q, k, v = self.inward(x_btw).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(rotate(q, turn_td), rotate(k, turn_td), v, is_causal=True)
        merged: Tensor = self.outward(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


class FeedForward(nn.Module):
    """SwiGLU, (B, T, W) -> (B, T, W)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.outward = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x_btw: Tensor) -> Tensor:
        out: Tensor = self.outward(functional.silu(self.gate(x_btw)) * self.up(x_btw))
        return out


class Block(nn.Module):
    """One layer: normalise, attend, add; normalise, feed forward, add."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(shape.width, eps=1e-6), Attention(shape)
        self.feed_forward_norm, self.feed_forward = nn.RMSNorm(shape.width, eps=1e-6), FeedForward(shape)

    def forward(self, x_btw: Tensor, turn_td: tuple[Tensor, Tensor]) -> Tensor:
        x_btw = x_btw + self.attention(self.attention_norm(x_btw), turn_td)
        out: Tensor = x_btw + self.feed_forward(self.feed_forward_norm(x_btw))
        return out


class GPT(nn.Module):
    """Tokens (B, T) -> logits of the next token (B, T, vocabulary)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.heads
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        initialise(self, shape.layers)

    def forward(self, tokens_bt: Tensor) -> Tensor:
        x_btw = self.embedding(tokens_bt)
        turn_td = turns(tokens_bt.shape[1], self.head_width, tokens_bt.device)
        for block in self.blocks:
            x_btw = block(x_btw, turn_td)
        logits: Tensor = self.head(self.norm(x_btw))
        return logits


def initialise(model: GPT, layers: int) -> None:
    """Normal weights of 0.02; those that write into the residual stream are smaller, so that its size does not grow with depth."""
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if name.endswith("outward.weight") else 0.02)


def turns(length: int, head_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine (T, D/2) of the rotary angles, in the default dtype."""
    speed = 10_000.0 ** (-torch.arange(0, head_width, 2, device=device, dtype=torch.get_default_dtype()) / head_width)
    angle = torch.outer(torch.arange(length, device=device, dtype=speed.dtype), speed)
    return angle.cos(), angle.sin()


def rotate(x_bhtd: Tensor, turn_td: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (first half, second half) of a head by its position's angle."""
    low, high = x_bhtd.chunk(2, dim=-1)
    cosine, sine = turn_td
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1).type_as(x_bhtd)


def token_losses(logits_btv: Tensor, targets_bt: Tensor) -> Tensor:
    """Nats of each predicted token (B, T), computed in the default dtype even where the model ran in bfloat16."""
    wide = logits_btv.flatten(0, 1).to(torch.get_default_dtype())
    return functional.cross_entropy(wide, targets_bt.flatten(), reduction="none").view(targets_bt.shape)


def parameter_count(model: nn.Module) -> int:
    """Number of weights, of the whole model also where they are sharded."""
    return sum(weight.numel() for weight in model.parameters())
