"""Judge: is one device's step time, memory and quality known well enough to hold other world sizes against it?

Scaling reports divide by a baseline that was measured once. Here the baseline is a number with an interval of its own, and it has to be known better than what
is decided with it: an efficiency bound of 0.7 tells a loss of 30 % from none, so a baseline that is uncertain by half of that tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import median_interval
from suite.efficiency.busy import given_back
from suite.efficiency.timing import step_ms, too_short
from suite.equivalence.usable import undecided, unusable

PART_OF_THE_LOSS = 0.5  # of what the efficiency bound lets a world lose: what a baseline may be uncertain by


def known_well(repeats: Sequence[Trace], whole: Trace, scaling_bound: float) -> Finding:
    """Judge timed repeats of one device, and an untimed run of it that carries the losses.

    scaling_bound: least efficiency of larger worlds. Accepted where the interval of the median step time, from lowest to highest, is narrower than
    half of 1 - scaling_bound of it; the finding carries step time (ms), peak memory (bytes) and the loss at the end.
    """
    if reason := unusable([*repeats, whole], "step_ms") or next(filter(None, map(too_short, repeats)), ""):
        return undecided(reason)
    times = [step_ms(trace) for trace in repeats]
    found = median_interval(times)
    spread, bound = (found.high - found.low) / found.estimate, PART_OF_THE_LOSS * (1.0 - scaling_bound)
    loss, memory = last_loss(whole), peak_bytes(repeats)
    text = f"one device takes {found.estimate:.3g} ms a step [{found.low:.3g}, {found.high:.3g}], uncertain by {spread:.0%} of it"
    text += f", at most {memory / 2**20:.0f} MiB of memory" if memory else ", memory not measured"
    text += f", and reaches a loss of {loss:.4g} after {len(whole.steps)} steps" if loss is not None else ", loss not seen"
    if spread > bound:
        text = f"the baseline is no baseline: {text}, where {bound:.0%} are allowed; repeats of the same work differ, so no larger world can be held against them"
    finding = Finding(
        spread <= bound, spread, "of the step time between its repeats", bound, "at_most", text, samples=len(times),
        details=_details(times, memory, loss, bound),
    )  # fmt: skip
    return given_back(finding, repeats, distance=abs(spread - bound)) if spread > bound else finding


def last_loss(trace: Trace) -> float | None:
    """The mean loss of the last quarter of the steps, over all ranks; None where the probe saw none."""
    losses = trace.steps.groupby("step")["loss"].mean().dropna()
    return float(losses.iloc[-max(1, len(losses) // 4) :].mean()) if len(losses) else None


def peak_bytes(traces: Sequence[Trace]) -> float | None:
    """The most resident memory of any rank of these runs, its share of what it was forked from included; None where a rank did not say."""
    peaks = [record.get("peak_resident_bytes") for trace in traces for record in trace.records if record["kind"] == "usage"]
    known = [float(peak) for peak in peaks if peak]
    return max(known) if known and len(known) == len(peaks) else None


def _details(times: Sequence[float], memory: float | None, loss: float | None, bound: float) -> dict[str, Any]:
    rows = [
        ["step time", f"{np.median(times):.4g} ms", f"{min(times):.4g} to {max(times):.4g} ms over {len(times)} repeats"],
        ["peak memory of a rank", f"{memory / 2**20:.0f} MiB" if memory else "not measured", "the ranks' own peak, start-up included"],
        ["loss at the end", f"{loss:.4g}" if loss is not None else "not seen", "mean of the last quarter of the steps"],
    ]
    return {"repeats": list(times), "allowed": bound, "table": {"columns": ["baseline", "one device", "from"], "rows": rows}}
