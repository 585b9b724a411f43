"""Channels: what arrives, what is counted, how long it takes, and how failures read."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast.private.mpc.transport import (
    DEALER,
    HEADER_BYTES,
    Channel,
    Clock,
    EchoChannel,
    Network,
    PeerError,
    local_channels,
)


class VirtualClock(Clock):
    """A clock that only messages move: the time of a run whose computation takes none."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait_until(self, moment: float) -> None:
        self._now = max(self._now, moment)


def at_all(main: Callable[[Channel], Any], parties: int = 2, **settings: Any) -> list[Any]:
    """What `main` returns or raises at every party."""
    clock = settings.pop("clock", Clock)
    channels = local_channels(parties, **settings)
    for channel in channels:
        channel.clock = clock()
    outcomes: list[Any] = [None] * parties

    def run(rank: int) -> None:
        try:
            outcomes[rank] = main(channels[rank])
        except Exception as error:
            outcomes[rank] = error
            channels[rank].abort("test")
        else:
            channels[rank].close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


@pytest.mark.parametrize("parties", [2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 2_000_000])
def test_everybody_receives_what_everybody_sent(parties: int, size: int) -> None:
    payloads = [os.urandom(size) for _ in range(parties)]

    def main(channel: Channel) -> tuple[list[bytes], int, int]:
        received = [bytes(part) for part in channel.exchange(payloads[channel.rank])]
        return received, channel.round, channel.ledger.total().bytes_sent

    for received, rounds, sent in at_all(main, parties):
        assert received == payloads
        assert rounds == 1
        assert sent == (parties - 1) * (size + HEADER_BYTES)


def test_rounds_are_the_longest_chain() -> None:
    def main(channel: Channel) -> int:
        with channel.scope("all"):
            channel.exchange(b"abcd")  # all at once: 1 round
        with channel.scope("chain", "fc1"), channel.scope("inner"):
            if channel.rank > 0:
                assert channel.receive(channel.rank - 1, 2) == b"xy"
            if channel.rank < 2:
                channel.send(channel.rank + 1, b"xy")
        return channel.round, {key: row.rounds for key, row in channel.ledger.rows.items()}

    first, second, third = at_all(main, 3)
    assert [rounds for rounds, _ in (first, second, third)] == [1, 2, 3]
    assert third[1] == {("", "all"): 1, ("fc1", "chain"): 2}


def test_a_group_leaves_the_others_out() -> None:
    def main(channel: Channel) -> list[bytes]:
        if channel.rank == 2:
            return []
        return [bytes(part) for part in channel.exchange(bytes([channel.rank]), (0, 1))]

    assert at_all(main, 3) == [[b"\0", b"\1"], [b"\0", b"\1"], []]


@pytest.mark.parametrize("rounds", [1, 7])
def test_added_delay_adds_rounds_times_delay(rounds: int) -> None:
    def main(channel: Channel) -> float:
        for _ in range(rounds):
            channel.exchange(b"x" * 1000)
        return channel.clock.now()

    delayed = at_all(main, network=Network(0.020), clock=VirtualClock)
    assert delayed == pytest.approx([rounds * 0.020] * 2)
    slow = at_all(main, network=Network(0.020, 8e6), clock=VirtualClock)
    assert slow == pytest.approx([rounds * (0.020 + (1000 + HEADER_BYTES) / 1e6)] * 2)


def test_bandwidth_is_shared_by_messages_that_do_not_wait_for_each_other() -> None:
    def main(channel: Channel) -> float:
        for _ in range(3):
            if channel.rank == 0:
                channel.send(1, bytes(1000 - HEADER_BYTES))
            else:
                channel.receive(0, 1000 - HEADER_BYTES)
        return channel.clock.now()

    assert at_all(main, network=Network(0.5, 8e3), clock=VirtualClock) == pytest.approx([0, 3.5])


def error_of(outcome: Any) -> tuple[str, int, str, int]:
    assert isinstance(outcome, PeerError)
    return outcome.code, outcome.peer, outcome.op, outcome.round


def test_a_party_that_dies_is_named_with_operation_and_round() -> None:
    def main(channel: Channel) -> None:
        channel.exchange(b"x")
        with channel.scope("relu", "features.1"), channel.scope("less"):
            if channel.rank == 1:
                raise ZeroDivisionError
            channel.exchange(b"y")

    outcomes = at_all(main, 3)
    assert isinstance(outcomes[1], ZeroDivisionError)
    # Party 2 may hear it from party 0, which stopped for the same reason.
    assert error_of(outcomes[0]) == ("peer-aborted", 1, "features.1 relu/less", 1)
    assert error_of(outcomes[2])[0] == "peer-aborted"


def test_a_closed_connection_is_named() -> None:
    def main(channel: Channel) -> None:
        if channel.rank == 0:
            channel.exchange(b"x")

    assert error_of(at_all(main)[0]) == ("peer-lost", 1, "other", 0)


def test_a_silent_party_is_given_up() -> None:
    done = threading.Event()

    def main(channel: Channel) -> None:
        if channel.rank == 0:
            try:
                channel.receive(1, 4)
            finally:
                done.set()
        else:
            done.wait(30)

    assert error_of(at_all(main, timeout_s=0.05)[0])[:2] == ("peer-timeout", 1)


@pytest.mark.parametrize("other", ["size", "operation"])
def test_parties_that_take_different_paths_are_noticed(other: str) -> None:
    def main(channel: Channel) -> None:
        odd = channel.rank == 1
        with channel.scope("mul" if odd and other == "operation" else "add"):
            channel.exchange(b"xy" if odd and other == "size" else b"x")

    codes = {error_of(outcome)[0] for outcome in at_all(main)}
    assert "desync" in codes
    assert codes <= {"desync", "peer-aborted", "peer-lost"}


def test_an_echo_counts_bytes_like_a_network() -> None:
    def main(channel: Channel) -> dict[Any, int]:
        with channel.scope("open", "a"):
            channel.exchange(b"x" * 100)
            channel.exchange(b"x" * 10, (0, 1, 2))
        return {key: row.bytes_sent for key, row in channel.ledger.rows.items()}

    echo = EchoChannel(0, 3)
    assert main(echo) == at_all(main, 3)[0]


# --- What a party that is not honest, or a network that is not, can send ---------------------------

_HEADER = struct.Struct("<QIIId")  # length, sequence number, round, checksum, clock


def frames(*payloads: bytes) -> list[bytes]:
    """Messages of party 1 as its channel writes them, one by one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(1, {0: theirs})
        written = []
        with channel.scope("relu", "features.3"):
            for payload in payloads:
                channel.send(0, payload)
                written.append(ours.recv(1 << 16))
    return written


def header(frame: bytes, **changes: Any) -> bytes:
    """A frame with some fields of its header changed."""
    names = ("length", "sequence", "round", "checksum", "clock")
    fields = dict(zip(names, _HEADER.unpack(frame[: _HEADER.size]), strict=True)) | changes
    return _HEADER.pack(*fields.values()) + frame[_HEADER.size :]


FIRST, SECOND = frames(b"abcd", b"efgh")
# name: what arrives, code, how many messages are right before
BROKEN = {
    "replayed": (FIRST + FIRST, "desync", 1),
    "out of order": (SECOND + FIRST, "desync", 0),
    "left out": (header(FIRST, sequence=1) + SECOND, "desync", 0),
    "another operation": (header(FIRST, checksum=1) + SECOND, "desync", 0),
    "shorter": (header(FIRST, length=3)[:-1] + SECOND, "desync", 0),
    "longer": (header(FIRST, length=5) + b"x" + SECOND, "desync", 0),
    "empty": (header(FIRST, length=0)[:-4] + SECOND, "desync", 0),
    "cut in the payload": (FIRST[:-1], "peer-lost", 0),
    "cut in the header": (FIRST[:5], "peer-lost", 0),
    "nothing": (b"", "peer-lost", 0),
    "a bomb": (header(FIRST, length=1 << 37), "peer-lost", 0),
    "the largest length": (header(FIRST, length=2**64 - 1), "peer-lost", 0),
    "text": (b"GET / HTTP/1.1\r\nHost: alice.example\r\n\r\n", "peer-lost", 0),
    "farewell": (header(FIRST, sequence=0xFFFFFFFF), "peer-aborted", 0),
    "farewell after a message": (FIRST + header(SECOND, sequence=0xFFFFFFFF), "peer-aborted", 1),
    "farewell of no text": (header(FIRST[:-4] + b"\xff\xfe\0\x80", sequence=2**32 - 1), "peer-aborted", 0),
    "one too few": (FIRST + SECOND, "peer-lost", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_the_next_message_is_refused(name: str) -> None:
    data, code, right = BROKEN[name]
    ours, theirs = socket.socketpair()
    with ours:
        channel = Channel(0, {1: theirs}, timeout_s=5.0)
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        received: list[bytes] = []
        with channel.scope("relu", "features.3"), pytest.raises(PeerError) as error:
            received.extend(bytes(channel.receive(1, 4)) for _ in range(3))
        channel.close()
    assert received == [b"abcd", b"efgh"][:right]  # what is right has come through before
    assert (error.value.code, error.value.peer, error.value.op) == (code, 1, "features.3 relu")


@pytest.mark.parametrize("cut", range(0, len(FIRST) + 1, 5))
def test_a_message_may_arrive_in_any_two_parts(cut: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        channel = Channel(0, {1: theirs}, timeout_s=5.0)
        late = threading.Thread(target=lambda: ours.sendall((FIRST + SECOND)[cut:]))
        ours.sendall(FIRST[:cut])
        late.start()
        with channel.scope("relu", "features.3"):
            assert [bytes(channel.receive(1, 4)) for _ in range(2)] == [b"abcd", b"efgh"]
        late.join()
        channel.close()


def test_frames_are_as_long_as_is_counted() -> None:
    assert HEADER_BYTES == _HEADER.size == 28
    assert [len(each) for each in frames(b"", b"x", bytes(1000))] == [28, 29, 1028]
    length, sequence, round_, _, _ = _HEADER.unpack(SECOND[:28])
    assert (length, sequence, round_) == (4, 1, 0)
    assert SECOND[28:] == b"efgh"


@pytest.mark.parametrize("facts", [(1,), (b"weights",), ("clamp", None, 2.0), (True,)])
def test_parties_that_have_seen_different_public_facts_stop(facts: tuple[Any, ...]) -> None:
    def main(channel: Channel, odd: bool) -> bytes:
        channel.note("same")
        if odd and channel.rank == 1:
            channel.note(*facts)
        channel.confirm()
        return b"".join(map(bytes, channel.exchange(b"x")))

    assert at_all(lambda channel: main(channel, odd=False)) == [b"xx", b"xx"]
    codes = {error_of(each)[0] for each in at_all(lambda channel: main(channel, odd=True))}
    assert "desync" in codes


def test_facts_that_all_have_confirmed_need_no_message() -> None:
    def main(channel: Channel) -> list[int]:
        rounds = []
        for step in (channel.confirm, lambda: channel.note(1), channel.confirm, channel.confirm):
            step()
            rounds.append(channel.round)
        channel.note(2)
        channel.exchange(b"")  # any message to all confirms
        channel.confirm()
        return [*rounds, channel.round]

    assert at_all(main, 3)[0] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("rank", [0, DEALER])
def test_who_sends_more_than_a_dealer_reads_is_dropped(rank: int) -> None:
    """A request of more than 1 MiB ends the dealer; between parties it is a message."""
    ours, theirs = socket.socketpair()
    with ours:
        channel = Channel(rank, {1: theirs}, timeout_s=5.0)
        size = (1 << 20) + 1

        def send() -> None:
            with suppress(PeerError):  # that it is cut off
                Channel(1, {rank: ours}).send(rank, bytes(size))

        sender = threading.Thread(target=send)
        sender.start()
        if rank == DEALER:
            assert error_of_call(lambda: channel.receive(1, None)) == "peer-lost"
        else:
            assert len(channel.receive(1, None)) == size
        channel.close()
        sender.join(30)


def error_of_call(call: Callable[[], Any]) -> str:
    with pytest.raises(PeerError) as error:
        call()
    return error.value.code
