"""Hosts made of network namespaces: a real link, a real limit, a real cut, and nothing left behind whatever happens to their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.hosts import BURST_BYTES, HostsError, Link, bytes_sent, cut, least_seconds, limit, linked_hosts, mend, remove_stale, why_not
from fixtures.job import command_line, load_job
from fixtures.trace import load_trace
from fixtures.world import Ended, Launcher, Start, WorldError, open_launcher
from suite.selftest.world_scripts import still_there

ROOT = Path(__file__).resolve().parents[2]
TOY = Path(__file__).parent / "jobs" / "toy" / "job.toml"
NAMESPACES = Path("/run/netns")
RATE_MBIT = 50.0
needs_hosts = pytest.mark.skipif(bool(why := why_not()), reason=why)

SEND = """
    import socket, sys, time
    role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "receive":
        server = socket.create_server((address, 9000))
        print("listening", flush=True)
        connection, _ = server.accept()
        began, left = time.monotonic(), count
        while left:
            left -= len(connection.recv(min(left, 1 << 16)))
        print(time.monotonic() - began, flush=True)
    else:
        try:
            socket.create_connection((address, 9000), timeout=float(sys.argv[4])).sendall(bytes(count))
        except OSError as error:
            sys.exit(type(error).__name__)
"""


def on(link: Link, index: int, *words: str) -> subprocess.Popen[str]:
    """Start python with the script above on a host."""
    source = "\n".join(line[4:] for line in SEND.splitlines())
    command = ["ip", "netns", "exec", link.hosts[index].namespace, sys.executable, "-c", source, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def send(link: Link, count: int) -> float:
    """Send so many bytes from the first host to the second; the seconds that the receiver saw."""
    address = link.hosts[1].address
    with on(link, 1, "receive", address, str(count)) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        with on(link, 0, "send", address, str(count), "30") as sender:
            assert sender.wait(60) == 0, sender.stderr.read() if sender.stderr else ""
        return float(receiver.stdout.readline())


@needs_hosts
def test_the_link_carries_no_more_than_its_rate() -> None:
    count = 2_000_000
    with linked_hosts(rate_mbit=RATE_MBIT) as link:
        before = bytes_sent(link)
        took_s = send(link, count)
        sent = bytes_sent(link)[0] - before[0]
        assert sent > count, "headers come on top of what was sent"
        assert took_s >= least_seconds(count, RATE_MBIT) > 0.3
        limit(link, None)
        limit(link, None)
        assert send(link, count) > 0


def test_the_least_time_is_that_of_the_bytes_over_the_rate() -> None:
    assert least_seconds(BURST_BYTES + 1_250_000, 10.0) == pytest.approx(1.0)
    assert least_seconds(100, 10.0) == 0.0


@needs_hosts
def test_a_cut_link_carries_nothing_until_it_is_mended() -> None:
    with linked_hosts() as link:
        cut(link)
        with on(link, 0, "send", link.hosts[1].address, "1", "0.2") as sender:
            assert sender.wait(30) == 1
            assert sender.stderr is not None
            assert sender.stderr.read().strip() in {"TimeoutError", "OSError"}
        mend(link)
        assert send(link, 1000) > 0


@needs_hosts
def test_hosts_share_no_loopback_and_nothing_is_left_of_them() -> None:
    with linked_hosts() as link:
        names = [host.namespace for host in link.hosts]
        assert all(f"-{os.getpid()}-" in name and (NAMESPACES / name).exists() for name in names)
        inside = on(link, 1, "receive", "127.0.0.1", "1")
        assert inside.stdout is not None
        inside.stdout.readline()
        with on(link, 0, "send", "127.0.0.1", "1", "5") as sender:
            assert sender.wait(30) == 1
            assert sender.stderr is not None
            assert "ConnectionRefusedError" in sender.stderr.read()
    assert not any((NAMESPACES / name).exists() for name in names)
    assert inside.wait(10) == -signal.SIGKILL, "what still ran on a host is killed with it"
    inside.communicate()


@needs_hosts
def test_what_a_killed_owner_left_is_removed_and_what_lives_is_kept() -> None:
    code = "from fixtures.hosts import linked_hosts\nwith linked_hosts() as link:\n print(*(h.namespace for h in link.hosts), flush=True)\n input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as owner:  # type: ignore[call-overload]
        left = owner.stdout.readline().split()
        assert len(left) == 2
        assert not set(remove_stale()) & set(left), "their owner still lives"
        lost = subprocess.Popen(["ip", "netns", "exec", left[0], "cat"], stdin=subprocess.PIPE)
        owner.kill()
        owner.wait(10)
        with linked_hosts():
            assert not any((NAMESPACES / name).exists() for name in left)
        assert still_there([lost.pid], 10) == []
        lost.communicate()


def test_a_machine_that_does_not_allow_it_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert why_not() == "several hosts on one machine need the command ip: install iproute2"
    with pytest.raises(HostsError, match="install iproute2"), linked_hosts():
        pass


def test_without_root_it_says_so_in_one_sentence() -> None:
    if os.geteuid() != 0:
        assert why_not().endswith("start as root")
        return
    os.seteuid(65534)
    try:
        said = why_not()
    finally:
        os.seteuid(0)
    assert said == "several hosts on one machine need root to make network namespaces: start as root"


@needs_hosts
def test_a_rate_of_nothing_is_refused() -> None:
    with linked_hosts() as link, pytest.raises(HostsError, match="rate_mbit is 0: give a rate above 0"):
        limit(link, 0)


# ---- worlds


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def toy(through: Launcher, folder: Path, link: Link | None, **options: object) -> tuple[Ended, str]:
    """The toy job on two ranks, on one machine or one on each host: how it ended and the losses that the first rank printed."""
    job = load_job(TOY)
    argv = command_line(job, world_size=2, out=folder / "out")
    run_dir = folder / "run"
    start = Start(
        argv=argv, folder=job.folder, world_size=2, run_dir=run_dir, deadline_s=180, hosts=link.hosts if link else (),
        environment={"RANKPROOF_TRACE": str(run_dir)},
    )  # fmt: skip
    ended = through.run(replace(start, **options))  # type: ignore[arg-type]
    return ended, "\n".join(line for line in (run_dir / "rank0.log").read_text().splitlines() if line.startswith("step "))


@needs_hosts
def test_two_hosts_compute_what_one_computes_and_speak_over_the_link(launcher: Launcher, tmp_path: Path) -> None:
    alone, said = toy(launcher, tmp_path / "one", None)
    assert alone.message == ""
    assert said.count("loss 0x") == 20
    with linked_hosts() as link:
        before = bytes_sent(link)
        two, over_link = toy(launcher, tmp_path / "two", link)
        sent = [now - then for now, then in zip(bytes_sent(link), before, strict=True)]
    assert two.message == ""
    assert over_link == said
    trace = load_trace(tmp_path / "two" / "run")
    reduced = int(trace.collectives.loc[trace.collectives["rank"] == 0, "bytes"].sum())
    assert min(sent) >= reduced / 2 > 0, "a ring of two sends at least half of what is reduced in each direction"


@needs_hosts
def test_torchrun_on_each_of_two_hosts_and_a_link_of_50_mbit(launcher: Launcher, tmp_path: Path) -> None:
    """The launcher of record, free and limited: the same numbers, the same bytes, and no more of them than the link's rate allows."""
    logs, sent = {}, {}
    for name, rate in {"free": None, "limited": RATE_MBIT}.items():
        with linked_hosts(rate_mbit=rate) as link:
            ended, logs[name] = toy(launcher, tmp_path / name, link, launcher="torchrun")
            sent[name] = bytes_sent(link)
        assert ended.message == "", (tmp_path / name / "run" / "torchrun.log").read_text()
        assert [rank.exit_code for rank in ended.ranks] == [0, 0]
    assert ended.wall_s >= least_seconds(max(sent["limited"]), RATE_MBIT)
    assert logs["limited"] == logs["free"]
    assert logs["free"].count("loss 0x") == 20


@needs_hosts
def test_a_slow_link_makes_the_all_reduce_take_its_bytes_over_its_rate(launcher: Launcher, tmp_path: Path) -> None:
    source = (
        "import time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nx = torch.ones(1 << 20)\ndist.barrier()\n"
        "t = time.monotonic()\nfor _ in range(2):\n    dist.all_reduce(x)\nprint(time.monotonic() - t)\ndist.barrier()\n"
    )
    (tmp_path / "reduce.py").write_text(source)
    with linked_hosts(rate_mbit=RATE_MBIT) as link:
        start = Start(argv=("reduce.py",), folder=tmp_path, world_size=2, run_dir=tmp_path / "run", probe=False, hosts=link.hosts)
        ended = launcher.run(start)
        sent = bytes_sent(link)
    assert ended.message == ""
    took_s = float((tmp_path / "run" / "rank0.log").read_text().splitlines()[-1])
    payload = 2 * (4 << 20)  # a ring of two ranks sends and receives the whole tensor once: half in the reduction, half in the gathering
    assert min(sent) > payload
    assert took_s >= least_seconds(payload, RATE_MBIT) > 1.3


@needs_hosts
def test_a_world_on_a_cut_link_is_ended_by_its_deadline(launcher: Launcher, tmp_path: Path) -> None:
    with linked_hosts() as link:
        cut(link)
        ended, _ = toy(launcher, tmp_path, link, deadline_s=3.0)
    assert ended.ended_by in {"deadline", "exit"}
    assert ended.message != ""
    assert all(not rank.ok for rank in ended.ranks)


def test_ranks_that_cannot_be_spread_evenly_are_refused(launcher: Launcher, tmp_path: Path) -> None:
    from fixtures.hosts import Host

    hosts = (Host("a", "none", "link0", "10.77.0.1"), Host("b", "none", "link0", "10.77.0.2"))
    with pytest.raises(WorldError, match="3 ranks of warm cannot be spread over 2 hosts"):
        launcher.run(Start(argv=("x.py",), folder=tmp_path, world_size=3, run_dir=tmp_path, hosts=hosts))
