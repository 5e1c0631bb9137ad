"""The optimizer and its schedule: AdamW, weight decay on matrices only, warm-up and cosine by global step."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from workloads.loop import warm_up_and_cosine

WEIGHT_DECAY = 0.05
WARM_UP_SHARE = 0.05


def adamw(model: nn.Module, learning_rate: float, total_steps: int) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """AdamW over the model's parameters, in two groups, and its schedule over `total_steps` optimizer steps.

    Raises ValueError for a learning rate or number of steps that is not positive.
    """
    if learning_rate <= 0 or total_steps < 1:
        raise ValueError(f"--learning-rate {learning_rate} and --steps {total_steps} must be positive")
    in_embedding = {id(parameter) for module in model.modules() if isinstance(module, nn.Embedding) for parameter in module.parameters()}
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1 and id(parameter) not in in_embedding]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1 or id(parameter) in in_embedding]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=True)
    return optimizer, LambdaLR(optimizer, warm_up_and_cosine(max(1, round(WARM_UP_SHARE * total_steps)), total_steps))
