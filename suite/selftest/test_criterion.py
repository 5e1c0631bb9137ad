"""The machinery that runs a criterion twice: what counts, and what never may."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.audit import Audit, RunSpec
from fixtures.criterion import Criterion, Inconclusive, PartResult, Twin, complaint, criterion, criterion_of, discover, run_part
from fixtures.faults import Fault
from fixtures.plugin import ROOT
from reports.evidence import Finding

TWIN = Fault("scale_gradient", rank=1, factor=2.0)


def declare(test: Any, **changed: Any) -> Criterion:
    options: dict[str, Any] = {"claim": "it holds", "twin": TWIN, "because": "rank 1", "threshold": "0", "min_world": 1} | changed
    found = criterion_of(criterion("equivalence.example", **options)(test))
    assert found is not None
    return found


def an_audit(declared: Criterion, part: str, **job: Any) -> Audit:
    """An audit of an imaginary job, whose runs cannot be had."""
    facts = {"name": "imaginary", "steps": 4, "seed": 0, "capabilities": {}, "targets": {}, "path": SimpleNamespace(name="job.toml")} | job

    def nowhere(spec: RunSpec) -> Any:
        raise Inconclusive(f"no run {spec.run_id}")

    return Audit(SimpleNamespace(**facts), declared, part, "gloo", "warm", 2, {}, {}, nowhere)  # type: ignore[arg-type]


def finding(accepted: bool | None, explanation: str = "rank 1 is off") -> Finding:
    return Finding(accepted=accepted, value=1.0, unit="", bound=1.0, direction="at_most", explanation=explanation)


@pytest.mark.parametrize(
    ("part", "outcome", "fired", "said", "counts"),
    [
        ("as_is", "accepted", False, "fine", True),
        ("as_is", "rejected", False, "rank 1 is off", False),
        ("as_is", "inconclusive", False, "too few steps", False),
        ("as_is", "crashed", False, "a bug of ours", False),
        ("as_is", "not_applicable", False, "declared", True),
        ("twin", "rejected", True, "rank 1 is off", True),
        ("twin", "rejected", False, "rank 1 is off", False),
        ("twin", "rejected", True, "the run crashed", False),
        ("twin", "accepted", True, "fine", False),
        ("twin", "inconclusive", True, "too few steps", False),
        ("twin", "crashed", True, "a bug of ours", False),
        ("twin", "not_applicable", False, "declared", True),
    ],
)
def test_what_counts_as_passed(part: Any, outcome: Any, fired: bool, said: str, counts: bool) -> None:
    """As is must be accepted; the twin must be rejected, after its fault fired, for the stated reason. Nothing else counts."""
    declared = declare(lambda audit: None)
    accepted = {"accepted": True, "rejected": False}.get(outcome)
    result = PartResult(outcome, finding(accepted, said), fired, ())

    told = complaint(declared, part, result)

    assert (told == "") is counts, f"expected {'no complaint' if counts else 'a complaint'}, got {told!r}"


def test_a_crash_of_the_audit_is_never_a_rejection() -> None:
    """A twin 'rejected' by a bug in the judge would show nothing; it is told apart."""

    def breaks(audit: Audit) -> None:
        raise ZeroDivisionError("in the judge")

    declared = declare(breaks)
    result = run_part(declared, an_audit(declared, "twin"))

    assert result.outcome == "crashed"
    assert "ZeroDivisionError: in the judge" in result.finding.explanation
    assert result.finding.accepted is None


def test_a_criterion_that_judges_nothing_is_inconclusive() -> None:
    """A test body that asserts nothing passes in plain pytest; here it does not count."""
    declared = declare(lambda audit: None)

    assert run_part(declared, an_audit(declared, "as_is")).outcome == "inconclusive"


def test_an_assertion_outside_a_judge_is_a_crash() -> None:
    """Only a judge's finding may reject: a stray assert carries no value, bound or explanation."""

    def asserts(audit: Audit) -> None:
        raise AssertionError("stray")

    declared = declare(asserts)

    assert run_part(declared, an_audit(declared, "as_is")).outcome == "crashed"


def test_what_the_job_lacks_is_inconclusive_until_declared() -> None:
    """A part that job.toml leaves out holds the decision; declared with a reason it is not applicable, and shown."""
    declared = declare(lambda audit: audit.judge(lambda: finding(True)), needs=("checkpoint",))

    undeclared = run_part(declared, an_audit(declared, "as_is", checkpoint=None))
    excused = run_part(declared, an_audit(declared, "as_is", checkpoint=None, capabilities={"checkpoint": "a five-minute job"}))

    assert undeclared.outcome == "inconclusive"
    assert "no [checkpoint]" in undeclared.finding.explanation
    assert excused.outcome == "not_applicable"
    assert "a five-minute job" in excused.finding.explanation


def test_too_small_a_world_is_inconclusive() -> None:
    """A claim about several ranks cannot be judged on one."""
    declared = declare(lambda audit: audit.judge(lambda: finding(True)), min_world=4)

    assert "at least 4 ranks" in run_part(declared, an_audit(declared, "as_is")).finding.explanation


def test_equal_runs_share_a_name_and_others_do_not() -> None:
    """The run cache lives by this: what differs in anything that matters must differ in its id."""
    base = RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0)
    others = [
        RunSpec(world_size=1, backend="gloo", launcher="warm", steps=4, seed=0),
        RunSpec(world_size=2, backend="nccl", launcher="warm", steps=4, seed=0),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=5, seed=0),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=1),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0, faults=(TWIN,)),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0, permute=1),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0, repeat=1),
        RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0, resume_from=base.run_id),
    ]

    assert RunSpec(world_size=2, backend="gloo", launcher="warm", steps=4, seed=0).run_id == base.run_id
    assert len({base.run_id, *(spec.run_id for spec in others)}) == len(others) + 1


def test_a_fault_goes_only_where_its_rank_is() -> None:
    """The twin's fault on rank 1 comes along to a world of 2, not to the one-device run that it is compared with."""
    asked: list[RunSpec] = []
    declared = declare(lambda audit: None)
    audit = an_audit(declared, "twin")

    def remember(spec: RunSpec) -> Any:
        asked.append(spec)
        raise Inconclusive("enough")

    audit.obtain = remember
    for world_size, planted in ((1, True), (2, True), (2, False)):
        with pytest.raises(Inconclusive):
            audit.run(world_size=world_size, planted=planted)

    assert [spec.faults for spec in asked] == [(), (TWIN,), ()]


@pytest.mark.parametrize("wrong", ["speed.scaling", "equivalence", "Equivalence.x", "equivalence.a.b"])
def test_ids_have_one_area_and_one_name(wrong: str) -> None:
    """An id is an anchor on the page and a key of comparisons; a wrong one is refused where it is written."""
    with pytest.raises(ValueError, match="criterion id"):
        criterion(wrong, claim="", twin=TWIN, because="", threshold="")


def test_several_twins_are_parts_of_their_own() -> None:
    """Each twin plants its own fault and must give its own reason."""
    twins = (Twin(TWIN, "rank 1", "scaled"), Twin(Fault("forget", part="weights"), "weights", "forgetful"))
    declared = declare(lambda audit: None, twin=None, twins=twins)
    rejected = PartResult("rejected", finding(False, "rank 1 is off"), True, ())

    assert declared.parts == ("as_is", "twin-scaled", "twin-forgetful")
    assert an_audit(declared, "twin-forgetful").twin == Fault("forget", part="weights")
    assert an_audit(declared, "as_is").twin is None
    assert complaint(declared, "twin-scaled", rejected) == ""
    assert "for another reason" in complaint(declared, "twin-forgetful", rejected)


@pytest.mark.parametrize(
    ("twins", "words"),
    [
        ((), "has no twin"),
        ((Twin(TWIN, ""), Twin(TWIN, "")), "a name of its own"),
        ((Twin(TWIN, "", "A b"), Twin(TWIN, "", "c")), "a name"),
    ],
)
def test_twins_that_cannot_be_told_apart_are_refused(twins: Any, words: str) -> None:
    """A record needs one owner: no twin, or two of one name, is an error where it is written."""
    with pytest.raises(ValueError, match=words):
        declare(lambda audit: None, twin=None, twins=twins)


def test_every_criterion_of_the_suite_says_all_that_its_card_needs() -> None:
    """Claim, threshold, assumptions, limitations, what would overturn it, and one sentence of docstring."""
    lacking = [
        f"{one.id}: {name}"
        for one in discover(ROOT / "suite")
        for name, value in (
            ("claim", one.claim),
            ("threshold", one.threshold),
            ("because", all(twin.because for twin in one.twins)),
            ("assumptions", one.assumptions),
            ("limitations", one.limitations),
            ("overturned_by", one.overturned_by),
            ("docstring", one.test.__doc__),
        )
        if not value
    ]

    assert lacking == []
