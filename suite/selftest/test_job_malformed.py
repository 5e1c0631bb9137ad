"""Whatever stands in a job.toml, reading it gives a job or one sentence: never a traceback, never two lines."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis", reason='hypothesis is not installed: pip install -e ".[dev]"')

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.job import JobError, load_job
from fixtures.job_schema import OPEN_TABLES, TABLES
from suite.selftest.test_job import GOOD, write

KEYS = sorted(
    {key for table in TABLES.values() for key in table} | {"rows", "padding", "scaling_efficiency", "4", "x", "", "a b", 'q"', "né\n"}
)
NAMES = sorted({*TABLES, *OPEN_TABLES, "worlds.4", "records.rows", "job.environment", "nonsense"})
texts = st.text(max_size=40) | st.sampled_from(
    ["train.py", "{out}", "{", "'", "a" * 5000, "-m", "--x {steps}", "\\", "(", "inf", "../..", "/"]
)
scalars = st.one_of(
    texts, st.integers(), st.integers(min_value=10**30, max_value=10**40), st.floats(), st.booleans(), st.dates(), st.times()
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6)
tables = st.dictionaries(st.sampled_from(KEYS) | texts, values, max_size=5)
files = st.dictionaries(st.sampled_from(NAMES) | texts, tables | values, max_size=6)


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = "".join(f"\\U{ord(sign):08X}" if sign < " " or sign in '"\\\x7f' else sign for sign in value)
            return f'"{escaped}"'
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{toml(str(key))} = {toml(one)}" for key, one in value.items()) + "}"
        case float():
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), f"{value:.17e}")
        case int():
            return str(value)
        case _:
            return str(value.isoformat())


def told_in_one_sentence(folder: Path, content: bytes) -> None:
    """Load it; what is wrong must come as one line that names the file."""
    path = write(folder)
    path.write_bytes(content)
    said = str(path)
    try:
        load_job(path)
    except JobError as error:
        said = str(error)
    assert said.startswith(str(path)), said
    assert len(said.splitlines()) == 1, repr(said)


@pytest.fixture(scope="module")
def folder() -> Any:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(content=files)
def test_tables_of_any_shape(folder: Path, content: dict[str, Any]) -> None:
    told_in_one_sentence(
        folder, "".join(f"{toml(name)} = {toml(value)}\n" for name, value in content.items()).encode("utf-8", "surrogatepass")
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(table=st.sampled_from(sorted(TABLES)), key=st.sampled_from(KEYS), value=values)
def test_a_good_file_with_one_value_changed(folder: Path, table: str, key: str, value: Any) -> None:
    lines = GOOD.splitlines()
    kept = [line for line in lines if not line.startswith(f"{key} =")]
    at = next((number for number, line in enumerate(kept) if line.startswith(f"[{table}")), None)
    changed = f"{toml(key)} = {toml(value)}"
    content = [*kept[: at + 1], changed, *kept[at + 1 :]] if at is not None else [*kept, f"[{table}]", changed]
    told_in_one_sentence(folder, "\n".join(content).encode("utf-8", "surrogatepass"))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(at=st.integers(0, len(GOOD)), gone=st.integers(0, 30), put=st.text(alphabet=string.printable, max_size=10) | st.binary(max_size=6))
def test_a_good_file_with_a_piece_replaced(folder: Path, at: int, gone: int, put: str | bytes) -> None:
    piece = put if isinstance(put, bytes) else put.encode()
    told_in_one_sentence(folder, GOOD.encode()[:at] + piece + GOOD.encode()[at + gone :])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xef\xbb\xbf[job]", b"\x00" * 100, b"x = " + b"[" * 5000, b"x = 1" + b"0" * 5000, b"[" + b"a." * 3000 + b"b]", b"x = " + b"{a=" * 3000,
        b"job = 1", b"[[job]]", b"[job]\nname.x = 1", b"'" * 3, b"\xff\xfe[\x00j\x00", b"[records]\nrows = 1", b"[worlds]\n4 = 1", b"[worlds]\n\"\" = {}",
        b"[job]\r\nname = 'n'\rcommand = 'x'", GOOD.encode().replace(b"steps = 20", b"steps = 20\nworld_sizes = [9999999]"),
    ],
    ids=range(17),
)  # fmt: skip
def test_files_that_break_readers(folder: Path, content: bytes) -> None:
    told_in_one_sentence(folder, content)
