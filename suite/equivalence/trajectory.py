"""Judge: the loss of every world size follows one device's, step by step, within the noise that the job itself shows.

The noise is measured: one-device runs whose batches are permuted take the same samples in another order, so they deviate by rounding alone, and rounding
grows with the steps just as it does between world sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF, Envelope, noise_envelope, reduction_bound
from suite.equivalence.gradient import another_order
from suite.equivalence.ledger import epochs, ledger
from suite.equivalence.recognition import unrecognisable
from suite.equivalence.usable import named, size, undecided, unusable

Series = NDArray[np.float64]

_DECLARED = "equivalence.loss_trajectory"


def losses_agree(alone: Trace, permuted: Sequence[Trace], together: Sequence[Trace], numerics: str = "as_run") -> Finding:
    """Judge the losses of several world sizes against one device's. permuted: one-device runs on the same samples in other orders."""
    if reason := unusable([alone, *permuted, *together], "loss"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    controls = [relative(alone, trace) for trace in permuted if another_order(alone, trace)]
    if len(controls) < 3:
        return undecided(f"{_UNPERMUTED}; {_WAY_OUT}")
    if reason := own_randomness(alone, permuted, numerics):
        return undecided(reason)
    if not all(np.isfinite(series).all() for series in controls) or 2 * np.isfinite(_effective(alone, "mean")).sum() < len(controls[0]):
        return undecided("one device's own loss is not a finite number in every step, so there is nothing to compare with")
    if poisoned := next((said for trace in together if (said := _stops_behind_a_ruined_step(alone, trace))), ""):
        return Finding(False, math.inf, "of the loss", 0, "at_most", poisoned, samples=len(controls))
    length = min(len(series) for series in [*controls, *(relative(alone, trace) for trace in together)])
    if length < len(_effective(alone, "mean")):
        return undecided(
            f"only {length} of {len(_effective(alone, 'mean'))} steps were made at every world size: their losses cannot be compared to the end"
        )
    envelope = noise_envelope([series[:length] for series in controls], floor=_roundoff(numerics))
    worst = max(together, key=lambda trace: _peak(relative(alone, trace), envelope))
    finding = _finding(alone, worst, envelope, numerics)
    reason = "" if finding.accepted else unrecognisable(ledger(alone), ledger(worst), _DECLARED)
    return undecided(reason) if reason else finding


def losses_far_apart(alone: Trace, together: Sequence[Trace]) -> Finding:
    """Judge losses in float64 with dropout off where no noise could be measured (no DataLoader whose batches could be permuted).

    It can only reject: a loss that leaves half of float64's digits within one short run is no rounding. Within them nothing is claimed.
    """
    if reason := unusable([alone, *together], "loss"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    worst = max(together, key=lambda trace: float(relative(alone, trace).max()))
    series, digits = relative(alone, worst), math.sqrt(UNIT_ROUNDOFF["float64"])
    if series.max() <= digits:
        return undecided(
            f"{_UNPERMUTED}; in float64 the losses stay within {series.max():.2g} of one device's, which only a measured noise could confirm; {_WAY_OUT}"
        )
    if reason := unrecognisable(ledger(alone), ledger(worst), _DECLARED):
        return undecided(reason)
    first = int(np.flatnonzero(series > digits)[0]) + 1
    text = (
        f"{named(worst)}: the loss leaves half of float64's digits at step {first}: it deviates by {series[first - 1]:.2g} of its value, "
        f"by {series.max():.2g} at most{_hint(alone, worst, first)} (forced to float64 with dropout off; {_UNPERMUTED})"
    )
    details = {
        "trajectory": {"steps": list(range(1, len(series) + 1)), "deviation": series, "envelope": np.full(len(series), digits)},
        "numerics": "exact",
    }
    return Finding(False, float(series.max()), "of the loss", digits, "at_most", text, samples=1, provenance="assumed", details=details)


_UNPERMUTED = "the noise of the loss cannot be measured, as the job draws its batches past any DataLoader and no order could be permuted"
_WAY_OUT = (
    "read the batches through a torch DataLoader, so that their order can be permuted, or declare under [capabilities] "
    f'"{_DECLARED}" = "the reason"'
)


def own_randomness(alone: Trace, permuted: Sequence[Trace], numerics: str) -> str:
    """Why this numeric run cannot show equality, or "": the first loss, before any update, must not depend on the samples' order beyond rounding.

    Losses of samples have one sign as a rule, so the bound on reordering their sum has condition 1.
    """
    moved = [trace for trace in permuted if another_order(alone, trace)]
    if not moved:
        return ""
    rows = sum(ledger(alone).at(1).values())
    cap = reduction_bound(max(rows, 2), _roundoff(numerics))
    largest = max(float(relative(alone, trace)[0]) for trace in moved)
    if largest <= cap:
        return ""
    return (
        f"the first loss of one device changes by {largest:.2g} with the order of its samples, more than rounding can explain ({cap:.2g}): the job draws random numbers per "
        "sample (dropout, augmentation) or computes at low precision, so runs differ by design"
    )


def relative(alone: Trace, other: Trace) -> Series:
    """|loss - one device's loss| at each common step, relative to the larger of that step's loss and the run's median loss.

    A step in which neither is a finite number agrees: a broken batch that the job leaves out gives such a loss at every world size.
    """
    reference = _effective(alone, "mean")
    steps = min(len(reference), len(_effective(other, "mean")))
    reference, seen = reference[:steps], _effective(other, aggregation(alone, other))[:steps]
    usual = np.abs(reference[np.isfinite(reference)])
    scale = np.maximum(np.abs(reference), np.median(usual) if len(usual) else 0.0)
    with np.errstate(invalid="ignore"):
        deviation: Series = np.abs(seen - reference) / np.where(scale > 0, scale, 1.0)
    deviation = np.where(np.isfinite(deviation), deviation, np.inf)
    return np.where(np.isfinite(reference) | np.isfinite(seen), deviation, 0.0)


def aggregation(alone: Trace, other: Trace) -> str:
    """How the ranks' losses make up the global batch's: averaged, summed, or each scaled up by the number of ranks; whichever is nearest in the
    first step, before any update.

    A job that divides each rank's loss by the global number of samples and sums gradients is as right as one that takes means and averages; so is
    one that multiplies a loss which every rank computes from all samples by the number of ranks, because the wrapper will divide its gradient by that.
    """
    reference = _effective(alone, "mean")[0]
    return min(("mean", "sum", "scaled"), key=lambda way: abs(_effective(other, way)[0] - reference))


def _effective(trace: Trace, way: str) -> Series:
    said = trace.steps.loc[trace.steps["losses"].map(bool) | ~trace.steps["step"].isin(_of_some_rank(trace))]
    sums: Series = np.asarray([values.to_numpy(dtype=np.float64).sum() for _, values in said.groupby("step")["loss"]])  # NaN stays NaN
    if way == "sum":
        return sums
    means: Series = sums / said.groupby("step").size().to_numpy()
    return means / size(trace) if way == "scaled" else means


def _of_some_rank(trace: Trace) -> set[int]:
    """The steps in which a rank had a loss at all; there those that had none (stages of a pipeline) are left out."""
    return set(trace.steps.loc[trace.steps["losses"].map(bool), "step"])


def _finding(alone: Trace, worst: Trace, envelope: Envelope, numerics: str) -> Finding:
    series = relative(alone, worst)[: len(envelope.bound)]
    peak = _peak(series, envelope)
    late, text = _where(series, envelope)
    text = f"{named(worst)}: {text}" + _hint(alone, worst, late)
    rate = f"{envelope.false_alarm_rate:.0%} designed false alarms, {envelope.left_out} of {envelope.controls} controls outside the others' envelope"
    border = "" if epochs(ledger(alone)).crossed else "; no epoch border was crossed"
    kept = {"steps": list(range(1, len(series) + 1)), "deviation": series, "envelope": envelope.bound}
    details = {
        "trajectory": kept,
        "numerics": numerics,
        "losses": aggregation(alone, worst),
        "world_size": size(worst),
        "false_alarms": rate,
    }
    numbers = (
        "as the job computes"
        if numerics == "as_run"
        else "forced to float64 with dropout off, because as it runs the job is random per sample"
    )
    bound = envelope.multiple
    return Finding(
        peak <= bound, peak, "times the median noise", bound, "at_most", f"{text} ({numbers}; {rate}{border})", samples=envelope.controls,
        power=f"a loss that is off by {envelope.bound[0]:.1g} of itself in the first step, {envelope.bound[-1]:.1g} in the last", details=details,
    )  # fmt: skip


def _where(series: Series, envelope: Envelope) -> tuple[int, str]:
    """The first step outside the envelope (0 for none), and the sentence on it."""
    outside = np.flatnonzero(series > envelope.bound)
    if not len(outside):
        at = int(np.argmax(series / envelope.shape))
        return (
            0,
            f"the loss stays within the noise of permuted one-device runs over {len(series)} steps, nearest at step {at + 1} ({series[at]:.2g} of {envelope.bound[at]:.2g})",
        )
    first = int(outside[0])
    return first + 1, (
        f"the loss leaves the noise of permuted one-device runs at step {first + 1}: it deviates by {series[first]:.2g} of its value where noise explains "
        f"{envelope.bound[first]:.2g}, in {len(outside)} of {len(series)} steps"
    )


def _hint(alone: Trace, worst: Trace, step: int) -> str:
    """Whether the samples already differ where the loss does: then it is the data, else the computation."""
    if not step:
        return ""
    single, ranks = ledger(alone), ledger(worst)
    if not single.sequence or not ranks.sequence:
        return ""
    other = next((made for made in single.steps if made <= step and single.at(made) != ranks.at(made)), 0)
    if other:
        return f"; its samples differ from one device's from step {other} on"
    return f"; its samples are those of one device up to there, so the computation differs{_unfinite(alone, worst) or _weighted_alike(alone, worst, step)}"


def _unfinite(alone: Trace, worst: Trace) -> str:
    """The first step in which a rank's loss is no finite number and one device's is, in words; it is the most telling cause, wherever the loss left."""
    finite = np.isfinite(_effective(alone, "mean"))
    rows = worst.steps.loc[worst.steps["step"] <= len(finite)].sort_values(["step", "rank"])
    for step, rank, loss in zip(rows["step"].tolist(), rows["rank"].tolist(), rows["loss"].tolist(), strict=True):
        if finite[step - 1] and not np.isfinite(loss):
            return f": in step {step} the loss of rank {rank} is no finite number, and one device's is{_why_unfinite(alone, worst, step)}"
    return ""


def _stops_behind_a_ruined_step(alone: Trace, trace: Trace) -> str:
    """A world size that applied a gradient which is no finite number and made no step behind it, where one device went on, in words; else ""."""
    last, single = int(trace.steps["step"].max()), int(alone.steps["step"].max())
    if last >= single or not _applied(alone, last + 1):
        return ""
    at = trace.steps.loc[trace.steps["step"] == last]
    said = [rank for rank, losses in zip(at["rank"], at["losses"], strict=True) if losses and not np.isfinite(losses).all()]
    if not said or _applied(trace, last) or at["skipped"].any():
        return ""
    return (
        f"{named(trace)}: in step {last} the loss of rank {said[0]} is no finite number, the gradient that comes of it is applied all the same, "
        f"and no step is made behind it, where one device makes {single}"
    )


def _applied(trace: Trace, step: int) -> bool:
    """Whether every gradient of a step is made of finite numbers."""
    return bool(np.isfinite(trace.steps.loc[trace.steps["step"] == step, "grad_norm"].to_numpy(dtype=np.float64)).all())


def _why_unfinite(alone: Trace, worst: Trace, step: int) -> str:
    """Whether weights that an earlier step ruined explain it, or the rank's own samples."""
    ruined = not np.isfinite(worst.steps.loc[worst.steps["step"] < step, ["loss", "grad_norm"]].to_numpy(dtype=np.float64)).all()
    if ruined:
        return ": an earlier step that had no finite gradient was applied at this world size, and not on one device"
    return " (0 / 0 where a rank has nothing to learn from, or an overflow)"


def _weighted_alike(alone: Trace, worst: Trace, step: int) -> str:
    """Whether ranks with unequal numbers of rows are averaged as if they had equally many, in words: weighted by rows their losses are one device's."""
    at = worst.steps.loc[worst.steps["step"] == step].sort_values("rank")
    rows, losses = np.asarray(at["n_samples"], dtype=np.float64), np.asarray(at["loss"], dtype=np.float64)
    one = float(_effective(alone, "mean")[step - 1])
    if not rows.all() or (rows == rows[0]).all():
        return ""
    weighted, plain = abs(float(losses @ rows) / float(rows.sum()) - one), abs(float(losses.mean()) - one)
    if weighted > 0.01 * plain:
        return ""
    counts = ", ".join(f"{count:.0f}" for count in rows)
    return f": the ranks have {counts} samples there, and each divides by its own count, so those on the smaller share weigh too much"


def _peak(series: Series, envelope: Envelope) -> float:
    steps = min(len(series), len(envelope.shape))
    return float((series[:steps] / envelope.shape[:steps]).max())


def _roundoff(numerics: str) -> float:
    """The loss is recorded from a float32 (or better) tensor as the job runs, from a float64 one where it was forced to."""
    return UNIT_ROUNDOFF["float64" if numerics == "exact" else "float32"]
