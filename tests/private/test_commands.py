"""The commands: parties and dealer as separate processes, all else in the process of the test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from command_line import invoke
from holdfast.errors import InputError
from holdfast.private.mpc import dealing
from holdfast.private.mpc.cli import app
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.transport import HEADER_BYTES

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


# --- In this process -------------------------------------------------------------------------------

MODELS = """
import torch
from torch import nn

torch.manual_seed(0)
linear = nn.Linear(3, 2)
network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()

def made():
    return nn.Linear(3, 2)

def typical():
    return torch.ones(5, 3)

missing = torch.full((2, 3), float("nan"))
number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands read, in one folder for all tests."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "models.py").write_text(MODELS)
    (folder / "no_main.py").write_text("x = 1")
    return folder


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(folder)
    return lambda *words: invoke(app, words)


def document(command: Callable[..., Any], *words: str) -> dict[str, Any]:
    """The JSON of a command."""
    result = command(*words, "--json")
    assert (result.exit_code, result.exception) == (0, None), result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "parties"), [("linear", 2), ("made", 3)])
def test_the_plan_of_a_layer_is_that_of_its_protocols(
    command: Callable[..., Any], name: str, parties: int
) -> None:
    """Weights are opened once; then the input [4, 3], the truncation and the output [4, 2]."""
    plan = document(
        command, "plan", f"models.py:{name}", "--input", "4x3", "--parties", str(parties)
    )
    opened, truncated, revealed = 4 * 3 * 8, 4 * 2 * 8, 4 * 2 * 8
    messages = parties - 1
    assert plan["rounds"] == 3
    assert plan["bytes"] == messages * (opened + truncated + revealed + 3 * HEADER_BYTES)
    # A triple's product, and high and top of a truncation, for the last party.
    assert plan["offline_bytes"] == 4 * 2 * 8 + 2 * 4 * 2 * 8
    assert sum(row["rounds"] for row in plan["layers"]) == plan["rounds"]
    setup = {row["op"]: row["bytes"] for row in plan["setup"]}
    facts = 2 * (2 * 3 + 2)  # of two weights, and of the input's and the output's size
    hashes_ = 32
    weights = 2 * 3 * 8
    assert setup["setup"] == messages * (32 + HEADER_BYTES)  # public keys
    assert setup["import"] == messages * (facts + hashes_ + weights + 3 * HEADER_BYTES)


def test_the_plan_of_a_network_is_what_its_parties_count(command: Callable[..., Any]) -> None:
    from holdfast.private.mpc.importing import import_model

    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))

    def main(party: Any) -> tuple[int, int, int]:
        model = import_model(party, module, torch.zeros(2, 3))
        party.channel.exchange(b"")
        before, start = party.channel.ledger.total(), party.channel.round
        model(party.secret(torch.zeros(2, 3), owner=0, shape=(2, 3))).reveal()
        after = party.channel.ledger.total()
        offline = after.offline_bytes - before.offline_bytes
        return party.channel.round - start, after.bytes_sent - before.bytes_sent, offline

    costs = simulate(2, main, comparison="dcf")
    plan = document(command, "plan", "models.py:network", "--input", "2x3", "--comparison", "dcf")
    # In simulations every party deals for itself, the last one gets the corrections.
    wanted = [max(each[n] for each in costs) for n in range(3)]
    assert [plan["rounds"], plan["bytes"], plan["offline_bytes"]] == wanted


# words of `plan`, code or None for a wrong option, place
REFUSED_PLANS: list[tuple[tuple[str, ...], str | None, str | None]] = [
    (("models.py:linear", "--input", ""), "invalid-value", "--input"),
    (("models.py:linear", "--input", "4x"), "invalid-value", "--input"),
    (("models.py:linear", "--input", "4x0"), "invalid-value", "--input"),
    (("models.py:linear", "--input", "bool:4x3"), "invalid-value", "--input"),
    (("models.py:linear", "--input", "4x3,"), "invalid-value", "--input"),
    (("models.py:linear", "--input", "4x4"), "unsupported", None),
    (("models.py", "--input", "4x3"), "invalid-value", "MODEL"),
    ((":linear", "--input", "4x3"), "invalid-value", "MODEL"),
    (("models.py:1", "--input", "4x3"), "invalid-value", "MODEL"),
    (("models.py:number", "--input", "4x3"), "unknown-name", "number"),
    (("models.py:nothing", "--input", "4x3"), "unknown-name", "nothing"),
    (("other.py:linear", "--input", "4x3"), "not-found", None),
    (("models.py:linear", "--input", "4x3", "--bound", "-1"), "invalid-value", "bound"),
    (("models.py:linear", "--input", "4x3", "--bound", "1e30"), "out-of-range", None),
    (("models.py:linear", "--input", "4x3", "--calibration", "number"), "unknown-name", "number"),
    (("models.py:linear", "--input", "4x3", "--calibration", "missing"), "not-finite", "calibration[0, 0]"),
    (("models.py:linear", "--input", "4x3", "--bandwidth", "fast"), "invalid-value", "--bandwidth"),
    (("models.py:linear", "--input", "4x3", "--bandwidth", "0Mbit"), "invalid-value", "--bandwidth"),
    (("models.py:linear", "--input", "4x3", "--rtt", "-5ms"), None, None),
    (("models.py:linear", "--input", "4x3", "--parties", "1"), None, None),
    (("models.py:linear", "--input", "4x3", "--fraction-bits", "27"), None, None),
    (("models.py:linear", "--input", "4x3", "--mode", "replicated3"), "invalid-value", "parties"),
    (
        ("models.py:linear", "--input", "4x3", "--parties", "3", "--comparison", "dcf"),
        "invalid-value", "comparison",
    ),
    *(
        (
            ("models.py:linear", "--input", "4x3", "--calibration", "typical", "--margin", margin),
            "invalid-value", "margin",
        )
        for margin in ("nan",)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "place"), REFUSED_PLANS)
def test_a_plan_of_something_else_is_refused(
    command: Callable[..., Any], words: tuple[str, ...], code: str | None, place: str | None
) -> None:
    result = command("plan", *words)
    assert not result.stdout
    if code is None:
        assert result.exit_code == 2
        return
    assert getattr(result.exception, "code", result.exception) == code
    assert getattr(result.exception, "place", None) == place


def test_items_become_stores_of_the_size_that_is_said(
    command: Callable[..., Any], folder: Path
) -> None:
    document(command, "plan", "models.py:network", "--input", "1x3", "--items", "items.json")
    items = json.loads((folder / "items.json").read_text())
    deal = document(command, "dealer", "--items", "items.json", "--runs", "3", "--output", "stores")
    per_run = sum(dealing.correction_bytes(*item) for item in items["items"])
    assert (items["parties"], deal["items"]) == (2, len(items["items"]))
    assert (deal["runs"], deal["correction_bytes"]) == (3, per_run)
    sizes = [(folder / "stores" / f"party{rank}.store").stat().st_size for rank in (0, 1)]
    assert sizes[1] - sizes[0] == 3 * per_run  # the last party gets the corrections
    again = command("dealer", "--items", "items.json", "--output", "stores")
    assert isinstance(again.exception, InputError)
    assert again.exception.code == "output-exists"


NOT_ITEMS = {
    "no object": "[]",
    "no items": "{}",
    "unknown kind": '{"items": [["squares", {"shape": [3]}]]}',
    "no shape": '{"items": [["square", {}]]}',
    "negative": '{"items": [["square", {"shape": [-3]}]]}',
    "fraction": '{"items": [["square", {"shape": [3.5]}]]}',
    "bomb": '{"items": [["square", {"shape": [100000000000000]}]]}',
    "wide table": '{"items": [["unit", {"shape": [3], "shift": 0, "bits": 99}]]}',
    "negative bits": '{"items": [["truncation", {"shape": [3], "bits": -1}]]}',
    "many bits": '{"items": [["truncation", {"shape": [3], "bits": 64}]]}',
    "other shapes": (
        '{"items": [["product", {"op": "mul", "left": [3], "right": [4], "options": [], "fixed": null}]]}'
    ),
    "other product": (
        '{"items": [["product", {"op": "dot", "left": [3], "right": [3], "options": [], "fixed": null}]]}'
    ),
    "nested": "[" * 100_000,
    "text": "items",
}


@pytest.mark.parametrize("name", NOT_ITEMS)
def test_a_file_that_holds_no_items_makes_no_store(
    command: Callable[..., Any], folder: Path, name: str
) -> None:
    (folder / "bad.json").write_text(NOT_ITEMS[name])
    result = command("dealer", "--items", "bad.json", "--output", "none")
    assert isinstance(result.exception, InputError), result.exception
    assert (result.exception.code, result.exception.path) == ("invalid-syntax", "bad.json")
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    "words", [(), ("--items", "items.json"), ("--output", "x"), ("--config", "p", "--output", "x")]
)
def test_a_dealer_is_online_or_makes_stores(
    command: Callable[..., Any], words: tuple[str, ...]
) -> None:
    error = command("dealer", *words).exception
    assert (error.code, error.place) == ("conflict", "--config")


def test_a_certificate_is_what_other_software_reads(
    command: Callable[..., Any], folder: Path
) -> None:
    answer = document(command, "certs", "zoë", "--output", "keys", "--days", "30")
    data = (folder / "keys" / "zoë.crt").read_bytes()
    certificate = x509.load_pem_x509_certificate(data)
    assert answer["sha256"] == certificate.fingerprint(hashes.SHA256()).hex()
    certificate.verify_directly_issued_by(certificate)
    (name,) = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == "zoë"
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 30
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.critical) == (False, True)
    key_path = folder / "keys" / "zoë.key"
    key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    public = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    assert key.public_key().public_bytes(*public) == certificate.public_key().public_bytes(*public)
    assert key_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "a/b", "../alice", "a" * 65, "."])
def test_a_name_that_no_file_has_is_refused(
    command: Callable[..., Any], folder: Path, name: str
) -> None:
    before = set(folder.rglob("*"))
    error = command("certs", name, "--output", "names").exception
    assert isinstance(error, InputError)
    assert error.code == "invalid-value"
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "code", "place"),
    [
        (("run", "no_main.py", "--local", "2"), "missing-key", None),
        (("run", "nowhere.py", "--local", "2"), "not-found", None),
        (("run", "no_main.py", "--local", "2", "--mode", "replicated3"), "out-of-range", "--local"),
        (("run", "no_main.py", "--local", "2", "--bandwidth", "x"), "invalid-value", "--bandwidth"),
        (("run", "no_main.py", "--local", "1"), None, None),
        (("run", "no_main.py", "--local", "2", "--timeout", "soon"), None, None),
        (("party", "no_main.py", "--config", "nowhere.toml", "--rank", "0"), "not-found", None),
        (("party", "no_main.py", "--config", "nowhere.toml", "--rank", "-1"), None, None),
        (("certs", "alice", "--days", "0"), None, None),
    ],
)
def test_what_cannot_run_is_refused_before_a_process_starts(
    command: Callable[..., Any], words: tuple[str, ...], code: str | None, place: str | None
) -> None:
    result = command(*words)
    if code is None:
        assert result.exit_code == 2
    else:
        assert (result.exception.code, getattr(result.exception, "place", None)) == (code, place)
