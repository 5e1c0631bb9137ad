"""Judge: the learning rate follows the samples, not the number of ranks or micro-batches.

With the global batch fixed, step n has seen the same samples at every world size, so its rate must be the same. A scheduler that every process advances
(once per rank or per micro-batch) runs through its schedule too fast, and the loss curve merely looks a little worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import absent, named, size, undecided, unusable

Rates = dict[int, dict[int, tuple[float, ...]]]
SAME = 1e-9  # of the rate: it is computed from whole numbers, in Python's floats


def rates_follow_samples(alone: Trace, together: Sequence[Trace]) -> Finding:
    """Judge the rates of all steps, ranks and parameter groups against one device's."""
    if reason := unusable([alone, *together], "lr"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    single = rates(alone)
    if not any(row for ranks in single.values() for row in ranks.values()):
        return undecided("the optimizer has no learning rate in its parameter groups")
    for trace in (alone, *together):
        if said := _ranks_apart(trace) or _per_micro_batch(trace):
            return _rejected(f"{named(trace)}: {said}", len(single))
    for trace in together:
        if said := _otherwise(alone, trace):
            return _rejected(f"{named(trace)}: {said}", len(single))
    values = {rate for ranks in single.values() for row in ranks.values() for rate in row}
    constant = len({row for ranks in single.values() for row in ranks.values()}) == 1
    if constant and not any(trace.steps["schedule"].notna().any() for trace in (alone, *together)):
        return absent(
            f"the learning rate is {_said(min(values))} in each of {len(single)} steps at every world size, and no scheduler was created"
        )
    text = f"the learning rate is one device's in each of {len(single)} steps at every world size ({min(values):.3g} to {max(values):.3g})"
    return Finding(True, 0, "steps", 0, "at_most", text, samples=len(single), power="one step with another rate")


def rates(trace: Trace) -> Rates:
    """Step -> rank -> the rate of each parameter group."""
    table: Rates = {}
    for step, rank, row in zip(trace.steps["step"].tolist(), trace.steps["rank"].tolist(), trace.steps["lr"].tolist(), strict=True):
        table.setdefault(step, {})[rank] = tuple(row or ())
    return dict(sorted(table.items()))


def _ranks_apart(trace: Trace) -> str:
    for step, row in rates(trace).items():
        first = row[min(row)]
        for rank in sorted(row):
            if not _equal(row[rank], first):
                return f"rank {rank}'s learning rate is {_listed(row[rank])} in step {step}, rank {min(row)}'s {_listed(first)}"
    return ""


def _per_micro_batch(trace: Trace) -> str:
    """A schedule that advances by the micro-batches of each step, in words."""
    rows = trace.steps.loc[trace.steps["rank"] == 0].sort_values("step")
    advances = rows["schedule"].astype("float64").diff().dropna()
    batches = rows["micro_batches"].astype("float64").iloc[: len(advances)].to_numpy()
    if len(advances) and batches.min() > 1 and (advances.to_numpy() == batches).all():
        return f"the schedule advances {int(batches[0])} steps for each optimizer step: the scheduler is stepped once per micro-batch"
    return ""


def _otherwise(alone: Trace, trace: Trace) -> str:
    """Where the rates leave one device's, and why."""
    single, ranks = rates(alone), {step: row[min(row)] for step, row in rates(trace).items()}
    mine = {step: row[min(row)] for step, row in single.items()}
    step = next((step for step in mine if step in ranks and not _equal(mine[step], ranks[step])), None)
    if step is None:
        return ""
    where = f"the learning rate is {_listed(ranks[step])} in step {step}, one device's {_listed(mine[step])}"
    return f"{where}: {_why(alone, trace, mine, ranks)}"


def _why(alone: Trace, trace: Trace, mine: dict[int, tuple[float, ...]], ranks: dict[int, tuple[float, ...]]) -> str:
    count = size(trace)
    ratios = [two / one for step in mine if step in ranks for one, two in zip(mine[step], ranks[step], strict=False) if one]
    if ratios and max(ratios) - min(ratios) <= SAME * max(map(abs, ratios)):
        by = f"{ratios[0]:.4g} times one device's in every step"
        if math.isclose(ratios[0], count, rel_tol=SAME) or math.isclose(ratios[0], math.sqrt(count), rel_tol=SAME):
            return f"{by}: scaled with the number of ranks, although the global batch is the same"
        return by
    if math.isclose(_pace(trace), count * _pace(alone), rel_tol=0.01) and _pace(alone) > 0:
        return f"the schedule advances {count} times as fast: it is stepped once for each rank"
    jumps = [step for step in ranks if 1 + (step - 1) * count in mine and step > 1]
    if jumps and all(_equal(ranks[step], mine[1 + (step - 1) * count]) for step in jumps):
        return f"the schedule advances {count} times as fast: it is stepped once for each rank, or counts samples of one rank"
    return "the schedule depends on the number of ranks (built from the length of one rank's loader?)"


def _pace(trace: Trace) -> float:
    """Steps of the schedule for each optimizer step."""
    seen = trace.steps.loc[trace.steps["rank"] == 0].sort_values("step")["schedule"].dropna().tolist()
    return (seen[-1] - seen[0]) / (len(seen) - 1) if len(seen) > 1 else 0.0


def _equal(one: Sequence[float], two: Sequence[float]) -> bool:
    return len(one) == len(two) and all(math.isclose(a, b, rel_tol=SAME, abs_tol=0.0) or a == b for a, b in zip(one, two, strict=True))


def _listed(row: Sequence[float]) -> str:
    values = list(dict.fromkeys(_said(rate) for rate in row))
    return " and ".join(values) or "none"


def _said(rate: float) -> str:
    return f"{rate:.6g}"


def _rejected(text: str, steps: int) -> Finding:
    return Finding(False, 1, "steps", 0, "at_most", text, samples=steps)
