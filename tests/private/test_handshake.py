"""Connections between members of a session: who is let in, and what must be the same."""

from __future__ import annotations

import dataclasses
import datetime
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Duration
from holdfast.errors import InputError
from holdfast.private.mpc.certificates import fingerprint, make_certificate, tls_context
from holdfast.private.mpc.handshake import (
    DEALER,
    Agreement,
    Meeting,
    Member,
    Session,
    compare,
    meet,
    read_session,
    split_address,
)
from holdfast.private.mpc.transport import Channel, PeerError

OLD = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
AGREEMENT = Agreement("test", 3, "0" * 64, {"fraction_bits": 16})


def session_of(folder: Path, ports: list[int], timeout: float = 5.0) -> Session:
    members = []
    for rank, port in enumerate(ports):
        if not (folder / f"p{rank}.crt").exists():
            make_certificate(f"p{rank}", folder)
        members.append(Member(f"127.0.0.1:{port}", f"p{rank}.crt"))
    return Session("test", members, timeout=Duration(timeout), folder=folder)


def meet_all(
    sessions: list[Session],
    listeners: list[Any],
    agreements: list[Agreement],
    after: Callable[[Channel], Any] = lambda channel: None,
) -> list[Any]:
    """What every party gets, in threads."""
    outcomes: list[Any] = [None] * len(sessions)

    def run(rank: int) -> None:
        try:
            meeting = Meeting(sessions[rank], rank, listeners[rank])
            links, facts = meet(meeting, agreements[rank], {"position": rank})
            channel = Channel(rank, links)
            outcomes[rank] = facts, after(channel)
            channel.close()
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


@pytest.fixture
def listeners() -> Any:
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def session(tmp_path: Path, listeners: Any) -> Session:
    return session_of(tmp_path, [each.getsockname()[1] for each in listeners])


def test_parties_meet_over_tls_and_exchange_large_messages(
    session: Session, listeners: Any
) -> None:
    def after(channel: Channel) -> list[bytes]:
        versions = {link.socket.version() for link in channel._links.values()}
        assert versions == {"TLSv1.3"}
        received = channel.exchange(bytes([channel.rank]) * 3_000_000)
        channel.exchange(b"")
        return [bytes(part[:1]) for part in received]

    outcomes = meet_all([session] * 3, listeners, [AGREEMENT] * 3, after)
    for facts, received in outcomes:
        assert {rank: each["position"] for rank, each in facts.items()} == {0: 0, 1: 1, 2: 2}
        assert received == [b"\0", b"\1", b"\2"]


@pytest.mark.parametrize(
    "change",
    [
        {"script": "1" * 64},
        {"modules": {"helper": "1" * 64}},
        {"session": "other"},
        {"settings": {}},
        {"protocol": "x"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parties_that_run_something_else_end_at_the_handshake(
    session: Session, listeners: Any, change: dict[str, Any]
) -> None:
    pair = replace(session, party=session.party[:2])
    outcomes = meet_all([pair] * 2, listeners, [AGREEMENT, replace(AGREEMENT, **change)])
    for rank, error in enumerate(outcomes):
        assert isinstance(error, PeerError)
        assert (error.code, error.peer, error.op) == ("handshake", 1 - rank, "handshake")
        assert next(iter(change)).removesuffix("s") in str(error)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200_000, b"{}", b"\xff", b"1", b'{"facts": ' * 90_000, b'{"agreement": 5}',
        b'{"agreement": "ab", "facts": {}}', b'{"agreement": {"session": []}, "facts": [1]}',
        b'{"agreement": [["session", "test"]], "facts": {"rank": 1}}',
    ],
    ids=["nested", "empty", "bytes", "number", "objects", "no object", "text", "lists", "pairs"],
)  # fmt: skip
def test_what_a_peer_sends_instead_of_an_agreement_is_refused(text: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=theirs.sendall, args=(text + b"\n",))
        writer.start()
        with pytest.raises(PeerError) as refused:
            compare(ours, 1, AGREEMENT, {"rank": 0})
        theirs.close()
        writer.join()
    assert refused.value.peer == 1
    assert refused.value.code in ("peer-lost", "handshake")


def test_a_stranger_is_refused(session: Session, listeners: Any, tmp_path: Path) -> None:
    make_certificate("p1", tmp_path / "stranger")
    honest = replace(session, party=session.party[:2], timeout=Duration(1.0))
    stranger = replace(
        honest,
        party=[Member(honest.party[0].address, "../p0.crt"), honest.party[1]],
        folder=tmp_path / "stranger",
    )
    first, second = meet_all([honest, stranger], listeners, [AGREEMENT] * 2)
    assert (first.code, first.peer, first.op) == ("peer-timeout", 1, "connect")
    assert "refused" in str(first)
    assert (second.code, second.peer) == ("certificate", 0)


def test_strangers_who_say_nothing_stop_nobody(session: Session, listeners: Any) -> None:
    pair = replace(session, party=session.party[:2])
    strangers = [socket.create_connection(listeners[0].getsockname()) for _ in range(70)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    outcomes = meet_all([pair] * 2, listeners, [AGREEMENT] * 2)
    for each in strangers:
        each.close()
    for facts, _ in outcomes:
        assert facts.keys() == {0, 1}


def test_a_server_with_another_certificate_is_refused(
    session: Session, listeners: Any, tmp_path: Path
) -> None:
    make_certificate("p0", tmp_path / "stranger")
    honest = replace(session, party=session.party[:2], timeout=Duration(1.0))
    stranger = replace(
        honest,
        party=[honest.party[0], Member(honest.party[1].address, "../p1.crt")],
        folder=tmp_path / "stranger",
    )
    first, second = meet_all([stranger, honest], listeners, [AGREEMENT] * 2)
    assert (second.code, second.peer, second.op) == ("certificate", 0, "connect")
    assert first.code == "peer-timeout"


def test_an_expired_certificate_ends_every_party(tmp_path: Path, listeners: Any) -> None:
    make_certificate("p1", tmp_path, days=2, start=OLD)
    session = session_of(tmp_path, [each.getsockname()[1] for each in listeners[:2]])
    for error in meet_all([session] * 2, listeners, [AGREEMENT] * 2):
        assert (error.code, error.peer, error.op, error.round) == ("certificate", 1, "connect", 0)


def test_tls_itself_refuses_an_expired_certificate(tmp_path: Path, listeners: Any) -> None:
    old, key = make_certificate("old", tmp_path, days=2, start=OLD)
    new, new_key = make_certificate("new", tmp_path)
    server = tls_context(new, new_key, [old], server=True)
    client = tls_context(old, key, [new], server=False)
    reasons = []

    def serve() -> None:
        raw, _ = listeners[0].accept()
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            server.wrap_socket(raw, server_side=True)
        reasons.append(refused.value.verify_message)
        raw.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection(listeners[0].getsockname()) as raw, client.wrap_socket(raw):
        pass
    thread.join(30)
    assert reasons == ["certificate has expired"]


def test_a_party_that_never_comes_is_named(session: Session, listeners: Any) -> None:
    alone = replace(session, party=session.party[:2], timeout=Duration(0.1))
    with pytest.raises(PeerError) as missing:
        meet(Meeting(alone, 0, listeners[0]), AGREEMENT, {})
    assert (missing.value.code, missing.value.peer) == ("peer-timeout", 1)


def test_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    certificate, key = make_certificate("alice", tmp_path / "keys")
    assert key.stat().st_mode & 0o077 == 0
    assert len(fingerprint(certificate)) == 64
    with pytest.raises(InputError) as again:
        make_certificate("alice", tmp_path / "keys")
    assert again.value.code == "output-exists"


# --- parties.toml --------------------------------------------------------------------------------

GOOD = """
session = "scoring"
[[party]]
address = "127.0.0.1:9001"
certificate = "a.crt"
[[party]]
address = "[::1]:9002"
certificate = "b.crt"
[dealer]
address = "localhost:9003"
certificate = "d.crt"
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    for name in "abd":
        make_certificate(name, tmp_path)

    def write(text: str) -> Path:
        (tmp_path / "parties.toml").write_text(text)
        return tmp_path / "parties.toml"

    return write


def test_a_session_is_read(written: Callable[[str], Path]) -> None:
    session = read_session(written(GOOD))
    assert session.ranks == [0, 1, DEALER]
    assert session.certificate(DEALER).name == "d.crt"
    assert session.key_path(1).name == "b.key"
    assert (session.timeout, session.fraction_bits) == (60.0, 16)


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ('session = "scoring"', 'sesion = "scoring"', "unknown-key", "sesion"),
        ('session = "scoring"', 'session = "s"\nmode = "free"', "unknown-name", "mode"),
        ('session = "scoring"', 'session = "s"\nmode = "replicated3"', "out-of-range", "party"),
        ("127.0.0.1:9001", "9001", "invalid-value", "party[0].address"),
        ("localhost:9003", "localhost:0", "invalid-value", "dealer.address"),
        ("b.crt", "a.crt", "duplicate", "party[1].certificate"),
        ("b.crt", "b.key", "invalid-syntax", None),
        ("b.crt", "c.crt", "not-found", None),
    ],
)
def test_a_wrong_session_is_refused(
    written: Callable[[str], Path], old: str, new: str, code: str, place: str | None
) -> None:
    with pytest.raises(InputError) as refused:
        read_session(written(GOOD.replace(old, new)))
    assert (refused.value.code, refused.value.place) == (code, place)


def test_a_key_of_another_certificate_is_refused(written: Callable[[str], Path]) -> None:
    folder = written(GOOD).parent
    with pytest.raises(InputError) as refused:
        tls_context(folder / "a.crt", folder / "b.key", [], server=True)
    assert refused.value.code == "conflict"


def as_sent(**changes: Any) -> dict[str, Any]:
    """An agreement as another party sends it, with some fields changed, or left out by None."""
    fields = dataclasses.asdict(replace(AGREEMENT, modules={"helper": "1", "table": "2"})) | changes
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(Agreement)])
@pytest.mark.parametrize("other", [None, 0, "", [], {}, {"x": [1]}, "another"])
def test_every_field_of_an_agreement_must_be_the_same(name: str, other: Any) -> None:
    mine = replace(AGREEMENT, modules={"helper": "1", "table": "2"})
    assert mine.difference(as_sent()) is None
    assert mine.difference(as_sent() | {"more": 1}) is None  # of a later version
    if as_sent()[name] == other:
        return
    difference = mine.difference(as_sent(**{name: other}))
    assert difference is not None
    assert difference.startswith(
        name if name != "modules" or type(other) is not dict else "module "
    )


@pytest.mark.parametrize(
    ("modules", "named"),
    [
        ({"helper": "1"}, "table"), ({"helper": "9", "table": "2"}, "helper"),
        ({"helper": "1", "table": "2", "extra": "3"}, "extra"), ({"helper": ["1"], "table": {}}, "helper"),
    ],
)  # fmt: skip
def test_the_module_that_differs_is_named(modules: Any, named: str) -> None:
    mine = replace(AGREEMENT, modules={"helper": "1", "table": "2"})
    assert f"module {named} " in str(mine.difference(as_sent(modules=modules)))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("alice.example:9000", ("alice.example", 9000)), ("[::1]:65535", ("::1", 65535)),
        ("127.0.0.1:1", ("127.0.0.1", 1)), ("h:0", None), ("h:65536", None), ("h:-1", None), ("h:+1", None),
        ("h: 1", None), ("h:1e3", None), ("h:", None), (":1", None), ("h", None), ("", None),
    ],
)  # fmt: skip
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    if address:
        assert split_address(text) == address
        return
    with pytest.raises(InputError) as refused:
        split_address(text, place="party[0].address")
    assert (refused.value.code, refused.value.place) == ("invalid-value", "party[0].address")
