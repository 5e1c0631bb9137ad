"""Two worlds on one machine never get the same port, whichever process asks."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from fixtures.ports import _is_free, lease_port

ROOT = Path(__file__).resolve().parents[2]


def test_leases_are_disjoint_within_and_across_processes() -> None:
    mine = [lease_port() for _ in range(20)]
    ask = "from fixtures.ports import lease_port\nprint(*[lease_port()[0] for _ in range(200)])"
    others = [subprocess.Popen([sys.executable, "-c", ask], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    theirs = [int(port) for one in others for port in one.communicate(timeout=60)[0].split()]
    ports = {port for port, _ in mine}
    assert len(ports) == 20
    assert len(theirs) == 400
    assert not ports & set(theirs)
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < low for port in ports) or low <= 12_000
    for _, lease in mine:
        os.close(lease)


def test_an_occupied_port_is_passed_over() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        taken = listening.getsockname()[1]
        assert not _is_free(taken)
