"""Ending on request: a scheduler that takes the machine away sends SIGTERM first, and the ranks agree after which step to stop.

A signal reaches the ranks at different moments, and a rank that stopped alone would leave the others waiting in a collective. So the rank that gets it
writes into the group's store a step that none can have passed: ranks are at most one step apart, since every step ends with a collective of all.
Looking is one question to the store per step; it takes part in no collective and changes nothing in what is trained.
"""

from __future__ import annotations

import signal
import types

import torch.distributed as dist
from torch._C._distributed_c10d import Store

KEY = "stop_after_step"


def group_store() -> Store | None:
    """The store by which the ranks found each other, None without a process group. torch has no public way to it."""
    return dist.distributed_c10d._get_default_store() if dist.is_initialized() else None


class StopRequest:
    """Whether and after which step to stop. `store` is that of the process group, None in a world of one."""

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self.asked = False
        self.last_step: int | None = None

    def listen(self) -> None:
        """From now on SIGTERM asks for an end instead of being one."""
        signal.signal(signal.SIGTERM, self._ask)

    def after(self, step: int) -> bool:
        """Called when `step` is done; True on every rank after the same step, once any rank was asked to end."""
        if self.store is None:
            return self.asked
        if self.asked and self.last_step is None:
            self.store.compare_set(KEY, "", str(step + 1))
        if self.last_step is None and self.store.check([KEY]):
            self.last_step = int(self.store.get(KEY))
        return self.last_step is not None and step >= self.last_step

    def _ask(self, number: int, frame: types.FrameType | None) -> None:
        self.asked = True
