"""Judge: all ranks hold the same parameters, before the first step and after every step.

Replicas that drift apart train several models and save one of them; neither the loss nor the gradient norm of a single rank shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, size, undecided, unusable

SHOWN_TENSORS = 3


def parameters_agree(together: Sequence[Trace]) -> Finding:
    """Judge the parameter digests of the ranks of each run against each other."""
    several = [trace for trace in together if size(trace) > 1]
    if not several:
        return undecided("there is only one rank, nothing to agree with: start with --world-size 2")
    if idle := next((text for text in map(_never_steps, several) if text), ""):
        return Finding(False, None, "steps", 0, "at_most", idle, samples=0)
    if reason := unusable(several, "param_digest"):
        return undecided(reason)
    if sharded := next((reason for reason in map(_sharded, several) if reason), ""):
        return undecided(sharded)
    compared = sum(len(digests(trace)) for trace in several)
    for trace in several:
        table = digests(trace)
        disagreeing = [step for step, row in table.items() if len(set(row.values())) > 1 or len(row) < size(trace)]
        if disagreeing:
            step = disagreeing[0]
            text = f"{named(trace)}: {_explain(trace, step, table[step], len(disagreeing))}"
            return Finding(
                False, len(disagreeing), "steps", 0, "at_most", text, samples=compared, details=_details(trace, step, table[step])
            )
    sizes = " and ".join(named(trace) for trace in several)
    text = f"all parameters are equal on every rank before the first and after each of the steps ({sizes}, {compared} comparisons)"
    return Finding(True, 0, "steps", 0, "at_most", text, samples=compared, power="one changed bit in one parameter of one rank")


def _never_steps(trace: Trace) -> str:
    """A rank that goes through backward but makes no optimizer step while another does, in words; "" where there is none."""
    stepping, reason = set(trace.steps["rank"]), trace.not_seen().get("steps", "")
    idle = sorted(set(range(size(trace))) - stepping)
    if trace.crashed or not stepping or not idle or "backward" not in reason:
        return ""
    return f"{named(trace)}: rank {idle[0]} made no optimizer step while rank {min(stepping)} made {int(trace.steps['step'].max())}: its parameters stay behind ({reason})"


def digests(trace: Trace) -> dict[int, dict[int, str]]:
    """Step -> rank -> digest of the rank's parameters after that step; step 0 is before the first, where every rank recorded it."""
    table: dict[int, dict[int, str]] = {0: _before(trace)}
    steps = trace.steps.sort_values("step")
    for step, rank, digest in zip(steps["step"].tolist(), steps["rank"].tolist(), steps["param_digest"].tolist(), strict=True):
        table.setdefault(step, {})[rank] = digest
    return table if table[0] else {step: row for step, row in table.items() if step}


def _before(trace: Trace) -> dict[int, str]:
    try:
        found = {rank: trace.start(rank).get("param_digest") for rank in trace.ranks}
    except NotSeen:
        return {}
    return {rank: digest for rank, digest in found.items() if digest is not None} if None not in found.values() else {}


def _explain(trace: Trace, step: int, row: Mapping[int, str], count: int) -> str:
    if len(row) < size(trace):
        absent = min(set(range(size(trace))) - set(row))
        return f"rank {absent} made no step {step}, while rank {min(row)} did"
    other = _majority(row)
    rank = _odd_one_out(row)
    if step == 0:
        return f"rank {rank}'s parameters differ from rank {other}'s before the first step: the initial weights are not broadcast and the ranks' seeds differ"
    whom = f"rank {rank}'s parameters differ from rank {other}'s from step {step} on, in {count} steps"
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


def _sharded(trace: Trace) -> str:
    """Why the digests of this run cannot be compared, or "": each rank of a sharded model holds another part of it."""
    reason = trace.not_seen().get("whole_parameters")
    return f"no two ranks of {named(trace)} hold the same numbers: {reason}" if reason else ""


def _details(trace: Trace, step: int, row: Mapping[int, str]) -> dict[str, object]:
    rows = [[rank, row[rank]] for rank in sorted(row)]
    return {"first_step": step, "world_size": size(trace), "table": {"columns": ["rank", "parameter digest"], "rows": rows}}
