"""The economics of an audited job: its numbers against the formulas worked by hand, what each rests on, and what is said where something is missing."""

from __future__ import annotations

import copy
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reports.finish import finish
from reports.outlook import ASSUMED, outlook
from reports.policy import load_policy
from reports.wording import amount, hours
from suite.selftest.fabricated import fabricate

NOW = datetime(2026, 8, 22, tzinfo=UTC)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = fabricate(tmp_path_factory.mktemp("audit"))
    finish(folder, None, NOW)
    found: dict[str, Any] = json.loads((folder / "audit.json").read_text())
    return found


def rows_of(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in plan["rows"]}


def test_the_cadence_is_young_and_daly_of_the_measured_save(audit: dict[str, Any]) -> None:
    rows = rows_of(audit["economics"])

    young = math.sqrt(2 * 0.187 * 6 * 3600)
    assert rows["young_s"]["value"] == pytest.approx(young)
    assert rows["daly_s"]["value"] == pytest.approx(young, rel=0.01)
    assert rows["daly_steps"]["value"] == round(rows["daly_s"]["value"] / 0.0412)
    assert rows["own_s"]["value"] == pytest.approx(6 * 0.0412)


def test_time_cost_and_goodput_agree_with_each_other(audit: dict[str, Any]) -> None:
    """Work divided by goodput is the expected time; cost is that time on two devices."""
    rows = rows_of(audit["economics"])

    assert rows["ideal_s"]["value"] == pytest.approx(1_000_000 * 0.0412)
    for label in ("own", "best"):
        assert rows[f"expected_{label}_s"]["value"] == pytest.approx(rows["ideal_s"]["value"] / rows[f"goodput_{label}"]["value"], rel=1e-3)
        assert rows[f"cost_{label}"]["value"] == pytest.approx(rows[f"expected_{label}_s"]["value"] / 3600 * 2 * 2.0)
    assert rows["goodput_own"]["value"] == pytest.approx(0.0412 * 6 / (0.0412 * 6 + 0.187), rel=0.01), "saves take most of what is lost"


def test_every_row_says_how_it_is_known_and_what_it_assumes(audit: dict[str, Any]) -> None:
    rows = rows_of(audit["economics"])

    assert {row["provenance"] for row in rows.values()} == {"measured", "calculated", "assumed"}
    assert {name for name, row in rows.items() if row["provenance"] == "assumed"} == set(ASSUMED)
    assert all(row["formula"] for row in rows.values())
    assert rows["risk_own"]["rests_on"] == ["deadline", "launch", "interruptions", "planned steps"]
    assert rows["own_s"]["rests_on"] == []


def test_the_summary_says_which_cadence_and_what_it_brings(audit: dict[str, Any]) -> None:
    first, second = audit["economics"]["summary"]

    assert first.startswith("Saving every 2,1")
    assert "the job saves every 6: 56.8% of its time counts as training" in first
    assert "misses its deadline of 48 h with probability 0" in second


def test_targets_of_the_job_override_the_policy(audit: dict[str, Any]) -> None:
    changed = copy.deepcopy(audit)
    changed["job"]["targets"] = {"planned_steps": 10_000_000.0}
    rows = rows_of(outlook(changed, load_policy().economics))

    assert rows["planned_steps"]["formula"] == "[targets] of the job"
    assert rows["risk_own"]["value"] == 1.0


@pytest.mark.parametrize("gone", ["save_s", "restart_s", "step_s"])
def test_what_was_not_measured_is_said_and_nothing_is_made_up(audit: dict[str, Any], gone: str) -> None:
    changed = copy.deepcopy(audit)
    del changed["measured"]["figures"][gone]
    plan = outlook(changed, load_policy().economics)

    assert plan["rows"] == []
    assert plan["reason"].startswith("not measured or not assumed: ")


def test_a_save_that_costs_nothing_measurable_gives_the_reason(audit: dict[str, Any]) -> None:
    changed = copy.deepcopy(audit)
    changed["measured"]["figures"]["save_s"]["value"] = 0.0

    assert "save_s = 0" in outlook(changed, load_policy().economics)["reason"]


def test_the_same_evidence_gives_the_same_bytes_of_runbook_and_rules(tmp_path: Path) -> None:
    written = []
    for moment in (NOW, datetime(2026, 8, 23, tzinfo=UTC)):
        folder = fabricate(tmp_path / str(moment.day))
        finish(folder, None, moment)
        written.append([(folder / name).read_bytes() for name in ("RUNBOOK.md", "alerts.yml", "audit.json")])

    assert written[0] == written[1]


def test_page_and_runbook_say_what_audit_json_says(audit: dict[str, Any], tmp_path: Path) -> None:
    folder = fabricate(tmp_path)
    finish(folder, None, NOW)
    page, book = (folder / "audit.html").read_text(), (folder / "RUNBOOK.md").read_text()

    assert all(f'id="economics.{row["name"]}"' in page for row in audit["economics"]["rows"])
    assert all(rule["name"] in page for rule in audit["observability"])
    assert all(f"## {entry['title']}" in book and f'id="runbook.{entry["id"]}"' in page for entry in audit["runbook"]["entries"])
    assert "1,177,955 parameters in float32" in page
    assert "| restart: from a rank's start to its first step | 910 ms | measured:" in book
    assert "not measured" in book


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(0.0412, "s", "41.2 ms"), (41.0, "s", "41 s"), (720.0, "s", "12 min"), (12_240.0, "s", "3.4 h"), (181_440.0, "s", "2.1 d"), (14_245_792.0, "B", "14.2 MB"),
     (0.568, "ratio", "56.8%"), (0.99991, "ratio", "99.991%"), (1_000_000, "steps", "1,000,000 steps"), (2e-4, "probability", "0.0002")],
)  # fmt: skip
def test_amounts_read_as_people_say_them(value: float, unit: str, words: str) -> None:
    assert amount(value, unit) == words
    assert hours(90.0) == "90 s"
