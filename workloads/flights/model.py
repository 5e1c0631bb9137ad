"""The model: a small transformer over groups of features, then a residual MLP.

Each group of inputs (schedule, aircraft, incoming leg, weather, airport, carrier) becomes one token; attention lets them act on each other
(a late incoming aircraft matters less with a long time on the ground); the MLP decides. About 1.2 million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from workloads.flights.inputs import CATEGORIES, CATEGORY_GROUP, GROUPS

EMBEDDING_WIDTHS = {"carrier": 16, "origin": 4, "destination": 24, "hour": 12, "weekday": 6, "manufacturer": 6}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model, checked here; `dropout` is a probability and 0 by default."""

    width: int = 96
    heads: int = 4
    layers: int = 2
    head_width: int = 256
    head_blocks: int = 3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be from 0 to below 1")


class Residual(nn.Module):
    """x + MLP(norm(x)), for x [..., width]."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.dropout(self.down(functional.gelu(self.up(self.norm(x)))))
        return x + out


class Attention(nn.Module):
    """x + attention among the tokens of norm(x), for x [rows, tokens, width]."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        query, key, value = self.query_key_value(self.norm(x)).view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, tokens, width)
        out: torch.Tensor = self.dropout(self.out(mixed))
        return x + out


class FlightModel(nn.Module):
    """(categories int64 [rows, categories], numbers float [rows, features]) -> logits [rows] of being late."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {name: nn.Embedding(1 + len(values), EMBEDDING_WIDTHS[name]) for name, values in CATEGORIES.items()}
        )
        self.tokens = nn.ModuleDict({group: nn.Linear(_group_width(group), shape.width) for group in GROUPS})
        mixing: list[nn.Module] = []
        for _ in range(shape.layers):
            mixing += [Attention(shape.width, shape.heads, shape.dropout), Residual(shape.width, 4 * shape.width, shape.dropout)]
        self.mixing = nn.Sequential(*mixing)
        blocks = [Residual(shape.head_width, 2 * shape.head_width, shape.dropout) for _ in range(shape.head_blocks)]
        self.head = nn.Sequential(
            nn.LayerNorm(len(GROUPS) * shape.width),
            nn.Linear(len(GROUPS) * shape.width, shape.head_width),
            *blocks,
            nn.LayerNorm(shape.head_width),
        )
        self.logit = nn.Linear(shape.head_width, 1)

    def forward(self, categories: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        embedded = {name: embedding(categories[:, column]) for column, (name, embedding) in enumerate(self.embeddings.items())}
        parts = torch.split(numbers, [len(features) for features in GROUPS.values()], dim=1)
        tokens = []
        for (group, to_token), part in zip(self.tokens.items(), parts, strict=True):
            own = [vectors for name, vectors in embedded.items() if CATEGORY_GROUP.get(name, "schedule") == group]
            tokens.append(to_token(torch.cat([part, *own], dim=1)))
        mixed = self.mixing(torch.stack(tokens, dim=1))
        logits: torch.Tensor = self.logit(self.head(mixed.flatten(1)))
        return logits.squeeze(1)


def _group_width(group: str) -> int:
    embedded = sum(EMBEDDING_WIDTHS[name] for name in CATEGORIES if CATEGORY_GROUP.get(name, "schedule") == group)
    return len(GROUPS[group]) + embedded
