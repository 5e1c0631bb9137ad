"""`--hosts` and `--link-mbit`: what is refused, and what an audit over two hosts leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.hosts import why_not
from fixtures.spread import wrong_spread
from reports import evidence
from suite.selftest.test_audit_end_to_end import session


@pytest.mark.parametrize(
    ("hosts", "link_mbit", "world_size", "words"),
    [
        (3, None, 3, "--hosts 3: give 1, or 2 for"),
        (0, None, 2, "--hosts 0: give 1, or 2 for"),
        (1, 50.0, 2, "--link-mbit 50 limits the link between two hosts: add --hosts 2"),
        (2, 0.0, 2, "--link-mbit 0: give a rate above 0"),
        (2, -1.0, 2, "--link-mbit -1: give a rate above 0"),
        (2, None, 3, "--world-size 3 cannot be spread evenly over 2 hosts: give a multiple of 2"),
    ],
)
def test_what_cannot_be_spread_is_refused_with_the_fix(hosts: int, link_mbit: float | None, world_size: int, words: str) -> None:
    assert wrong_spread(hosts, link_mbit, world_size).startswith(words)


def test_a_refused_option_ends_the_session_in_one_sentence(tmp_path: Path) -> None:
    done = session(tmp_path / "audit", "-m", "cpu", "--link-mbit", "50")

    assert done.returncode == 4
    assert [line for line in (done.stdout + done.stderr).splitlines() if "--link-mbit 50" in line] == [
        "ERROR: --link-mbit 50 limits the link between two hosts: add --hosts 2"
    ]
    assert not (tmp_path / "audit").exists()


@pytest.mark.skipif(bool(why := why_not()), reason=why)
def test_an_audit_over_two_hosts_says_so_and_its_bytes_went_over_the_link(tmp_path: Path) -> None:
    folder = tmp_path / "audit"

    done = session(folder, "-m", "cpu", "-k", "ranks_agree", "--hosts", "2", "--link-mbit", "200")

    assert done.returncode == 0, done.stdout + done.stderr
    world = evidence.load(folder).meta["world"]
    assert (world["hosts"], world["link_mbit"]) == (2, 200)
    assert "2 hosts, 200 Mbit/s link" in (folder / "audit.html").read_text()
    links = [json.loads(path.read_text()) for path in folder.glob("traces/*/link.json")]
    assert len(links) >= 2, "one run as it is, and one with the planted fault"
    assert all(link["mbit_per_s"] == 200 and min(link["sent_bytes"]) > 10_000 for link in links), links
