"""The table of signals: every cell is read off a real run, none is unexplained, and the page in docs is what the command writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.world import Launcher, open_launcher
from suite.selftest.synthetic import write_trace
from suite.signals import ABSENT, CAPTURED, SHAPES, SIGNALS, UNEXPLAINED, UNSEEN, Cell, Shape, observe, signals_of, signals_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "signals.md"
BY_NAME = {shape.kind: shape for shape in SHAPES}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


@pytest.mark.parametrize(
    "kind", ["plain", "ddp", "fsdp", "sync_flag", "lbfgs", "scaler", "fused", "workers_fork", "no_optimizer", "bare_tensors"]
)
def test_the_row_in_the_docs_is_what_a_run_shows(launcher: Launcher, tmp_path: Path, kind: str) -> None:
    shape, text = BY_NAME[kind], PAGE.read_text()
    cells = signals_of(observe(launcher, shape, tmp_path))
    row = next(line for line in text.splitlines() if line.startswith(f"| {shape.name} |"))
    notes = {line.partition(". ")[0]: line.partition(". ")[2] for line in text.splitlines() if line[:1].isdigit()}
    shown = [one.strip() for one in row.strip("|").split("|")[1:]]

    assert [Cell(CAPTURED) if one == "yes" else Cell(*notes[one.strip("*")].split(": ", 1)) for one in shown] == list(cells.values())


def test_every_shape_and_signal_is_in_the_docs_and_explained() -> None:
    text = PAGE.read_text()
    assert [shape.name for shape in SHAPES if f"| {shape.name} |" not in text] == []
    assert "| loop | " + " | ".join(SIGNALS) + " |" in text
    assert UNEXPLAINED not in text


def test_what_nothing_explains_is_an_error_and_no_blank(tmp_path: Path) -> None:
    from fixtures.trace import load_trace

    write_trace(tmp_path / "run", ranks=1)
    cells = signals_of(load_trace(tmp_path / "run"))
    assert cells["steps"].state == CAPTURED
    assert cells["gradient"].state == UNEXPLAINED
    assert UNEXPLAINED in signals_page([(Shape("a loop", "x", "y"), cells)])


def test_a_reason_stands_once_below_the_table() -> None:
    cells = {signal: Cell(UNSEEN, "it is compiled") for signal in SIGNALS} | {
        "steps": Cell(CAPTURED),
        "buffers": Cell(ABSENT, "there are none"),
    }
    page = signals_page([(Shape("a", "x", "y"), cells), (Shape("b", "x", "y"), cells)])
    assert page.count("not seen: it is compiled") == 1
    assert "| a | yes | **1** |" in page
    assert "not applicable: there are none" in page
