"""The decision: what the policy makes of the evidence. `approve` the exposure that was tested, `hold`, or `reject`.

    a critical criterion failed                                                      reject
    the session did not finish; the catalogue is empty; a record has no place in it    hold
    any other criterion failed; any is inconclusive or not run                         hold
    a critical criterion is waived; nothing of a critical kind passed                  hold
    a record rests on a run that is not stored; its date is missing, too old, ahead    hold
    nothing passed that was run at a step of the ladder                                hold
    none of these                                                                      approve

The worst line that applies decides, so nothing favourable can make up for it. All lines that apply are given as reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal

from reports.evidence import Evidence, Record
from reports.policy import Policy, PolicyError, check_waivers, load_policy
from reports.verdicts import VERDICTS, Ruling, rulings
from reports.wording import counted, quantity, requirement

__all__ = ["Blocking", "Decision", "Policy", "PolicyError", "decide", "load_policy", "rule"]

NO_EXPOSURE = "none"
CLOCK_SKEW = timedelta(days=1)  # machines' clocks and time zones differ; evidence from further ahead has a wrong date


@dataclass(frozen=True, slots=True)
class Blocking:
    """One criterion that stands in the way, as actual against required."""

    id: str
    backend: str
    verdict: str
    critical: bool
    actual: str
    required: str
    explanation: str
    owner: str


@dataclass(frozen=True, slots=True)
class Decision:
    """verdict: approve, hold or reject. reasons: sentences, worst first. next_exposure: what is approved, else "none"."""

    verdict: Literal["approve", "hold", "reject"]
    reasons: tuple[str, ...]
    next_exposure: str
    owner: str
    blocking: tuple[Blocking, ...]


def decide(evidence: Evidence, policy: Policy, now: datetime) -> Decision:
    """The decision at the time `now` (with a zone). Raises PolicyError for a waiver that is unknown or has expired."""
    check_waivers(policy, evidence.catalogue, now)
    return rule(evidence, rulings(evidence, policy.waivers), policy, now)


def rule(evidence: Evidence, judged: Sequence[Ruling], policy: Policy, now: datetime) -> Decision:
    """The decision from verdicts already given; `decide` is the way in."""
    blocking = tuple(sorted(_blocking(judged, policy), key=lambda item: (VERDICTS.index(item.verdict), not item.critical, item.id)))
    concerns = tuple(_concerns(evidence, judged, policy, now))
    if any(item.critical and item.verdict == "failed" for item in blocking):
        outcome: Literal["approve", "hold", "reject"] = "reject"
    else:
        outcome = "hold" if blocking or concerns else "approve"
    if outcome == "approve":
        favourable = (_approval(judged), *_exclusions(judged))
        return Decision("approve", favourable, _exposure(evidence, judged, policy), policy.decision_owner, ())
    sentences = tuple(_sentence(item) for item in blocking)
    reasons = sentences + concerns if outcome == "reject" else concerns + sentences
    return Decision(outcome, reasons, NO_EXPOSURE, policy.decision_owner, blocking)


def _blocking(judged: Sequence[Ruling], policy: Policy) -> Iterator[Blocking]:
    for ruling in judged:
        critical = policy.is_critical(ruling.entry.id)
        if ruling.verdict in ("failed", "inconclusive", "not_run") or (ruling.verdict == "waived" and critical):
            actual, required = _actual_and_required(ruling)
            entry = ruling.entry
            yield Blocking(entry.id, entry.backend, ruling.verdict, critical, actual, required, ruling.reason, policy.owner(entry.id))


def _actual_and_required(ruling: Ruling) -> tuple[str, str]:
    finding = ruling.as_is.finding if ruling.as_is else None
    if ruling.verdict == "failed" and finding is not None:
        if finding.value is not None and finding.bound is not None and (finding.margin is None or finding.margin < 0):
            return quantity(finding.value, finding.unit), requirement(finding.direction, finding.bound, finding.unit)
        return "the claim does not hold", ruling.entry.threshold or "that it holds"
    if ruling.verdict == "waived":
        return f"{_word(ruling.beneath)}, waived until {ruling.waiver.expires if ruling.waiver else ''}", "passed: it is critical"
    return _word(ruling.verdict), "passed, with its twin rejected"


def _sentence(item: Blocking) -> str:
    kind = ", critical," if item.critical else ""
    what = {"failed": f"failed: {item.actual}", "not_run": "was not run"}.get(item.verdict, f"is {item.actual}")
    end = "" if item.explanation.rstrip().endswith((".", "!", "?")) else "."
    return f"{item.id} [{item.backend}]{kind} {what}; required: {item.required}. {item.explanation.strip()}{end}"


def _concerns(evidence: Evidence, judged: Sequence[Ruling], policy: Policy, now: datetime) -> Iterator[str]:
    """What holds the decision apart from single criteria."""
    if altered := evidence.meta.get("altered_runs"):
        yield f"The traces of {len(altered)} runs are not those that were judged (first: {altered[0]}); `python -m reports verify` names the files."
    if not evidence.finished:
        yield "The session that gathered the evidence did not finish, so the evidence is not complete."
    if not evidence.catalogue:
        yield "The catalogue is empty: nothing was to be shown."
    known = {(entry.id, entry.backend) for entry in evidence.catalogue}
    if strays := sorted({f"{id} [{backend}]" for id, backend, _ in evidence.records if (id, backend) not in known}):
        yield f"There are records that the catalogue does not name: {', '.join(strays)}."
    if evidence.catalogue:
        yield from _critical_kinds_without_proof(judged, policy)
        if _exposure(evidence, judged, policy) == NO_EXPOSURE:
            least = f"{policy.ladder[0]} rank{'s' if policy.ladder[0] != 1 else ''} or more"
            yield f"No passed criterion was run with {least}, so there is no exposure to approve."
    yield from _unfounded(evidence, judged)
    yield from _dates(evidence, policy, now)


def _critical_kinds_without_proof(judged: Sequence[Ruling], policy: Policy) -> Iterator[str]:
    for pattern in policy.critical:
        group = [ruling for ruling in judged if fnmatchcase(ruling.entry.id, pattern)]
        if not group:
            yield f"{pattern} is critical, but the catalogue has no such criterion."
        elif all(ruling.verdict == "not_applicable" for ruling in group):
            yield f"{pattern} is critical, but the job declares that none of it applies: {group[0].reason}"


def _unfounded(evidence: Evidence, judged: Sequence[Ruling]) -> Iterator[str]:
    for ruling in judged:
        for record in (ruling.as_is, *ruling.twins):
            missing = [run for run in record.runs if run not in evidence.runs] if record else []
            if record and missing:
                yield f"{record.id} [{record.backend}-{record.part}] rests on run {missing[0]}, which is not stored."


def _dates(evidence: Evidence, policy: Policy, now: datetime) -> Iterator[str]:
    """Nothing here tells the present time, so that the same evidence gives the same words until it is too old."""
    dates = {}
    for key, record in evidence.records.items():
        moment = evidence_date(evidence, record)
        if moment is None:
            yield f"{key[0]} [{key[1]}-{key[2]}] has no readable date ({record.started_utc!r}), so its age is unknown."
        else:
            dates[moment] = record
    if dates and min(dates) < now - timedelta(days=policy.max_age_days):
        oldest = dates[min(dates)]
        yield (
            f"The evidence is stale: {oldest.id} [{oldest.backend}] dates from {min(dates):%Y-%m-%d}; "
            f"at most {counted_days(policy.max_age_days)} are allowed."
        )
    if dates and max(dates) > now + CLOCK_SKEW:
        newest = dates[max(dates)]
        yield f"{newest.id} [{newest.backend}] dates from {max(dates):%Y-%m-%d}, which lies ahead; check the clock of that machine."


def evidence_date(evidence: Evidence, record: Record) -> datetime | None:
    """When a record was observed: the earliest start of its runs or itself, since judging again makes nothing fresh."""
    runs = [evidence.runs[run].ended.get("started_utc") for run in record.runs if run in evidence.runs]
    moments = [_moment(text) for text in (record.started_utc, *runs) if text is not None]
    return None if None in moments or not moments else min(moment for moment in moments if moment)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _exposure(evidence: Evidence, judged: Sequence[Ruling], policy: Policy) -> str:
    """The largest step of the ladder that a passed criterion was really run at, per backend, on as many hosts as were there.

    Never more than the audit's own largest world: a criterion that changes the number of ranks on the way was alone in going beyond it.
    """
    tested: dict[str, int] = {}
    for ruling in judged:
        if ruling.verdict == "passed" and ruling.as_is:
            sizes = [int(evidence.runs[run].spec.get("world_size") or 0) for run in ruling.as_is.runs if run in evidence.runs]
            tested[ruling.entry.backend] = max(tested.get(ruling.entry.backend, 0), *sizes, 0)
    world = evidence.meta.get("world") or {}
    hosts, largest = int(world.get("hosts") or 1), int(world.get("world_size") or max(tested.values(), default=0))
    where = str(world.get("where") or ("one host" if hosts == 1 else f"{hosts} hosts"))
    levels = {
        backend: max((step for step in policy.ladder if step <= min(size, largest)), default=0) for backend, size in sorted(tested.items())
    }
    return "; ".join(f"{counted(level, 'rank')} on {where}, {backend}" for backend, level in levels.items() if level) or NO_EXPOSURE


def _approval(judged: Sequence[Ruling]) -> str:
    passed = sum(ruling.verdict == "passed" for ruling in judged)
    return f"{passed} of {counted(len(judged), 'criterion', 'criteria')} passed, each with its twin rejected; none stands in the way."


def _exclusions(judged: Sequence[Ruling]) -> Iterator[str]:
    for ruling in judged:
        if ruling.verdict in ("waived", "not_applicable"):
            yield f"Not covered: {ruling.entry.id} [{ruling.entry.backend}] ({_word(ruling.verdict)}). {ruling.reason}"


def counted_days(days: float) -> str:
    return f"{days:g} {'day' if days == 1 else 'days'}"


def _word(verdict: str) -> str:
    return verdict.replace("_", " ")
