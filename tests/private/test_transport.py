"""Channels: what arrives, what is counted, how long it takes, and how failures read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.private.mpc.transport import (
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
