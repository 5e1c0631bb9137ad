"""When a resumed run differs from the uninterrupted one by rounding alone, and for a reason that is seen.

DistributedDataParallel lays out its buckets anew after the first step of a process. So the first step after a restart reduces gradients in other pieces than the
uninterrupted run does in the same step, and from three ranks on a sum of other pieces is added in another order: the same gradients, another last bit. That is
no fault of the job's. It is believed only where all that goes into the step is equal bit for bit (weights, optimizer state, buffers, samples, learning rate, random
numbers, loss), where other pieces were seen to be reduced, and where every tensor's norm stays within half of its digits. All that is not a
number of the training (samples, rates, random numbers, scales) has to stay equal in every later step, and the losses stay as near.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.trace import Trace
from reports.statistics import UNIT_ROUNDOFF

State = Mapping[str, Any]
ROUNDED = ("grad_digest", "optimizer_digest", "copy_digest", "param_digest")
"""What a sum in another order may change in the step in which it happens; later also the loss and running statistics."""
LATER = ("losses", "buffer_digest", *ROUNDED)
FEWEST_RANKS = 3
"""Two numbers have one sum, whichever comes first."""
HELD = ("param_digest", "optimizer_digest", "buffer_digest", "copy_digest", "scales")


@dataclass(frozen=True, slots=True)
class Rounded:
    """From which step (of the control's count) on a run is equal to rounding only; the largest relative deviation of a tensor's gradient norm there,
    and of a later loss; the bound on both.
    """

    step: int
    gradient: float
    loss: float
    bound: float

    def words(self, ranks: int) -> str:
        """One clause that weakens a claim of bit-equality."""
        return (
            f"from step {self.step} on to rounding only: the first step of a process reduces gradients in other pieces than later ones (DDP lays out its buckets "
            f"anew), so {ranks} ranks add them in another order (a tensor's gradient differs by {self.gradient:.1g} of its norm, a loss by {self.loss:.1g} at most; half of the digits are {self.bound:.1g}); "
            "weights, optimizer state, samples, learning rate and random numbers that went into it are equal bit for bit"
        )


def seen_of_sums(trace: Trace) -> dict[tuple[int, int], dict[str, Any]]:
    """By rank and step: the norm of every tensor's gradient, and the operations that put gradients or layouts together, in order."""
    norms = {key: tuple(group["norm"]) for key, group in trace.gradient_norms.groupby(["rank", "step"])}
    moved = trace.collectives.loc[trace.collectives["op"].isin(["allreduce", "reduce_scatter", "broadcast"])]
    pieces = {key: tuple(zip(group["op"].tolist(), group["bytes"].tolist(), strict=True)) for key, group in moved.groupby(["rank", "step"])}
    both = {*norms, *pieces}
    return {(int(str(key[0])), int(str(key[1]))): {"norms": norms.get(key), "pieces": pieces.get(key, ())} for key in both}


def precision(trace: Trace) -> float:
    """Half of the digits of the coarsest parameters: no sum of a few numbers rounds so far."""
    roundoffs = [
        UNIT_ROUNDOFF.get(str(entry["dtype"]).removeprefix("torch."), UNIT_ROUNDOFF["float32"]) for entry in trace.model()["parameters"]
    ]
    return math.sqrt(max(roundoffs, default=UNIT_ROUNDOFF["float32"]))


def other_sums(
    control: Mapping[int, Mapping[int, State]], resumed: Mapping[int, Mapping[int, State]], step: int, apart: Mapping[int, Sequence[str]]
) -> float | None:
    """The largest deviation of a tensor's gradient in the first step after the restart, where rounding explains it; None where it does not.

    step: the control's step that the run came back at. apart: by rank, the parts that differ in the step behind it.
    """
    if len(control) < FEWEST_RANKS or any(parts[0] != "grad_digest" or set(parts) - set(ROUNDED) for parts in apart.values()):
        return None
    if not all(_held_alike(control[rank][step], resumed[rank][0], step) for rank in resumed):
        return None
    if not any(_other_pieces(control[rank], resumed[rank], step) for rank in resumed):
        return None
    pairs = [(control[rank][step + 1].get("norms"), resumed[rank][1].get("norms")) for rank in resumed if step + 1 in control[rank]]
    found = [_apart(one, two) for one, two in pairs]
    return max(found) if found else None


def loss_deviation(expected: Any, seen: Any) -> float:
    """Largest relative deviation between two recorded lists of losses (as text); infinite where they cannot be held against each other."""
    one, two = _numbers(expected), _numbers(seen)
    if len(one) != len(two):
        return math.inf
    return max(
        (
            0.0 if a == b or (math.isnan(a) and math.isnan(b)) else abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a - b) else math.inf
            for a, b in zip(one, two, strict=True)
        ),
        default=0.0,
    )


def _held_alike(saved: State, held: State, step: int) -> bool:
    """What the restart holds before its first step is, bit for bit, what was there after the control's: an optimizer's state must have been seen."""
    if not step or saved.get("optimizer_digest") is None or held.get("optimizer_digest") is None:
        return False
    return all(saved.get(part) == held.get(part) for part in HELD)


def _other_pieces(control: Mapping[int, State], resumed: Mapping[int, State], step: int) -> bool:
    """Whether the first step reduced other pieces, or the second one sent a new layout round where the control did not."""
    return any(control.get(step + at, {}).get("pieces") != resumed.get(at, {}).get("pieces") for at in (1, 2) if step + at in control)


def _apart(one: Iterable[float] | None, two: Iterable[float] | None) -> float:
    if one is None or two is None:
        return math.inf
    pairs = list(zip(one, two, strict=True))
    return max(
        (abs(a - b) / max(abs(a), abs(b)) if a != b and not (math.isnan(a) and math.isnan(b)) else 0.0 for a, b in pairs), default=0.0
    )


def _numbers(listed: Any) -> list[float]:
    return [float(part) for part in str(listed).strip("[]").split(",") if part.strip()] if listed is not None else []
