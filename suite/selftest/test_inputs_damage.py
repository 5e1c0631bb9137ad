"""Damaged copies alter what they say they alter and leave everything else as it was, in every format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.faults import Fault
from fixtures.inputs import GARBAGE, UNSEEN, DamageError, InputDamage, damage, with_fault


@dataclass(frozen=True)
class Columns:
    entity: str = "id"
    event_time: str = "event"
    availability_time: str = "known"
    outcome: str = "label"
    outcome_time: str = "label_known"
    payload: tuple[str, ...] = ("speed", "carrier", "count")


def example_rows(count: int = 400) -> pd.DataFrame:
    event = pd.date_range("2013-01-01", periods=count, freq="h", tz="UTC")
    return pd.DataFrame(
        {
            "id": [f"UA{index:05d}" for index in range(count)],
            "event": event,
            "known": event + pd.Timedelta(hours=3),
            "speed": np.linspace(0.25, 99.0, count),
            "carrier": ["UA", "AA", "B6", "DL"] * (count // 4),
            "count": pd.array([None if index % 50 == 0 else index for index in range(count)], dtype="Int64"),
            "label": [float(index % 2) for index in range(count)],
            "label_known": event + pd.Timedelta(hours=4),
        }
    )


@pytest.fixture(params=["parquet", "csv", "jsonl", "json"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same table in each format."""
    table, path = example_rows(), tmp_path / f"events.{request.param}"
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_json(path, orient="records", lines=path.suffix == ".jsonl", date_format="iso")
    return path


def plain(path: Path) -> pd.DataFrame:
    """Every cell as text, as a reader of the file would see it."""
    if path.suffix == ".parquet":
        table: pd.DataFrame = pq.read_table(path).to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
        return table.astype(object).fillna("-").astype(str)
    if path.suffix == ".csv":
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    text = path.read_text()
    rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return pd.DataFrame(rows).astype(object).fillna("-").astype(str)


def test_untouched_copy_is_equal(source: Path, tmp_path: Path) -> None:
    """Reading and writing back changes no cell and no Parquet type."""
    target = tmp_path / "copy" / source.name

    report = damage(source, target, InputDamage("untouched", "events"), Columns())

    assert report["altered"] == 0
    pd.testing.assert_frame_equal(plain(source), plain(target))
    if source.suffix == ".parquet":
        assert pq.read_schema(source).equals(pq.read_schema(target))
        pd.testing.assert_frame_equal(pd.read_parquet(source), pd.read_parquet(target))


def test_malformed_touches_only_listed_rows(source: Path, tmp_path: Path) -> None:
    """One row in a hundred is broken; the report lists exactly the rows and columns that differ."""
    target = tmp_path / "copy" / source.name

    report = damage(source, target, InputDamage("malformed", "events"), Columns())

    before, after = plain(source), plain(target)
    different = (before != after).any(axis=1)
    assert report["altered"] == 4
    assert list(np.flatnonzero(different)) == report["rows"]
    assert report["entities"] == before["id"].iloc[report["rows"]].tolist()
    assert sorted(before.columns[(before != after).any()]) == sorted(report["columns"]) == ["event", "speed"]
    broken = after["speed"].iloc[report["rows"][1]]
    assert broken in {GARBAGE, "inf"}


def test_out_of_range_is_far_beyond(source: Path, tmp_path: Path) -> None:
    """A number a thousand ranges beyond the largest, and a category that was never there."""
    target = tmp_path / "copy" / source.name

    report = damage(source, target, InputDamage("out_of_range", "events"), Columns())

    after = plain(target)
    assert pd.to_numeric(after["speed"]).max() > 90_000
    assert UNSEEN in set(after["carrier"])
    assert report["columns"] == ["speed", "carrier"]


def test_late_rows_differ_by_seed_in_payload_only(source: Path, tmp_path: Path) -> None:
    """Two copies with late records differ in the late records' payload and nowhere else; both make them available after everything."""
    first, second = tmp_path / "a" / source.name, tmp_path / "b" / source.name

    one = damage(source, first, InputDamage("late", "events", share=0.05, seed=1), Columns())
    two = damage(source, second, InputDamage("late", "events", share=0.05, seed=2), Columns())

    left, right, before = plain(first), plain(second), plain(source)
    assert one["rows"] == two["rows"]
    assert set(np.flatnonzero((left != right).any(axis=1))) <= set(one["rows"])
    assert len(np.flatnonzero((left != right).any(axis=1))) >= 0.9 * len(one["rows"])
    assert "known" not in left.columns[(left != right).any()]
    known = pd.to_datetime(left["known"], utc=True, format="ISO8601")
    assert known.iloc[one["rows"]].min() > pd.to_datetime(before["label_known"], utc=True, format="ISO8601").max()


def test_cutoff_keeps_what_was_available(source: Path, tmp_path: Path) -> None:
    """About half of the rows stay, all of them available by the cutoff."""
    target = tmp_path / "copy" / source.name

    report = damage(source, target, InputDamage("cutoff", "events", at=0.5), Columns())

    after = plain(target)
    assert len(after) == report["rows_kept"]
    assert 100 <= len(after) <= 300
    assert pd.to_datetime(after["known"], utc=True, format="ISO8601").max() == pd.Timestamp(report["cutoff"])


@pytest.mark.parametrize("kind", ["input_available_at_event", "input_available_early", "input_altered_value"])
def test_planted_fault_is_reported(source: Path, tmp_path: Path, kind: str) -> None:
    """What a twin plants is on top of the damage, changes the file and says so."""
    target = tmp_path / "copy" / source.name

    report = damage(source, target, with_fault(InputDamage("untouched", "events"), Fault(kind)), Columns())

    before, after = plain(source), plain(target)
    changed = sorted(before.columns[(before != after).any()])
    assert report["planted"] is True
    assert (
        changed
        == {"input_altered_value": ["speed"], "input_available_at_event": ["known"], "input_available_early": ["event", "known"]}[kind]
    )
    if kind == "input_altered_value":
        assert (before != after).to_numpy().sum() == 1


def test_epoch_numbers_are_times_too(tmp_path: Path) -> None:
    """Times may be whole epoch seconds; they stay whole numbers."""
    table = example_rows()
    for column in ("event", "known", "label_known"):
        table[column] = table[column].astype("int64") // 10**9
    source, target = tmp_path / "epoch.parquet", tmp_path / "copy" / "epoch.parquet"
    table.to_parquet(source)

    damage(source, target, InputDamage("late", "events"), Columns())

    after = pq.read_table(target)
    assert after.schema.field("known").type == pa.int64()
    assert max(after["known"].to_pylist()) > table["label_known"].max()


def test_file_that_is_no_table_is_cut_and_flipped(tmp_path: Path) -> None:
    """Bytes in the middle are flipped and the last tenth is gone."""
    source, target = tmp_path / "tokens.bin", tmp_path / "copy" / "tokens.bin"
    source.write_bytes(bytes(range(250)) * 4)

    report = damage(source, target, InputDamage("malformed", "tokens"), None)

    assert target.stat().st_size == 900
    assert report["altered"] == 164
    assert target.read_bytes()[500:564] == bytes(byte ^ 0xFF for byte in source.read_bytes()[500:564])


def test_missing_is_not_there_and_folders_lose_their_largest_shard(tmp_path: Path) -> None:
    """A missing file is simply absent; of a folder the largest shard goes."""
    folder, target = tmp_path / "shards", tmp_path / "copy" / "shards"
    folder.mkdir()
    for index in range(3):
        (folder / f"{index}.bin").write_bytes(b"x" * (10 + index))

    damage(folder / "1.bin", tmp_path / "gone" / "1.bin", InputDamage("missing", "shard"), None)
    report = damage(folder, target, InputDamage("missing", "shards"), None)

    assert not (tmp_path / "gone" / "1.bin").exists()
    assert sorted(path.name for path in target.iterdir()) == ["0.bin", "1.bin"]
    assert report["path"].endswith("2.bin")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InputDamage("melted", "events"), "unknown damage 'melted'"),
        (lambda: InputDamage("late", "events", share=0.0), "share=0.0"),
        (lambda: InputDamage("late", "events", planted="magic"), "unknown fault"),
    ],
)
def test_wrong_damage_says_what_is_known(make: object, words: str) -> None:
    """A damage that makes no sense is refused with the value and what is known."""
    with pytest.raises(DamageError, match=words):
        make()  # type: ignore[operator]


def test_late_needs_declared_times(tmp_path: Path) -> None:
    """Without [records.NAME] no row can be late, and the error says what to add."""
    source = tmp_path / "events.csv"
    example_rows(8).to_csv(source, index=False)

    with pytest.raises(DamageError, match=r"\[records\.events\]"):
        damage(source, tmp_path / "copy.csv", InputDamage("late", "events"), None)
