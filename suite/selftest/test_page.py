"""The page says what audit.json says, carries all of it, asks for nothing, and cannot be taken over by what a job printed."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import re
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reports import __main__ as command
from reports.audit_json import dumped
from reports.charts import KINDS, draw
from reports.evidence import Finding, file_hashes, write_record
from reports.finish import finish
from reports.page import render_page
from reports.plot_svg import StyleSheet
from reports.policy import PolicyError
from reports.verdicts import VERDICTS
from reports.wording import number, quantity, sentence
from suite.selftest.fabricated import CRITERIA, STARTED, as_is_findings, fabricate, waiving_policy

NOW = datetime(2026, 8, 22, tzinfo=UTC)
MOST_BYTES = 2_000_000


class Page(HTMLParser):
    """The page, parsed: its elements, its text outside scripts and styles, and the content of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.raw = "", ""
        self.inside = ""
        self.blocks: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside = f"{tag}{dict(attrs).get('id') or ''}"

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag in ("script", "style") else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.blocks[self.inside] = self.blocks.get(self.inside, "") + data
        else:
            self.text += data

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] or "" for _, attributes in self.elements if attribute in attributes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fabricate(tmp_path_factory.mktemp("audit"))
    finish(made, waiving_policy(made), NOW)
    return made


@pytest.fixture(scope="module")
def audit(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "audit.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "audit.html").read_text())


def test_audit_json_has_every_key_that_readers_of_it_rely_on(audit: dict[str, Any]) -> None:
    assert {"schema", "job", "identity", "environment", "decision", "coverage", "criteria"} <= set(audit)
    assert {"verdict", "reasons", "next_exposure", "owner"} <= set(audit["decision"])
    assert set(audit["coverage"]) == {"catalogue", *VERDICTS}
    for item in audit["criteria"]:
        assert {"id", "backend", "version", "claim", "verdict", "finding", "twin", "assumptions", "limitations", "verify"} <= set(item)
        assert {"value", "unit", "bound", "margin", "explanation", "interval", "samples", "provenance"} <= set(item["finding"])
        assert {"fault", "fired", "rejected", "explanation"} <= set(item["twin"])


def test_the_ledger_adds_up_in_the_data_and_on_the_page(audit: dict[str, Any], page: Page) -> None:
    coverage = dict(audit["coverage"])
    total = coverage.pop("catalogue")
    shown = Counter(attributes["data-verdict"] for _, attributes in page.elements if "data-verdict" in attributes)

    assert sum(coverage.values()) == total == len(CRITERIA)
    assert shown == {name: count for name, count in coverage.items() if count}
    assert all(coverage.values()), "the made-up audit is meant to show every verdict"
    assert "It adds up" in page.text


def test_a_ledger_that_does_not_add_up_is_said_to_be_broken(audit: dict[str, Any]) -> None:
    hidden = copy.deepcopy(audit)
    del hidden["criteria"][3]
    miscounted = copy.deepcopy(audit)
    miscounted["coverage"]["passed"] += 1

    for broken in (hidden, miscounted):
        assert "It does not add up" in Page(render_page(broken, dumped(broken))).text


def test_every_criterion_shows_all_that_is_known_of_it(audit: dict[str, Any], page: Page) -> None:
    words = " ".join(page.text.split()).lower()
    for item in audit["criteria"]:
        finding = item["finding"]
        for text in (item["claim"], item["reason"], item["twin"]["words"], item["verify"], item["rerun"], item["source"], finding["power"]):
            assert " ".join(text.lower().split()).rstrip(".") in words, f"{item['id']}: {text!r} is not on the page"
        if finding["value"] is not None:
            assert number(finding["value"]) in words
        for run in item["runs"]:
            assert audit["runs"][run]["digest"][:16] in words


def test_failed_criteria_come_first_and_the_decision_before_all(audit: dict[str, Any], page: Page) -> None:
    order = [attributes["data-verdict"] for _, attributes in page.elements if "data-verdict" in attributes]
    anchors = page.values("id")

    assert order == sorted(order, key=lambda verdict: VERDICTS.index(verdict))
    assert anchors.index("decision") < anchors.index("coverage") < anchors.index("measurements") < anchors.index("criteria")
    assert audit["decision"]["verdict"] == "reject"
    for item in audit["decision"]["blocking"]:
        assert item["actual"] in page.text
        assert item["required"] in page.text


def test_anchors_are_those_that_links_were_made_to(page: Page) -> None:
    anchors = page.values("id")

    assert [name for name, count in Counter(anchors).items() if count > 1] == []
    for row in CRITERIA:
        assert {row[0], f"{row[0]}.evidence", f"{row[0]}.verify"} <= set(anchors)
    assert {"equivalence.loss_trajectory.trajectory", "recovery.worst_boundary.boundaries"} <= set(anchors)
    targets = [link[1:] for link in page.values("href") if link.startswith("#")]
    assert set(targets) <= set(anchors)


def test_a_second_backend_has_anchors_of_its_own(audit: dict[str, Any]) -> None:
    both = copy.deepcopy(audit)
    both["criteria"] += [{**item, "backend": "nccl"} for item in both["criteria"]]

    anchors = Page(render_page(both, dumped(both))).values("id")

    assert {"recovery.restore", "recovery.restore.nccl"} <= set(anchors)
    assert max(Counter(anchors).values()) == 1


def test_what_a_job_printed_stays_text(folder: Path, page: Page) -> None:
    content = (folder / "audit.html").read_text()

    assert "<script>alert(" not in content
    assert "alert('x')" in page.text
    assert [tag for tag, _ in page.elements].count("script") == 2


def test_a_hostile_string_in_any_place_of_the_data_stays_text(audit: dict[str, Any]) -> None:
    evil = '"><img src=x onerror=alert(1)></script><script>alert(1)</script>'

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        return (
            value + evil
            if isinstance(value, str) and value not in (*VERDICTS, "reject", "at_most", "at_least", "equal", STARTED)
            else value
        )

    poisoned = poison(audit)
    parsed = Page(render_page(poisoned, dumped(poisoned)))

    assert "img" not in {tag for tag, _ in parsed.elements}
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]


def test_the_page_refers_to_nothing_outside_itself(folder: Path, page: Page) -> None:
    references = [value for name in ("href", "src", "srcset", "action", "data") for value in page.values(name)]

    assert [value for value in references if not value.startswith(("#", "data:,"))] == []
    assert not re.search(r"url\((?!#)|@import|https?://", page.blocks["style"])
    assert not {"iframe", "object", "embed", "img"} & {tag for tag, _ in page.elements}
    assert page.values("style") == []


def test_the_content_policy_admits_the_style_sheet_and_the_script_and_nothing_else(page: Page) -> None:
    content = next(
        attributes["content"] or "" for tag, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy"
    )

    def digest(block: str) -> str:
        return base64.b64encode(hashlib.sha256(page.blocks[block].encode()).digest()).decode()

    assert content.startswith("default-src 'none'; ")
    assert f"style-src 'sha256-{digest('style')}'" in content
    assert f"script-src 'sha256-{digest('script')}'" in content
    assert "unsafe" not in content


def test_the_page_carries_audit_json_unchanged(audit: dict[str, Any], page: Page) -> None:
    assert json.loads(page.blocks["scriptaudit-json"]) == audit


def test_structure_that_assistive_technology_relies_on(page: Page) -> None:
    tags = Counter(tag for tag, _ in page.elements)

    assert (tags["h1"], tags["main"], tags["footer"], tags["nav"]) == (1, 1, 1, 1)
    assert page.elements[0][1].get("lang") == "en" or ("html", {"lang": "en"}) in page.elements
    assert tags["caption"] == tags["table"]
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.elements if tag == "th")
    assert all(attributes.get("aria-label") for _, attributes in page.elements if attributes.get("role") == "img")
    assert tags["figure"] == sum(attributes.get("class") == "plot" for _, attributes in page.elements)


def test_same_evidence_same_bytes(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "evidence.sqlite", tmp_path)
    finish(tmp_path, waiving_policy(tmp_path), NOW + timedelta(days=9, hours=3))

    for name in ("audit.json", "audit.html"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), f"{name} depends on more than the evidence"


def test_the_page_stays_within_its_budget(folder: Path) -> None:
    assert (folder / "audit.html").stat().st_size < MOST_BYTES


def test_evidence_that_grew_too_old_says_so_and_nothing_else_changes(tmp_path: Path) -> None:
    fabricate(tmp_path, sound=True)
    assert finish(tmp_path, now=NOW).verdict == "approve"
    fresh = json.loads((tmp_path / "audit.json").read_text())
    assert finish(tmp_path, now=NOW + timedelta(days=90)).verdict == "hold"
    stale = json.loads((tmp_path / "audit.json").read_text())

    assert {key for key in fresh if fresh[key] != stale[key]} == {"decision"}
    assert "stale" in Page((tmp_path / "audit.html").read_text()).text


def test_a_killed_session_is_held_and_the_page_says_why(tmp_path: Path) -> None:
    fabricate(tmp_path, sound=True, unfinished=True)

    assert finish(tmp_path, now=NOW).verdict == "hold"
    assert "did not finish" in Page((tmp_path / "audit.html").read_text()).text


def test_an_empty_audit_has_a_page_too(tmp_path: Path) -> None:
    from reports.evidence import create

    create(tmp_path)

    assert finish(tmp_path, now=NOW).verdict == "hold"
    assert "The catalogue is empty" in Page((tmp_path / "audit.html").read_text()).text


def test_files_are_replaced_whole_and_left_alone_by_an_error(tmp_path: Path) -> None:
    fabricate(tmp_path, sound=True)
    finish(tmp_path, now=NOW)
    before = file_hashes(tmp_path)
    (tmp_path / "wrong.toml").write_text("[colour]\n")

    with pytest.raises(PolicyError):
        finish(tmp_path, tmp_path / "wrong.toml", NOW)

    after = file_hashes(tmp_path)
    after.pop("wrong.toml")
    assert after == before, "nothing was changed and no temporary file was left"


def test_every_kind_of_chart_is_drawn_with_its_words_and_its_rows(audit: dict[str, Any]) -> None:
    drawn = {kind for finding in as_is_findings().values() for kind in finding.details if kind in KINDS}
    assert drawn == set(KINDS)
    for item in audit["criteria"]:
        for kind in set(item["finding"]["details"]) & set(KINDS):
            chart = draw(kind, item["finding"]["details"][kind], "x", item["finding"], StyleSheet())
            assert chart.svg.startswith("<svg"), f"{kind}: {chart.words}"
            assert chart.rows
            assert html.escape(chart.words).replace("&#x27;", "'") in chart.svg


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "data", [[{"colour": 1}], [], {}, "text", 3, [1], {"steps": [1], "deviation": ["nan"], "envelope": [None]}, [{"rank": None}]]
)
def test_data_that_cannot_be_drawn_gives_words_instead_of_an_error(kind: str, data: Any) -> None:
    chart = draw(kind, data, "x", {"bound": None}, StyleSheet())

    assert chart.svg or "cannot be drawn" in chart.words


def test_charts_take_their_colours_from_the_page_and_not_from_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    data, sheet = as_is_findings()["efficiency.scaling"].details["scaling"], StyleSheet()
    plain = draw("scaling", data, "x", {"bound": 0.65}, sheet).svg
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "#123456")
    monkeypatch.setitem(mpl.rcParams, "font.size", 30)

    assert draw("scaling", data, "x", {"bound": 0.65}, StyleSheet()).svg == plain
    assert "var(--line)" in sheet.rules()
    assert not re.search(r"#[0-9a-f]{6}\b", sheet.rules()), "a colour that does not follow the theme"
    assert "style=" not in plain


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (0, "0"), (6144, "6,144"), (0.87312, "0.8731"), (41.2, "41.2"), (1234.5, "1,234"), (1.4e-7, "1.4e-07"), (3.25e9, "3.25e+09"),
     ("nan", "not a number"), (float("inf"), "infinite"), (-0.13, "-0.13"), (0.001, "0.001")],
)  # fmt: skip
def test_numbers_are_shown_with_the_digits_that_matter(value: Any, text: str) -> None:
    assert number(value) == text


def test_units_and_sentences() -> None:
    assert quantity(2, "ranks") == "2 ranks"
    assert quantity(None, "s") == "not measured"
    assert sentence("rank 1 hangs") == "Rank 1 hangs."
    assert sentence("job.toml has no [inputs]") == "job.toml has no [inputs]."


def test_page_command_prints_the_path_and_the_decision(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / "evidence.sqlite", tmp_path)

    assert command.main(["page", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "audit.html"), "decision: reject"]


def test_explain_command_gives_the_claim_the_number_the_twin_and_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["explain", "recovery.worst_boundary", str(folder)]) == 0

    said = " ".join(capsys.readouterr().out.split())
    for text in ("failed (critical)", "4 boundaries (measured), required at most 0", "fired, rejected, for the reason foretold",
                 "python -m suite judge audits/flights-20260821-091200 --criterion recovery.worst_boundary"):  # fmt: skip
        assert text in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["page", "{}/none"], "does not exist"), (["explain", "recovery.nothing", "{}"], "is not in the catalogue"), (["verify", "{}/none"], "does not exist"),
     (["page", "{}", "--policy", "{}/none.toml"], "cannot be read as a policy")],
)  # fmt: skip
def test_wrong_use_is_one_sentence_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command.main([argument.format(folder) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_non_finite_numbers_reach_the_page_as_words(tmp_path: Path) -> None:
    fabricate(tmp_path)
    diverged = Finding(
        False, float("inf"), "relative", 1e-6, "at_most", "The loss is infinite from step 3 on.", details={"worst": float("nan")}
    )
    write_record(
        tmp_path, id="equivalence.gradient", backend="gloo", part="as_is", finding=diverged, fired=None, runs=[], started_utc=STARTED, duration_s=1.0
    )  # fmt: skip

    finish(tmp_path, now=NOW)

    assert "infinite relative" in Page((tmp_path / "audit.html").read_text()).text
