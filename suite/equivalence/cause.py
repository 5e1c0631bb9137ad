"""Why the gradients of several ranks differ from one device's, in the words of someone who has to mend the job.

Tried in turn: the ranks do not agree with each other (something is not reduced); all tensors are off by one factor (a sum taken for a mean, or the
reverse); the ranks' shares are weighted wrongly (found by taking the gradient apart into shares).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Gradient = Mapping[str, NDArray[np.float64]]
Contributions = Mapping[int, Gradient]
"""What each rank adds to the reduced gradient, by rank."""

SHOWN_TENSORS = 3


def why_gradients_differ(
    reference: Gradient,
    ranks: Mapping[int, Gradient],
    micro_batches: int,
    tolerance: float,
    shares: Contributions | None = None,
    alone_micro_batches: int = 0,
) -> str:
    """One sentence without a full stop.

    ranks: the gradient that each rank applied. tolerance: relative deviation up to which two gradients are the same. shares: see above.
    """
    disagreeing = unreduced(ranks, tolerance)
    if disagreeing:
        return _why_unreduced(reference, ranks, disagreeing, tolerance)
    own = ranks[0]
    factor, residual = fit(reference, own)
    if residual <= tolerance and not math.isclose(factor, 1.0, rel_tol=tolerance):
        return _why_scaled(factor, len(ranks), micro_batches, alone_micro_batches or micro_batches)
    touched = {name for share in (shares or {}).values() for name, value in share.items() if value.any()}
    weights, residual = share_weights(_of(reference, touched), {rank: _of(share, touched) for rank, share in (shares or {}).items()})
    others_agree = all(name in touched or _close(reference[name], own[name], tolerance) for name in reference)
    if weights and residual <= max(tolerance, 1e-9) and others_agree:
        return _why_weighted(weights, max(tolerance, 1e-9))
    off = [name for name in reference if not _close(reference[name], own[name], tolerance)]
    if len(off) < len(reference):
        return f"{len(off)} of {len(reference)} tensors differ from one device's gradient ({_shown(off)}), the others agree"
    return f"all {len(reference)} tensors differ from one device's gradient, and no single factor explains it"


def contributions(full: Gradient, muted: Mapping[int, Gradient]) -> dict[int, dict[str, NDArray[np.float64]]]:
    """Each rank's share of the reduced gradient: the full one less the one in which that rank's part was multiplied by 0."""
    return {rank: {name: value - without[name] for name, value in full.items()} for rank, without in muted.items()}


def unreduced(ranks: Mapping[int, Gradient], tolerance: float) -> dict[int, list[str]]:
    """By rank, the tensors whose gradient differs from rank 0's; only ranks that have any."""
    first = ranks[0]
    found = {rank: [name for name in first if not _close(first[name], own[name], tolerance)] for rank, own in ranks.items()}
    return {rank: names for rank, names in found.items() if names}


def fit(reference: Gradient, other: Gradient) -> tuple[float, float]:
    """The factor c that brings c * reference nearest to other, and what is left then, relative to other."""
    one, two = _flat(reference), _flat(other)
    factor = float(one @ two) / float(one @ one) if one.any() else math.nan
    norm = float(np.linalg.norm(two))
    return factor, float(np.linalg.norm(two - factor * one)) / norm if norm > 0 else math.inf


def share_weights(reference: Gradient, shares: Contributions) -> tuple[dict[int, float], float]:
    """How much each rank's share weighs in comparison with what it should (1.0), and what that leaves unexplained of the reference.

    Least squares of the reference on the shares; a share that is zero weighs 0.
    """
    present = {rank: _flat(share) for rank, share in sorted(shares.items()) if _flat(share).any()}
    if not present:
        return {}, math.inf
    target = _flat(reference)
    wanted, *_ = np.linalg.lstsq(np.stack(list(present.values()), axis=1), target, rcond=None)
    left = target - sum(weight * share for weight, share in zip(wanted, present.values(), strict=True))
    weights = {rank: 1.0 / float(weight) if weight else math.inf for rank, weight in zip(present, wanted, strict=True)}
    residual = float(np.linalg.norm(left)) / max(float(np.linalg.norm(target)), np.finfo(np.float64).tiny)
    return {rank: weights.get(rank, 0.0) for rank in sorted(shares)}, residual


def _why_unreduced(reference: Gradient, ranks: Mapping[int, Gradient], disagreeing: Mapping[int, Sequence[str]], tolerance: float) -> str:
    rank, names = next(iter(sorted(disagreeing.items())))
    mean = {name: np.mean([own[name] for own in ranks.values()], axis=0) for name in reference}
    never = (
        "they are never averaged, each rank applies its own"
        if all(_close(reference[name], mean[name], tolerance) for name in names)
        else "they changed after the reduction"
    )
    if len(names) == len(reference):
        return f"rank {rank}'s gradient differs from rank 0's in all {len(names)} tensors: {never}"
    return f"rank {rank}'s gradient differs from rank 0's in {len(names)} of {len(reference)} tensors ({_shown(names)}): {never}"


def _why_scaled(factor: float, world_size: int, micro_batches: int, alone_micro_batches: int) -> str:
    said = f"gradients differ by exactly {factor:.4g}"
    if micro_batches != alone_micro_batches > 1 and math.isclose(factor, micro_batches / alone_micro_batches, rel_tol=1e-6):
        counts = f"{micro_batches} micro-batches per step and rank where one device takes {alone_micro_batches}"
        return f"{said} = {counts}: their means are added up without dividing by their number"
    if math.isclose(factor, world_size, rel_tol=1e-6):
        return f"{said} = world size: summed over the ranks, not averaged"
    if math.isclose(factor, 1.0 / world_size, rel_tol=1e-6):
        return f"{said} = 1 / world size: averaged once too often, or only one rank's share arrives"
    if micro_batches > 1 and math.isclose(factor, micro_batches, rel_tol=1e-6):
        return f"{said} = micro-batches per step: accumulated without dividing by their number"
    return f"all gradients differ from one device's by one factor, {factor:.6g}: the loss is normalised otherwise on several ranks"


def _why_weighted(weights: Mapping[int, float], tolerance: float) -> str:
    """One rank off is that rank's fault; all off, some up and some down, is a mean over each rank's own count."""
    rank, weight = max(weights.items(), key=lambda item: abs(item[1] - 1.0))
    if weight == 0.0:
        return f"rank {rank}'s contribution is missing from the gradient"
    if abs(weight) > 1e6:
        return f"rank {rank} adds a gradient that has no part in one device's"
    if len(weights) > 1 and all(abs(own - 1.0) > tolerance for own in weights.values()):
        listed = ", ".join(f"{own:.3f}" for own in weights.values())
        return f"the ranks' shares of the gradient weigh {listed} times what they should: each rank divides by its own count (of labels, tokens, rows), not by the global one"
    return f"rank {rank}'s share of the gradient weighs {weight:.4g} times what it should"


def _close(one: NDArray[np.float64], two: NDArray[np.float64], tolerance: float) -> bool:
    return bool(np.linalg.norm(one - two) <= tolerance * max(np.linalg.norm(one), np.finfo(np.float64).tiny))


def _of(gradient: Gradient, names: set[str]) -> dict[str, NDArray[np.float64]]:
    """Some tensors of a gradient: those that several ranks hold whole (tensor parallel) are no rank's share."""
    return {name: gradient[name] for name in names}


def _flat(gradient: Gradient) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(gradient[name]) for name in sorted(gradient)])


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_TENSORS} more" if len(names) > SHOWN_TENSORS else ""
    return ", ".join(names[:SHOWN_TENSORS]) + more
