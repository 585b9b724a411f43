"""Parties and dealer as separate commands, as on separate machines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
def main(party):
    x = party.secret([1.5, -2.0], owner=0, shape=(2,))
    y = party.secret([4.0, 4.0], owner=1, shape=(2,))
    return (x * y).relu().reveal()
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.full  # three processes with torch
def test_two_parties_and_a_dealer_meet_by_their_configuration(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(SCRIPT)
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    call = "import sys; from holdfast.cli import main; main(sys.argv[1:])"

    def command(*arguments: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-c", call, "private", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True
        )

    names = ("alice", "bob", "dealer")
    for name in names:
        done = command("certs", name, "--output", "keys")
        assert (done.communicate()[1], done.returncode) == ("", 0)
    tables = [
        f'[{table}]\naddress = "127.0.0.1:{port}"\ncertificate = "keys/{name}.crt"\n'
        for table, port, name in zip(
            ("[party]", "[party]", "dealer"), free_ports(3), names, strict=True
        )
    ]
    (tmp_path / "parties.toml").write_text('session = "s"\ntimeout = "60s"\n' + "".join(tables))
    party = ("party", "--config", "parties.toml", "score.py", "--json", "--rank")
    running = [
        command(*party, "0"),
        command(*party, "1"),
        command("dealer", "--config", "parties.toml"),
    ]
    ended = [(each.communicate(timeout=120), each.returncode) for each in running]
    assert [code for _, code in ended] == [0, 0, 0], ended
    for (printed, _), _ in ended[:2]:
        assert [round(value, 3) for value in json.loads(printed)["result"]] == [6, 0]
