"""The decision's truth table, whole: nothing favourable makes up for a failed critical criterion, and what is missing holds."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reports.decide import PolicyError, decide, load_policy
from reports.evidence import Entry, Evidence, Finding, Record, Run, load
from reports.policy import DEFAULT_POLICY, Policy
from reports.verdicts import VERDICTS, Verdict, Waiver, absences, rulings, verdict
from suite.selftest.fabricated import fabricate

NOW = datetime(2026, 8, 22, tzinfo=UTC)
START = "2026-08-21T09:00:00+00:00"
RUN = Run("w2-run", {"world_size": 2}, {"started_utc": START}, {})
OUTCOMES = ("accepted", "rejected", "undecided", "not_applicable", "crashed")
PLANTED = {"part": "twin", "words": "a fault", "because": "planted"}


def _entry(id: str = "efficiency.scaling", backend: str = "gloo", **changes: Any) -> Entry:
    return Entry(**({"id": id, "backend": backend, "claim": "It holds.", "twins": (PLANTED,)} | changes))


def _record(entry: Entry, part: Any, outcome: Any, fired: bool | None = None, explanation: str = "the planted fault was seen") -> Record:
    accepted = {"accepted": True, "rejected": False}.get(outcome)
    return Record(entry.id, entry.backend, part, outcome, Finding(accepted, explanation=explanation), fired, ("w2-run",), START, 1.0)


AS_IS = (None, *OUTCOMES)
TWINS: tuple[Any, ...] = (
    None,
    *((outcome, fired, right) for outcome in OUTCOMES for fired in (True, False, None) for right in (True, False)),
)


def _expected(as_is: str | None, twin: Any, declared: bool) -> str:
    """The table of `reports/verdicts.py`, written a second time and in another order."""
    if declared and as_is != "rejected":
        return "not_applicable"
    if as_is is None:
        return "not_run"
    if as_is == "accepted":
        return "passed" if twin == ("rejected", True, True) else "inconclusive"
    return {"rejected": "failed", "not_applicable": "not_applicable"}.get(as_is, "inconclusive")


@pytest.mark.parametrize(("as_is", "twin", "declared", "waived"), list(itertools.product(AS_IS, TWINS, (False, True), (False, True))))
def test_every_combination_of_records_has_the_tabled_verdict(as_is: str | None, twin: Any, declared: bool, waived: bool) -> None:
    entry = _entry(needs=("inputs",))
    seen = None if twin is None else _record(entry, "twin", twin[0], twin[1], "the planted fault" if twin[2] else "something else")
    waivers = (Waiver(entry.id, "a reason", "an owner", "2026-12-31"),) if waived else ()

    ruling = verdict(
        entry, _record(entry, "as_is", as_is) if as_is else None, (seen,), waivers, {"inputs": "reads no files"} if declared else {}
    )

    expected = _expected(as_is, twin, declared)
    assert ruling.beneath == expected
    assert ruling.verdict == ("waived" if waived and expected in ("failed", "inconclusive", "not_run") else expected)
    assert ruling.reason


SEEN = ("rejected", True, "the planted fault was seen")


@pytest.mark.parametrize(
    ("first", "second", "expected", "words"),
    [
        (SEEN, SEEN, "passed", "seen"),
        (SEEN, ("accepted", True, "fine"), "inconclusive", r"did not notice its twin \(the second\)"),
        (SEEN, ("rejected", True, "another thing"), "inconclusive", "for another reason"),
        (SEEN, ("rejected", False, "the planted fault was seen"), "inconclusive", r"twin \(the second\) never happened"),
        (SEEN, ("not_applicable", False, "no scaler"), "passed", "seen"),
        (
            ("not_applicable", False, "no scheduler"),
            ("not_applicable", False, "no scaler"),
            "inconclusive",
            "None of its twins .*: no scheduler",
        ),
    ],
)
def test_every_twin_that_concerns_the_job_must_be_rejected(first: Any, second: Any, expected: str, words: str) -> None:
    """Several twins of one criterion: each is rejected for its own reason, or does not concern the job; at least one must be left."""
    twins = (
        {"part": "twin-a", "words": "the first", "because": "planted"},
        {"part": "twin-b", "words": "the second", "because": "planted"},
    )
    entry = _entry(twins=twins)
    seen = tuple(
        _record(entry, twin["part"], outcome, fired, said) for twin, (outcome, fired, said) in zip(twins, (first, second), strict=True)
    )

    ruling = verdict(entry, _record(entry, "as_is", "accepted"), seen)

    assert ruling.verdict == expected
    assert re.search(words, ruling.reason)


def test_a_waiver_of_another_backend_does_not_count() -> None:
    entry = _entry(backend="nccl")

    assert verdict(entry, None, (None,), (Waiver(entry.id, "r", "o", "2026-12-31", "gloo"),)).verdict == "not_run"


def test_a_declared_deviation_of_a_part_that_the_job_has_is_no_absence() -> None:
    job = {"capabilities": {"inputs": "only one file", "elastic": True, "checkpoint": "saves nothing"}, "has": ["inputs"]}

    assert absences(job) == {"checkpoint": "saves nothing"}


def _with_verdict(entry: Entry, wanted: Verdict) -> list[Record]:
    """Records that give `wanted`; "not_applicable" and "waived" need a declaration or a waiver besides."""
    if wanted in ("not_run", "waived", "not_applicable"):
        return []
    if wanted == "failed":
        return [_record(entry, "as_is", "rejected")]
    if wanted == "inconclusive":
        return [_record(entry, "as_is", "undecided")]
    return [_record(entry, "as_is", "accepted"), _record(entry, "twin", "rejected", True)]


def _evidence(critical: Verdict, other: Verdict, finished: bool = True, started: str = START) -> tuple[Evidence, Policy]:
    """Two critical criteria, one with the verdict `critical` and one passed, and an ordinary one with `other`."""
    entries = (_entry("recovery.restore"), _entry("efficiency.scaling"), _entry("recovery.continuation"), _entry("equivalence.gradient"))
    wanted: tuple[Verdict, ...] = (critical, other, "passed", "passed")
    pairs = list(zip(entries, wanted, strict=True))
    records = [replace(record, started_utc=started) for entry, verdict in pairs for record in _with_verdict(entry, verdict)]
    session = {"complete": finished, "finished_utc": START if finished else None}
    lacks = {entry.id: "does not concern it" for entry, verdict in pairs if verdict == "not_applicable"}
    evidence = Evidence(
        {"session": session, "world": {"world_size": 2}, "job": {"capabilities": lacks}}, entries,
        {(record.id, record.backend, record.part): record for record in records}, {RUN.run_id: RUN},
    )  # fmt: skip
    waivers = tuple(Waiver(entry.id, "a reason", "an owner", "2026-12-31") for entry, verdict in pairs if verdict == "waived")
    return evidence, replace(load_policy(), waivers=waivers)


ROWS = list(itertools.product(VERDICTS, VERDICTS, (True, False), (True, False)))


@pytest.mark.parametrize(("critical", "other", "finished", "fresh"), ROWS)
def test_the_whole_truth_table(critical: Verdict, other: Verdict, finished: bool, fresh: bool) -> None:
    evidence, policy = _evidence(critical, other, finished)

    decision = decide(evidence, policy, NOW if fresh else NOW + timedelta(days=60))

    clean = critical in ("passed", "not_applicable") and other in ("passed", "not_applicable", "waived")
    expected = "reject" if critical == "failed" else ("approve" if clean and finished and fresh else "hold")
    assert decision.verdict == expected
    assert decision.reasons
    assert decision.next_exposure == ("2 ranks on one host, gloo" if expected == "approve" else "none")
    assert decision.owner == "model training lead with infrastructure owner"
    assert any("did not finish" in reason for reason in decision.reasons) is not finished
    assert any("stale" in reason for reason in decision.reasons) is not fresh
    named = {item.id for item in decision.blocking}
    assert ("recovery.restore" in named) is (critical not in ("passed", "not_applicable"))
    assert ("efficiency.scaling" in named) is (other in ("failed", "inconclusive", "not_run"))


def test_no_favourable_number_offsets_a_failed_critical_criterion() -> None:
    evidence, policy = _evidence("failed", "passed")
    superb = Finding(True, 100.0, "x", 1.0, "at_least", "A hundred times faster.")
    better = {
        key: replace(record, finding=superb) if key[0].startswith("efficiency") else record for key, record in evidence.records.items()
    }

    assert decide(replace(evidence, records=better), policy, NOW).verdict == "reject"


@pytest.mark.parametrize("index", range(19))
def test_removing_the_record_of_any_criterion_holds_the_decision_and_names_it(tmp_path: Path, index: int) -> None:
    evidence = load(fabricate(tmp_path, sound=True))
    gone = evidence.catalogue[index].id
    kept = {key: record for key, record in evidence.records.items() if key[0] != gone}

    decision = decide(replace(evidence, records=kept), load_policy(), NOW)

    assert decision.verdict == "hold"
    assert [item.id for item in decision.blocking] == [gone]
    assert f"{gone} [gloo]" in decision.reasons[0]


def test_sound_evidence_is_approved_for_what_was_tested_and_no_more(tmp_path: Path) -> None:
    decision = decide(load(fabricate(tmp_path, sound=True, hosts=2)), load_policy(), NOW)

    assert (decision.verdict, decision.next_exposure) == ("approve", "2 ranks on 2 hosts, gloo")


def test_three_tested_ranks_are_approved_as_the_step_below(tmp_path: Path) -> None:
    evidence, policy = _evidence("passed", "passed")
    runs = {RUN.run_id: replace(RUN, spec={"world_size": 3})}

    assert decide(replace(evidence, runs=runs), policy, NOW).next_exposure == "2 ranks on one host, gloo"


def test_one_criterion_that_adds_ranks_on_its_way_approves_no_more_than_the_audit_was_of(tmp_path: Path) -> None:
    """A resume at four ranks in an audit of two says nothing of training on four."""
    evidence = load(fabricate(tmp_path, sound=True))
    runs = {name: replace(run, spec={**run.spec, "world_size": 4}) for name, run in evidence.runs.items()}

    assert evidence.meta["world"]["world_size"] == 2
    assert decide(replace(evidence, runs=runs), load_policy(), NOW).next_exposure == "2 ranks on one host, gloo"


def test_what_an_approval_does_not_cover_is_said() -> None:
    evidence, policy = _evidence("not_applicable", "waived")

    reasons = decide(evidence, policy, NOW).reasons

    assert any("Not covered: recovery.restore [gloo] (not applicable)" in reason for reason in reasons)
    assert any("Not covered: efficiency.scaling [gloo] (waived)" in reason for reason in reasons)


CONCERNS: list[tuple[dict[str, Any], str]] = [
    ({"catalogue": ()}, "catalogue is empty"),
    ({"runs": {}}, "rests on run w2-run, which is not stored"),
    ({"runs": {RUN.run_id: replace(RUN, spec={})}}, "no exposure to approve"),
    ({"runs": {RUN.run_id: replace(RUN, ended={"started_utc": "2026-01-01T00:00:00+00:00"})}}, "dates from 2026-01-01"),
    ({"runs": {RUN.run_id: replace(RUN, ended={"started_utc": "2027-01-01T00:00:00+00:00"})}}, ""),
]


@pytest.mark.parametrize(("changes", "words"), CONCERNS)
def test_evidence_without_foundation_holds(changes: dict[str, Any], words: str) -> None:
    evidence, policy = _evidence("passed", "passed")

    decision = decide(replace(evidence, **changes), policy, NOW)

    assert decision.verdict == ("hold" if words else "approve")
    assert any(words in reason for reason in decision.reasons)


@pytest.mark.parametrize(("started", "words"), [("yesterday", "no readable date"), ("2026-09-30T00:00:00+00:00", "lies ahead")])
def test_a_date_that_cannot_be_right_holds(started: str, words: str) -> None:
    evidence, policy = _evidence("passed", "passed", started=started)
    runs = {RUN.run_id: replace(RUN, ended={})}

    decision = decide(replace(evidence, runs=runs), policy, NOW)

    assert decision.verdict == "hold"
    assert any(words in reason for reason in decision.reasons)


def test_records_that_the_catalogue_does_not_name_hold() -> None:
    evidence, policy = _evidence("passed", "passed")
    stray = _record(_entry("efficiency.renamed"), "as_is", "accepted")
    records = {**evidence.records, ("efficiency.renamed", "gloo", "as_is"): stray}

    assert "efficiency.renamed [gloo]" in decide(replace(evidence, records=records), policy, NOW).reasons[0]


def test_a_critical_kind_that_the_catalogue_lacks_or_the_job_declares_away_holds() -> None:
    evidence, policy = _evidence("passed", "passed")
    without = tuple(entry for entry in evidence.catalogue if not entry.id.startswith("equivalence"))
    records = {key: record for key, record in evidence.records.items() if not key[0].startswith("equivalence")}
    declared = {**evidence.meta, "job": {"capabilities": {"equivalence.gradient": "samples at random"}}}

    assert "no such criterion" in decide(replace(evidence, catalogue=without, records=records), policy, NOW).reasons[0]
    assert "none of it applies" in decide(replace(evidence, meta=declared), policy, NOW).reasons[0]


def test_the_words_of_a_decision_do_not_depend_on_the_time_of_judging(tmp_path: Path) -> None:
    evidence = load(fabricate(tmp_path))

    assert decide(evidence, load_policy(), NOW) == decide(evidence, load_policy(), NOW + timedelta(days=20))
    assert decide(evidence, load_policy(), NOW + timedelta(days=50)) == decide(evidence, load_policy(), NOW + timedelta(days=500))


def _policy(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    return file


WAIVER = '[[waiver]]\nid = "efficiency.scaling"\nreason = "known"\nowner = "lead"\nexpires = 2026-12-31\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[owners", "cannot be read as a policy"),
        ("[colour]\na = 1", "unknown table .colour.; known are bounds, compare, critical"),
        ("[critical]\npatterns = []", "unknown key critical.patterns; known are criteria"),
        ("[critical]\ncriteria = 'recovery'", "critical.criteria is 'recovery'"),
        ("[evidence]\nmax_age_days = -1", "max_age_days is -1; give a number above 0"),
        ("[exposure]\nladder = [1, 1]", "rising rank counts"),
        ("[bounds]\nspeed = 'fast'", "bounds.speed is 'fast'"),
        ("waiver = 3", r"must be written as \[\[waiver\]\]"),
        ("[exposure]\nladder = [1]\n" + WAIVER.replace('reason = "known"\n', ""), "efficiency.scaling has no reason"),
        ("[exposure]\nladder = [1]\n" + WAIVER.replace("2026-12-31", "'soon'"), "expires 'soon', which is no date"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        load_policy(_policy(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "message"),
    [(("efficiency.scaling", "efficiency.speed"), "the catalogue has no such criterion"), (("2026-12-31", "2026-08-21"), "expired on 2026-08-21"),
     (('owner = "lead"', 'owner = "lead"\nbackend = "nccl"'), r"efficiency.scaling \[nccl\]: the catalogue has no such")],
)  # fmt: skip
def test_an_unknown_or_expired_waiver_is_an_error_of_use(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    policy = load_policy(_policy(tmp_path, DEFAULT_POLICY.read_text() + WAIVER.replace(*change)))
    evidence, _ = _evidence("passed", "failed")

    with pytest.raises(PolicyError, match=message):
        decide(evidence, policy, NOW)


def test_a_waiver_holds_through_its_last_day_and_never_hides_a_pass(tmp_path: Path) -> None:
    policy = load_policy(_policy(tmp_path, DEFAULT_POLICY.read_text() + WAIVER))
    evidence, _ = _evidence("passed", "passed")

    assert decide(evidence, policy, datetime(2026, 12, 31, 23, tzinfo=UTC)).verdict == "hold", "by then the evidence is stale"
    assert [ruling.verdict for ruling in rulings(evidence, policy.waivers)] == ["passed"] * 4


def test_the_policy_of_the_suite_names_an_owner_for_everything_and_calls_recovery_and_equivalence_critical() -> None:
    policy = load_policy()

    assert policy.is_critical("recovery.continuation")
    assert policy.is_critical("equivalence.gradient")
    assert not policy.is_critical("efficiency.scaling")
    assert policy.owner("recovery.continuation") == "infrastructure owner"
    assert policy.owner("equivalence.gradient") == "model training lead"
