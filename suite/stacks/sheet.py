"""The page of results on today's stacks, in Markdown: a pure function of the stored results and of what is known of each finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from suite.stacks.entries import WHOSE, Known, Stack
from suite.stacks.results import Result
from suite.stacks.signals import CAPTURED, NOT_APPLICABLE

HEAD = """# Today's stacks under audit

The same kind of job, written as users of each library write it (`workloads/stacks/`), audited unmodified by every criterion of equivalence and recovery.
`job.toml` is the job with the library's defaults, `careful.toml` the same script with the options that avoid the traps found. Written by
`python -m suite stacks`; do not edit. Verdicts are those of an audit: passed only if the criterion's planted fault was rejected on this very job, too.
"""

TABLE_MARK = {CAPTURED: "captured", NOT_APPLICABLE: "n/a"}
ORDER = ("passed", "failed", "inconclusive", "not_applicable", "waived", "not_run")


def page(stacks: Sequence[Stack], results: Mapping[str, Result]) -> str:
    """The whole page; a stack without a result is named as not run."""
    there = [(stack, results[stack.name]) for stack in stacks if stack.name in results]
    absent = [stack.name for stack in stacks if stack.name not in results]
    parts = [HEAD, _overview(there), *([f"Not run: {', '.join(absent)}.\n"] if absent else []), "## Signals\n", _signals(there)]
    for stack, result in there:
        parts += [f"## {stack.name}\n", _heading(stack, result), _findings(stack, result), _verdicts(result), _seeds(result)]
    parts.append(_open_ends(there))
    return "\n".join(part for part in parts if part)


def problems(stack: Stack, result: Result) -> list[str]:
    """What needs a person: a finding that nothing known explains, and a known one that did not show; one line each."""
    rejected = result.rejections()
    lines = [f"{id}: {why}" for id, why in rejected if _known_of(stack, id, why) is None]
    stale = [one for one in stack.known if not any(one.explains(id, why) for id, why in rejected)]
    return [f"unexplained finding {line}" for line in lines] + [
        f"{one.criterion} was expected to find {one.cause!r} and did not: correct stacks.toml" for one in stale
    ]


def _known_of(stack: Stack, criterion: str, explanation: str) -> Known | None:
    return next((one for one in stack.known if one.explains(criterion, explanation)), None)


def _overview(there: Iterable[tuple[Stack, Result]]) -> str:
    lines = [
        _line(["job", "releases", *(word.replace("_", " ") for word in ORDER[:4]), "other seeds: findings / judgements"]),
        _line(["---"] * 7),
    ]
    for stack, result in there:
        counted = Counter(one.verdict for one in result.verdicts)
        said = [outcome for seed in result.seeds.values() for _, outcome, _ in seed if outcome in {"accepted", "rejected"}]
        judged = f"{said.count('rejected')} / {len(said)} in {len(result.seeds)} seeds" if result.seeds else "not run"
        lines.append(
            _line([f"[{stack.name}](#{_anchor(stack.name)})", _versions(result), *(str(counted[word]) for word in ORDER[:4]), judged])
        )
    return "\n".join(lines) + "\n"


def _signals(there: Sequence[tuple[Stack, Result]]) -> str:
    """One row for each signal, one column for each job; the words stand with the job below."""
    names = list(dict.fromkeys(signal.name for _, result in there for signal in result.signals))
    head = ["signal", *(stack.name for stack, _ in there)]
    lines = [_line(head), _line(["---"] * len(head))]
    for name in names:
        states = [next((one for one in result.signals if one.name == name), None) for _, result in there]
        lines.append(_line([name, *("" if one is None else TABLE_MARK.get(one.state, f"**{one.state}**") for one in states)]))
    return "\n".join(lines) + "\n"


def _heading(stack: Stack, result: Result) -> str:
    seen = [_line([one.name, one.state, one.words]) for one in result.signals]
    table = "\n".join([_line(["signal", "state", "what, or why not"]), _line(["---"] * 3), *seen])
    return (
        f"{stack.title}: {_versions(result)}. {result.world_size} ranks.\n\n<details><summary>Signals</summary>\n\n{table}\n\n</details>\n"
    )


def _findings(stack: Stack, result: Result) -> str:
    rejected = result.rejections()
    if not rejected:
        return "No finding.\n"
    lines = ["| criterion | finding | what it is |", "| --- | --- | --- |"]
    for criterion, explanation in rejected:
        known = _known_of(stack, criterion, explanation)
        lines.append(_line([f"`{criterion}`", explanation, _whose(known)]))
    return "\n".join(lines) + "\n"


def _whose(known: Known | None) -> str:
    if known is None:
        return "**not explained**"
    report = f" Reported: {known.report}." if known.report else " No public report was found."
    return f"**{WHOSE[known.whose]}**: {known.words}" + (f" Shown apart from this suite: {known.proof}" if known.proof else "") + report


def _verdicts(result: Result) -> str:
    rows = [
        _line(
            [f"`{one.criterion}`", one.verdict.replace("_", " "), one.why if one.verdict == "inconclusive" else one.explanation or one.why]
        )
        for one in result.verdicts
    ]
    table = "\n".join([_line(["criterion", "verdict", "explanation"]), _line(["---"] * 3), *rows])
    return f"<details><summary>All verdicts</summary>\n\n{table}\n\n</details>\n"


def _seeds(result: Result) -> str:
    if not result.seeds:
        return ""
    undecided = sorted({id for said in result.seeds.values() for id, outcome, _ in said if outcome in {"inconclusive", "crashed"}})
    words = f" Undecided in some: {', '.join(undecided)}." if undecided else ""
    return f"Also judged, as it is, with the seeds {', '.join(map(str, sorted(result.seeds)))}.{words}\n"


def _open_ends(there: Iterable[tuple[Stack, Result]]) -> str:
    lines = [f"- {stack.name}: {line}" for stack, result in there for line in problems(stack, result)]
    return "## What is not explained\n\n" + ("\n".join(lines) if lines else "Nothing.") + "\n"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in result.versions.items())


def _anchor(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in "-_ ").replace(" ", "-")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
