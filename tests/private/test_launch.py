"""Parties as processes: what they compute, what they report, and how they end when one of them fails."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Duration
from holdfast.errors import HoldfastError, InputError
from holdfast.private.mpc import launch
from holdfast.private.mpc.certificates import make_certificate
from holdfast.private.mpc.handshake import Member, Session
from holdfast.private.mpc.launch import (
    PartyError,
    PartyResult,
    hashes,
    run_dealer,
    run_local,
    run_party,
)
from holdfast.private.mpc.store import write_stores
from holdfast.private.mpc.supply import LiveSupply, continuation, serve
from holdfast.private.mpc.transport import DEALER, Channel, Clock, Network, PeerError

SCORE = """
import os

def main(party):
    x = party.secret([[1.5, -2.0, 3.0]], owner=0, shape=(1, 3))
    w = party.secret([[2.0, 1.0], [0.5, -1.0], [-1.0, 4.0]], owner=1, shape=(3, 2))
    links = [link.socket for link in party.channel._links.values()]
    assert all(link.version() == "TLSv1.3" for link in links)
    print("noise on standard output")
    return {"scores": (x @ w).relu().reveal(), "pid": os.getpid()}
"""
DYING = """
import os, signal

def main(party):
    x = party.secret([1.0, -1.0], owner=0, shape=(2,))
    y = x.relu()
    with party.channel.scope("second", "layer.3"):
        if party.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return y.relu().reveal()
"""
RAISING = """
def main(party):
    x = party.secret([1.0, -1.0], owner=0, shape=(2,))
    if party.rank == 0:
        raise ValueError("private value 1234.5")
    return x.relu().reveal()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


def failures(folder: Path, text: str, parties: int, **settings: Any) -> dict[int, dict[str, Any]]:
    with pytest.raises(PartyError) as failed:
        run_local(parties, script(folder, text), **settings)
    return failed.value.failures


@pytest.mark.parametrize(("parties", "mode"), [(2, "dealer"), (3, "dealer"), (3, "replicated3")])
def test_parties_are_processes_that_talk_over_tls(
    tmp_path: Path, parties: int, mode: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    results = run_local(parties, script(tmp_path, SCORE), mode=mode)
    assert capfd.readouterr().out == ""
    assert [each.rank for each in results] == list(range(parties))
    for each in results:
        assert each.result["scores"] == [pytest.approx([0.0, 15.5], abs=1e-3)]
    pids = {each.result["pid"] for each in results}
    assert len(pids) == parties
    assert os.getpid() not in pids
    if mode == "dealer":
        offline = [each.offline_bytes for each in results]
        assert offline[:-1] == [0] * (parties - 1)
        assert offline[-1] > 0
        assert results[0].items == results[1].items


def test_a_party_that_dies_is_named_by_all_others(tmp_path: Path) -> None:
    found = failures(tmp_path, DYING, 3)
    assert found[1]["code"] == "party-died"
    for rank in (0, 2):
        # The second to notice may hear it from the first.
        assert found[rank]["code"] in ("peer-lost", "peer-aborted")
        assert found[rank]["op"].startswith("layer.3 second")
        assert found[rank]["round"] >= 4
    assert 1 in (found[0]["peer"], found[2]["peer"])
    # The dealer names a party, and what it asked for last; whose end it sees first is a race.
    assert found.keys() == {DEALER, 0, 1, 2}
    assert found[DEALER]["code"] in ("peer-lost", "peer-aborted")
    assert found[DEALER]["round"] >= 0
    assert found[DEALER]["peer"] in (0, 1, 2)
    assert found[DEALER]["op"].split("/")[0] in ("relu", "layer.3 second")


def test_an_error_does_not_show_private_values_to_others(tmp_path: Path) -> None:
    found = failures(tmp_path, RAISING, 2)
    assert found[0]["code"] == "script"
    assert "1234.5" in found[0]["message"]
    assert found[1]["code"] == "peer-aborted"
    assert "ValueError" in found[1]["message"]
    assert "1234.5" not in found[1]["message"]


def test_stores_serve_as_many_runs_as_they_hold(tmp_path: Path) -> None:
    path = script(tmp_path, SCORE)
    items = run_local(2, path)[0].items
    stores = tmp_path / "stores"
    write_stores(stores, items, 2, 2)
    for _ in range(2):
        results = run_local(2, path, stores=stores)
        assert results[0].result["scores"] == [pytest.approx([0.0, 15.5], abs=1e-3)]
    with pytest.raises(PartyError) as exhausted:
        run_local(2, path, stores=stores)
    assert {each["code"] for each in exhausted.value.failures.values()} == {"store-exhausted"}

    (stores / "party1.store.used").write_text(json.dumps(0))
    with pytest.raises(PartyError) as replayed:
        run_local(2, path, stores=stores)
    codes = {rank: each["code"] for rank, each in replayed.value.failures.items()}
    assert codes == {1: "store-replayed", 0: "handshake"}
    assert replayed.value.failures[0]["peer"] == 1


@pytest.mark.parametrize("text", ["x = 1", "main = 3"])
def test_a_script_without_main_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as refused:
        run_local(2, script(tmp_path, text))
    assert refused.value.code == "missing-key"


def test_the_cause_comes_first() -> None:
    error = PartyError(
        {
            0: {"code": "peer-lost", "message": "a", "peer": 1},
            1: {"code": "overflow", "message": "b"},
            DEALER: {"code": "peer-lost", "message": "c", "peer": 1},
        }
    )
    assert isinstance(error, HoldfastError)
    assert error.code == "overflow"
    assert str(error).splitlines() == ["party 1: b", "dealer: c", "party 0: a"]


def test_results_keep_their_costs(tmp_path: Path) -> None:
    (first, _) = run_local(2, script(tmp_path, SCORE))
    assert isinstance(first, PartyResult)
    rows = {row.op: row for row in first.costs}
    assert rows["matmul"].rounds == 1
    assert rows["relu"].rounds == 4
    assert sum(row.bytes_sent for row in first.costs) == first.bytes_sent
    assert sum(row.rounds for row in first.costs) == first.rounds


OPERAND = """
import torch

def main(party):
    x = party.secret([1.5, 2.0], owner=0, shape=(2,))
    party.secret([3], owner=1, shape=(1,), integer=True)
    {step}
    return y.reveal()
"""


@pytest.mark.parametrize(
    "step",
    [
        "y = x * torch.rand(2)",
        "y = x + (0.5 if party.rank else 0.25)",
        "y = (x > 0) * (2 + party.rank)",
        "y = x.within(2.0 + party.rank)",
    ],
    ids=["generators", "constants", "integers", "bounds"],
)
def test_parties_whose_public_values_differ_reveal_nothing(tmp_path: Path, step: str) -> None:
    found = failures(tmp_path, OPERAND.format(step=step), 2)
    assert {found[rank]["code"] for rank in (0, 1)} <= {"desync", "peer-aborted", "peer-lost"}
    assert "desync" in {each["code"] for each in found.values()}


def test_modules_of_a_script_are_part_of_what_parties_agree_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "__init__.py").write_text("")
    (tmp_path / "clinic" / "rates.py").write_text("from . import inner\n")
    (tmp_path / "clinic" / "inner.py").write_text("RATE = 0.1\n")
    path = script(tmp_path, "import os, torch\ndef main(party):\n    from clinic import rates\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text, modules = hashes(path)
    assert modules.keys() == {"clinic", "clinic.rates", "clinic.inner"}
    (tmp_path / "clinic" / "inner.py").write_text("RATE = 0.2\n")
    assert hashes(path)[0] == text
    changed = {name for name, value in hashes(path)[1].items() if value != modules[name]}
    assert changed == {"clinic.inner"}


STOPPED = """
import os, signal

def main(party):
    x = party.secret([1.0, -1.0], owner=0, shape=(2,))
    y = x.relu()
    if party.rank == party.parties - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return y.relu().reveal()
"""


@pytest.mark.full
def test_a_party_that_is_stopped_ends_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_GRACE_S", 1.0)
    monkeypatch.setattr(launch, "_END_S", 0.1)
    found = failures(tmp_path, STOPPED, 2, timeout=Duration(1.5))
    assert (found[0]["code"], found[0]["peer"]) == ("peer-timeout", 1)
    assert found[1]["code"] in ("stopped", "party-died")
    # Party 0 goes first, and says so to the dealer before its deadline.
    assert (found[DEALER]["code"], found[DEALER]["peer"]) == ("peer-aborted", 0)
    assert found[DEALER]["op"].startswith("relu")


def test_parties_that_differ_end_the_dealer(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = [script(tmp_path, SCORE), script(tmp_path / "other", RAISING)]
    listeners = {rank: socket.create_server(("127.0.0.1", 0)) for rank in (0, 1, DEALER)}
    members = {}
    for rank, each in listeners.items():
        make_certificate(f"m{rank}", tmp_path)
        members[rank] = Member(f"127.0.0.1:{each.getsockname()[1]}", f"m{rank}.crt")
    session = Session(
        "s", [members[0], members[1]], members[DEALER], timeout=Duration(20.0), folder=tmp_path
    )
    calls = {
        0: lambda: run_party(session, 0, paths[0], listener=listeners[0]),
        1: lambda: run_party(session, 1, paths[1], listener=listeners[1]),
        DEALER: lambda: run_dealer(session, listeners[DEALER]),
    }
    errors: dict[int, PeerError] = {}

    def run(rank: int) -> None:
        try:
            calls[rank]()
        except PeerError as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)  # less than the deadline
    assert {rank: error.code for rank, error in errors.items()} == dict.fromkeys(calls, "handshake")


class Still(Clock):
    """A clock that only waiting moves, for all members."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wait_until(self, moment: float) -> None:
        self.time = max(self.time, moment)


def with_dealer(
    main: Any, clock: Clock | None = None, **settings: Any
) -> tuple[Any, tuple[int, int]]:
    """What a function returns at one party, and what its dealer says."""
    ours, theirs = socket.socketpair()
    party = Channel(0, {}, **settings)
    party.attach(DEALER, ours)
    served: list[Any] = []
    channel = Channel(DEALER, {0: theirs}, timeout_s=20.0, **settings)
    party.clock = channel.clock = clock or Clock()
    dealer = threading.Thread(target=lambda: served.append(serve(channel)))
    with ours, theirs:
        dealer.start()
        supply = LiveSupply(party)
        result = main(supply)
        supply.finish()
        dealer.join(20)
    assert party.ledger.total().bytes_sent == party.round == 0
    return result, served[0]


def test_the_imitated_network_delays_the_dealer_too() -> None:
    clock = Still()
    network = Network(0.5)
    with_dealer(lambda supply: supply.take("square", shape=(2,)), network=network, clock=clock)
    assert clock.time == 4 * 0.5  # the seed, a request, its answer, and the farewell


def test_what_repeats_itself_is_dealt_ahead() -> None:
    clock = Still()

    def main(supply: LiveSupply) -> list[Any]:
        return [supply.take("square", shape=(size,)) for _ in range(60) for size in (2, 3, 4)]

    triples, (count, _) = with_dealer(main, network=Network(0.5), clock=clock)
    for each in triples:
        assert (each["a"] ** 2 == each["c"]).all()  # one party: its shares are the values
    assert len({each["a"].tobytes() for each in triples}) == 180
    assert 180 <= count < 180 + 32
    # One by one they would take 180 s; each member waits, on the one clock of all.
    assert clock.time < 180 / 4


def test_what_is_said_to_come_is_dealt_ahead() -> None:
    clock = Still()
    items = [("square", {"shape": [1 + n % 40]}) for n in range(40)]

    def main(supply: LiveSupply) -> list[Any]:
        supply.foresee(items[:30] + items[31:])  # one is forgotten
        return [supply.take(kind, **parameters) for kind, parameters in items]

    squares, (count, _) = with_dealer(main, network=Network(0.5), clock=clock)
    assert all((each["a"] ** 2 == each["c"]).all() for each in squares)
    assert count == 40
    assert clock.time < 40 / 2


def test_items_that_were_foreseen_in_vain_are_used_later_or_never() -> None:
    rng = random.Random(3)
    sizes = [rng.choice((1, 2)) if rng.random() < 0.3 else 3 + n % 2 for n in range(300)]

    def main(supply: LiveSupply) -> list[Any]:
        return [supply.take("square", shape=(size,)) for size in sizes]

    squares, (count, _) = with_dealer(main)
    assert all((each["a"] ** 2 == each["c"]).all() for each in squares)
    assert len({each["a"].tobytes() for each in squares}) == 300
    assert 300 <= count <= 600


@pytest.mark.parametrize(
    ("items", "next_"),
    [("", ""), ("a", ""), ("ab", ""), ("aa", "a"), ("abca", "b"), ("abcab", "ca"), ("abxabyab", "ya"),
     ("xabcyabdxab", "cya")],
)  # fmt: skip
def test_what_comes_next(items: str, next_: str) -> None:
    assert "".join(continuation(list(items))) == next_


@pytest.mark.parametrize(
    "request_",
    [
        b'{"op": "x", "items": [["square", {"shape": [1099511627776]}]]}',
        b'{"op": "x"}',
        b'{"op": "x", "items": [["square", {"shape": "wide"}]]}',
        b'{"op": "x", "items": [[[], {}]]}',
        b"[" * 200_000,
        b"\xff",
    ],
    ids=["bomb", "nothing", "text", "list", "nested", "bytes"],
)
def test_what_cannot_be_dealt_ends_the_dealer(request_: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        party = Channel(0, {})
        party.attach(DEALER, ours)
        party.send(DEALER, request_)
        with pytest.raises(InputError) as refused:
            serve(Channel(DEALER, {0: theirs}, timeout_s=5.0))
    assert refused.value.code == "invalid-value"
