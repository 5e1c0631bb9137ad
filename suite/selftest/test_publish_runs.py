"""The publish of the flights job in a real process under the probe: its operations, a kill, and the fault that copies where it should rename."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.faults import Fault, faults_to_json
from fixtures.plugin import ROOT
from fixtures.trace import Trace, load_trace
from fixtures.world import Launcher, Start, open_launcher
from reports.evidence import file_hashes
from workloads.flights import registry


@pytest.fixture(scope="module")
def launcher():  # type: ignore[no-untyped-def]
    with open_launcher() as opened:
        yield opened


def build(folder: Path) -> Path:
    """A build with the right files and no model in them: publishing looks at bytes only."""
    folder.mkdir()
    for name in registry.FILES:
        (folder / name).write_bytes(name.encode() * 1000)
    (folder / registry.MANIFEST).write_text(json.dumps(registry.manifest_of(folder, {"code": "c"})))
    return folder


def publish(launcher: Launcher, folder: Path, *faults: Fault, into: str = "registry") -> Trace:
    run = folder / f"run{len(list(folder.iterdir()))}"
    argv = ("publish.py", "--build", str(folder / "build"), "--registry", str(folder / into))
    environment = {"RANKPROOF_WATCH": str(folder / into), "RANKPROOF_FAULTS": faults_to_json(faults)}
    launcher.run(Start(argv=argv, folder=ROOT / "workloads" / "flights", world_size=1, run_dir=run, environment=environment))
    return load_trace(run)


def visible(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("artifact-*/*"))


def test_a_rename_that_became_a_copy_shows_readers_a_part(launcher: Launcher, tmp_path: Path) -> None:
    """Killed one operation after the first file is in view, a sound publish shows nothing or all, the copying one a part."""
    name = registry.name_of(registry.read_manifest(build(tmp_path / "build")))
    sound = publish(launcher, tmp_path)
    copied = publish(launcher, tmp_path, Fault("copy_rename"), into="other")
    in_view = [row["n"] for row in copied.files.to_dict("records") if f"/{name}/" in row["path"]]
    kill = Fault("kill", rank=0, operation=in_view[0] + 2)
    publish(launcher, tmp_path, Fault("copy_rename"), kill, into="torn")

    assert not sound.crashed
    assert copied.fired("copy_rename")
    assert len(visible(tmp_path / "registry")) == len(visible(tmp_path / "other")) == len(registry.FILES) + 1
    assert 0 < len(visible(tmp_path / "torn")) < len(registry.FILES) + 1


def test_a_killed_publish_is_published_by_the_next_and_a_further_one_changes_nothing(launcher: Launcher, tmp_path: Path) -> None:
    build(tmp_path / "build")
    killed = publish(launcher, tmp_path, Fault("kill", rank=0, operation=9))

    assert killed.fired("kill")
    assert visible(tmp_path / "registry") == []
    assert not publish(launcher, tmp_path).crashed
    whole = {path: (tmp_path / "registry" / path).stat().st_mtime_ns for path in visible(tmp_path / "registry")}
    assert "nothing changed" in publish(launcher, tmp_path).log(0)
    assert {path: (tmp_path / "registry" / path).stat().st_mtime_ns for path in visible(tmp_path / "registry")} == whole
    assert not list((tmp_path / "registry").glob(".unfinished-*"))


def test_a_retry_that_fails_too_changes_nothing_about_the_end(launcher: Launcher, tmp_path: Path) -> None:
    """Killed, killed again in the retry, earlier and later than the first time, and once more: then published, byte for byte as undisturbed."""
    build(tmp_path / "build")
    operations = len(publish(launcher, tmp_path, into="undisturbed").files)
    publish(launcher, tmp_path, into="undisturbed")
    wanted = file_hashes(tmp_path / "undisturbed")
    for first in range(2, operations + 1, 4):
        into = f"registry{first}"
        for operation in (first, max(1, first // 2), min(operations, first + 2)):
            publish(launcher, tmp_path, Fault("kill", rank=0, operation=operation), into=into)
            seen = {
                name: digest for name, digest in file_hashes(tmp_path / into).items() if name.startswith("artifact-") or "/" not in name
            }
            assert seen.items() <= wanted.items(), (
                f"after a kill before operation {operation} a reader sees what is no part of the artifact"
            )
        assert not publish(launcher, tmp_path, into=into).crashed
        assert file_hashes(tmp_path / into) == wanted, f"killed first before operation {first}, the registry ended otherwise"


def test_what_is_not_whole_is_neither_published_nor_put_into_service(tmp_path: Path) -> None:
    folder = build(tmp_path / "build")
    name, changed = registry.publish(folder, tmp_path / "registry")
    assert changed
    assert registry.served(tmp_path / "registry").name == name

    (tmp_path / "registry" / name / "model.pt2").write_bytes(b"torn")
    with pytest.raises(registry.RegistryError, match="must not be served"):
        registry.served(tmp_path / "registry")
    assert registry.publish(folder, tmp_path / "registry") == (name, True), "a damaged artifact was taken for a published one"
    (folder / "schema.json").write_bytes(b"torn")
    with pytest.raises(registry.RegistryError, match="cannot be published"):
        registry.publish(folder, tmp_path / "registry")
