"""Judge: all ranks hold the same parameters, before the first step and after every step.

Replicas that drift apart train several models and save one of them; neither the loss nor the gradient norm of a single rank shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.equivalence.shards import Parts, sharded
from suite.equivalence.usable import named, size, undecided, unusable

SHOWN_TENSORS = 3


@dataclass(frozen=True, slots=True)
class Holding:
    """Parameters that these ranks hold alike by design. ranks: by rank, the place of their digest among the rank's; None: its only one."""

    ranks: Mapping[int, int | None]
    layout: str = "replicated"


def parameters_agree(together: Sequence[Trace], parts: Callable[[Trace], Parts] | None = None) -> Finding:
    """Judge the parameter digests of the ranks of each run against each other.

    parts: judges what no two ranks hold alike (see `parts_agree`); without it such a run is undecided.
    """
    several = [trace for trace in together if size(trace) > 1]
    if not several:
        return undecided("there is only one rank, nothing to agree with: start with --world-size 2")
    if idle := next((text for text in map(_never_steps, several) if text), ""):
        return Finding(False, None, "steps", 0, "at_most", idle, samples=0)
    if reason := unusable(several, "param_digest"):
        return undecided(reason)
    if flat := next((reason for reason in map(_flattened, several) if reason), ""):
        return undecided(flat)
    compared = 0
    for trace in several:
        for holding in shared(trace):
            table = digests(trace, holding)
            compared += len(table)
            if finding := _disagreement(trace, holding, table):
                return finding
    apart = [parts(trace) if parts else _UNJUDGED for trace in several if sharded(trace) and _has_own_parts(trace)]
    if wrong := next((one for one in apart if one.accepted is not True), None):
        if wrong.accepted is None:
            return undecided(wrong.text)
        return Finding(False, wrong.steps or 1, "steps", 0, "at_most", wrong.text, samples=len(several))
    return _agreement(several, compared, apart)


def _agreement(several: Sequence[Trace], compared: int, apart: Sequence[Parts]) -> Finding:
    sizes = " and ".join(named(trace) for trace in several)
    equal = f"all parameters are equal on every rank before the first and after each of the steps ({sizes}, {compared} comparisons)"
    if apart:
        alike = (
            f"what several ranks hold is equal on them before the first and after each of the steps ({compared} comparisons); "
            if compared
            else ""
        )
        equal = f"{sizes}: {alike}{'; '.join(one.text for one in apart)}"
    power = "one changed bit in one parameter of one rank" if compared else "a gradient norm of one tensor that leaves the noise"
    return Finding(True, 0, "steps", 0, "at_most", equal, samples=compared or len(several), power=power)


def _never_steps(trace: Trace) -> str:
    """A rank that goes through backward but makes no optimizer step while another does, in words; "" where there is none."""
    stepping, reason = set(trace.steps["rank"]), trace.not_seen().get("steps", "")
    idle = sorted(set(range(size(trace))) - stepping)
    if trace.crashed or not stepping or not idle or "backward" not in reason:
        return ""
    return f"{named(trace)}: rank {idle[0]} made no optimizer step while rank {min(stepping)} made {int(trace.steps['step'].max())}: its parameters stay behind ({reason})"


def _disagreement(trace: Trace, holding: Holding, table: Mapping[int, Mapping[int, str]]) -> Finding | None:
    disagreeing = [step for step, row in table.items() if len(set(row.values())) > 1 or len(row) < len(holding.ranks)]
    if not disagreeing:
        return None
    step = disagreeing[0]
    text = f"{named(trace)}: {_explain(trace, holding, step, table[step], len(disagreeing))}"
    return Finding(
        False, len(disagreeing), "steps", 0, "at_most", text, samples=len(table), details=_details(trace, step, table[step])
    )  # fmt: skip


def shared(trace: Trace) -> list[Holding]:
    """What several ranks hold alike by design: everything in an ordinary run, in a sharded one what lies along the mesh's replicated dimensions."""
    return [holding for holding in _holdings(trace) if len(holding.ranks) > 1]


def digests(trace: Trace, holding: Holding) -> dict[int, dict[int, str]]:
    """Step -> rank -> digest of what the rank holds after that step; step 0 is before the first, where every rank recorded it."""
    table: dict[int, dict[int, str]] = {0: _before(trace, holding)}
    steps = trace.steps.sort_values("step")
    columns = ("step", "rank", "param_digest", "param_digests")
    for step, rank, digest, each in zip(*(steps[name].tolist() for name in columns), strict=True):
        if rank in holding.ranks:
            place = holding.ranks[rank]
            table.setdefault(step, {})[rank] = digest if place is None else each[place]
    return table if table[0] else {step: row for step, row in table.items() if step}


_UNJUDGED = Parts(None, "each rank holds another part of the model, and no run of one device was given to hold the parts against")


def _holdings(trace: Trace) -> list[Holding]:
    if not sharded(trace):
        return [Holding(dict.fromkeys(range(size(trace))))]
    found: dict[tuple[str, str], dict[int, int | None]] = {}
    for rank in range(size(trace)):
        for place, group in enumerate(trace.model(rank)["groups"]):
            found.setdefault((group["layout"], group["holds"]), {})[rank] = place
    return [Holding(ranks, layout) for (layout, _), ranks in found.items()]


def _flattened(trace: Trace) -> str:
    """Why the digests of this run cannot be compared, or "": parts whose place in the whole is not known."""
    reason = trace.not_seen().get("whole_parameters")
    return f"no two ranks of {named(trace)} hold the same numbers: {reason}" if reason else ""


def _has_own_parts(trace: Trace) -> bool:
    return any(len(holding.ranks) == 1 for holding in _holdings(trace))


def _before(trace: Trace, holding: Holding) -> dict[int, str]:
    try:
        starts = {rank: trace.start(rank) for rank in holding.ranks}
    except NotSeen:
        return {}
    found = {
        rank: start.get("param_digest") if (place := holding.ranks[rank]) is None else (start.get("param_digests") or {place: None})[place]
        for rank, start in starts.items()
    }
    return {rank: digest for rank, digest in found.items() if digest is not None} if None not in found.values() else {}


def _explain(trace: Trace, holding: Holding, step: int, row: Mapping[int, str], count: int) -> str:
    if len(row) < len(holding.ranks):
        absent = min(set(holding.ranks) - set(row))
        return f"rank {absent} made no step {step}, while rank {min(row)} did"
    other = _majority(row)
    rank = _odd_one_out(row)
    if step == 0:
        return f"rank {rank}'s parameters differ from rank {other}'s before the first step: the initial weights are not broadcast and the ranks' seeds differ"
    alike = f" (those that both hold alike: {holding.layout})" if sharded(trace) else ""
    whom = f"rank {rank}'s parameters differ from rank {other}'s from step {step} on, in {count} steps{alike}"
    if rates := _differing_rates(trace, step, rank, other):
        return f"{whom}: {rates}"
    made = trace.steps.groupby("rank")["step"].max()
    if made[rank] != made[other]:
        return f"{whom}: it made {made[rank]} optimizer steps where rank {other} made {made[other]}, so a step is left out on one rank and not on the other"
    names = _differing_gradients(trace, step, rank, other)
    if names:
        more = f" and {len(names) - SHOWN_TENSORS} more" if len(names) > SHOWN_TENSORS else ""
        return f"{whom}: it applied another gradient ({', '.join(names[:SHOWN_TENSORS])}{more}), so the reduction does not reach every tensor or was undone"
    return f"{whom}, although the gradients were equal: something beside the optimizer changed them, or the optimizer states differ"


def _odd_one_out(row: Mapping[int, str]) -> int:
    """The first rank that does not hold what most ranks hold (with two ranks: rank 1)."""
    common = row[_majority(row)]
    return next(rank for rank in sorted(row) if row[rank] != common)


def _majority(row: Mapping[int, str]) -> int:
    """The first rank that holds what most ranks hold; the lowest rank wins a tie."""
    counts = Counter(row.values())
    most = max(counts.values())
    return next(rank for rank in sorted(row) if counts[row[rank]] == most)


def _differing_gradients(trace: Trace, step: int, rank: int, other: int) -> list[str]:
    """The parameters whose gradient norms differ between two ranks in this step, which were equal up to there."""
    norms = trace.gradient_norms.loc[trace.gradient_norms["step"] == step].pivot(index="name", columns="rank", values="norm")
    if rank not in norms or other not in norms:
        return []
    same = norms[rank].eq(norms[other]) | (norms[rank].isna() & norms[other].isna())
    return [str(name) for name in norms.index[~same]]


def _differing_rates(trace: Trace, step: int, rank: int, other: int) -> str:
    """The learning rates of two ranks in this step where they differ while the gradients do not, in words; "" elsewhere."""
    rates = trace.steps.loc[trace.steps["step"] == step].set_index("rank")["lr"]
    mine, others = rates.get(rank), rates.get(other)
    if not mine or not others or mine == others or _differing_gradients(trace, step, rank, other):
        return ""
    group = next((at for at, (one, two) in enumerate(zip(mine, others, strict=False)) if one != two), None)
    if group is None:
        return f"its optimizer has {len(mine)} parameter groups where rank {other}'s has {len(others)}"
    where = f" in parameter group {group}" if len(mine) > 1 else ""
    return f"its learning rate is {mine[group]:.6g} where rank {other}'s is {others[group]:.6g}{where}, on equal gradients"


def _details(trace: Trace, step: int, row: Mapping[int, str]) -> dict[str, object]:
    rows = [[rank, row[rank]] for rank in sorted(row)]
    return {"first_step": step, "world_size": size(trace), "table": {"columns": ["rank", "parameter digest"], "rows": rows}}
