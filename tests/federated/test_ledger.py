"""The contribution ledger: whole, edited, truncated, reordered, resumed, forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast import federated
from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.federated.contribution_ledger import (
    Ledger,
    canonical,
    public,
    simulated_key,
)

CLIENTS = [
    (np.random.default_rng(seed).normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2)
    for seed in range(5)
]
SETTINGS = federated.Settings(rounds=4, per_round=3, faults={"drop": 0.2, "nan": 0.1})


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    federated.run(model(), CLIENTS, settings=SETTINGS, folder=tmp_path, ledger=True)
    return tmp_path / "ledger.jsonl"


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    lines = change(path.read_bytes().splitlines())
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_whole_ledger_adds_up(path: Path) -> None:
    audit = federated.verify_ledger(path, key=public(simulated_key(0, "")))
    assert (audit.bad_entry, audit.exit_code, audit.reason) == (None, 0, "")
    fresh = federated.run(model(), CLIENTS, settings=SETTINGS)
    assert sum(row["updates"] for row in audit.clients) == sum(row.used for row in fresh.history)
    assert sum(row["taken"] for row in audit.clients) == len(fresh.failures)
    assert all(row["held"] == 0 for row in audit.clients)
    assert not audit.unknowns()
    assert federated.verify_ledger(path).unknowns()


def test_an_edit_is_named(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    for place in (0, 3, 9, len(lines) - 1):
        entry = json.loads(lines[place])
        entry["round"] += 1
        edited = [*lines[:place], canonical(entry), *lines[place + 1 :]]
        path.write_bytes(b"".join(line + b"\n" for line in edited))
        assert federated.verify_ledger(path).bad_entry == place


def test_a_forged_line_with_a_fitting_hash_is_named(path: Path) -> None:
    """The forger signs with a key of its own and mends the chain behind it."""
    import hashlib

    thief = simulated_key(99, "thief")
    lines = path.read_bytes().splitlines()
    place = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "update")
    for n in range(place, len(lines)):
        entry = json.loads(lines[n])
        del entry["signature"]
        entry["previous"] = hashlib.sha256(lines[n - 1]).hexdigest()
        if n == place:
            entry["amount"] = 1e6
        lines[n] = canonical({**entry, "signature": thief.sign(canonical(entry)).hex()})
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    audit = federated.verify_ledger(path)
    assert audit.bad_entry == place
    assert "not signed by its client" in audit.reason


def seal_of_round(lines: list[bytes], number: int) -> int:
    entries = [json.loads(line) for line in lines]
    return next(n for n, e in enumerate(entries) if (e["kind"], e["round"]) == ("seal", number))


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        (lambda lines: lines[:-1], -1),
        (lambda lines: lines[: seal_of_round(lines, 2) + 1], None),  # cut at a seal
        (lambda lines: [*lines[:7], *lines[8:]], 7),
        (lambda lines: [*lines[:7], lines[8], lines[7], *lines[9:]], 7),
        (lambda lines: [*lines[:7], lines[6], *lines[7:]], 7),
        (lambda lines: [*lines[:7], b"{}", *lines[7:]], 7),
        (lambda lines: [*lines[:7], b"\xff", *lines[7:]], 7),
        (lambda lines: [], 0),
    ],
)
def test_truncated_reordered_and_repeated_lines(
    path: Path, change: Callable[[list[bytes]], list[bytes]], bad: int | None
) -> None:
    before = path.read_bytes().splitlines()
    expected = {None: seal_of_round(before, 2) + 1, -1: len(before) - 1}.get(bad, bad)
    rewrite(path, change)
    assert federated.verify_ledger(path).bad_entry == expected


def test_a_ledger_and_its_head_that_were_replaced_lack_the_published_hash(
    path: Path, tmp_path: Path
) -> None:
    head = json.loads((tmp_path / "ledger.jsonl.head").read_text())["hash"]
    assert federated.verify_ledger(path, head=head).exit_code == 0
    other = tmp_path / "other"
    shorter = federated.Settings(rounds=2, per_round=3, faults=SETTINGS.faults)
    federated.run(model(), CLIENTS, settings=shorter, folder=other, ledger=True)
    assert federated.verify_ledger(other / "ledger.jsonl").exit_code == 0
    assert federated.verify_ledger(other / "ledger.jsonl", head=head).exit_code == 1
    # A forger who signs everything anew is found by the key.
    assert federated.verify_ledger(path, key=public(simulated_key(7, ""))).bad_entry == 0


@pytest.mark.parametrize("place", ["key", "head"])
@pytest.mark.parametrize("value", ["", "ab", "g" * 64, " " + "0" * 63, "0" * 64 + "\n"])
def test_a_key_or_head_that_is_not_a_hash_is_an_error(path: Path, place: str, value: str) -> None:
    with pytest.raises(InputError) as caught:
        federated.verify_ledger(path, **{place: value})
    assert (caught.value.code, caught.value.place) == ("invalid-value", place)


def test_a_head_is_the_hash_of_a_line(path: Path, tmp_path: Path) -> None:
    assert federated.verify_ledger(path, head="0" * 64).exit_code == 1
    noted = tmp_path / "ledger.jsonl.head"
    content = noted.read_bytes()
    hashed = json.loads(content)["hash"].upper()
    key = public(simulated_key(0, "")).upper()
    assert federated.verify_ledger(path, key=key, head=hashed).exit_code == 0
    noted.write_text(json.dumps({"number": -1, "hash": "0" * 64}))
    assert federated.verify_ledger(path).exit_code == 1
    noted.write_bytes(content)
    rewrite(path, lambda lines: [lines[0], b"[" * 100_000, *lines[1:]])
    assert federated.verify_ledger(path).bad_entry == 1


def test_balances_are_checked(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", simulated_key(0, ""), {"a": simulated_key(0, "a")})
    ledger._write(1, [("deposit", "a", 1.0, ""), ("refund", "a", 1.0, ""), ("take", "a", 1.0, "")])
    ledger.close()
    audit = federated.verify_ledger(tmp_path / "l")
    assert audit.bad_entry == 4
    assert "take of 1.0" in audit.reason


def test_a_resumed_run_has_the_same_ledger(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    shorter = federated.Settings(rounds=2, per_round=3, faults=SETTINGS.faults)
    federated.run(model(), CLIENTS, settings=shorter, folder=folder, ledger=True)
    state = (folder / "state.safetensors").read_bytes()
    federated.run(model(), CLIENTS, settings=SETTINGS, folder=folder, ledger=True, resume=True)
    assert (folder / "ledger.jsonl").read_bytes() == path.read_bytes()
    # Killed after the ledger was written and before the state was: the lines are there already.
    (folder / "state.safetensors").write_bytes(state)
    torn = path.read_bytes()[:-40]
    (folder / "ledger.jsonl").write_bytes(torn)
    federated.run(model(), CLIENTS, settings=SETTINGS, folder=folder, ledger=True, resume=True)
    assert (folder / "ledger.jsonl").read_bytes() == path.read_bytes()


def test_the_command_exits_with_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(path, lambda lines: [*lines[:5], *lines[6:]])
    with pytest.raises(SystemExit) as ended:
        main(["federated", "ledger", "verify", str(path), "--json"])
    assert ended.value.code == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["bad_entry"] == 5
