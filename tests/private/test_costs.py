"""Costs: ledgers by hand, replays against the longest path, and every operation's bytes by its formula."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.private.mpc import functions
from holdfast.private.mpc.accounting import Cost, Ledger
from holdfast.private.mpc.critical_path import replay
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.transport import HEADER_BYTES, Network, TraceEvent

N = 640
"""Values of an operation: so many that what is sent once does not count."""
# call, rounds, bytes per value of one party, fractional bits of an input: as the module docstrings say
OPERATIONS: dict[str, tuple[Any, int, float]] = {
    "sum": (lambda x, y: x + y, 0, 0),
    "public factor": (lambda x, y: x * 3, 0, 0),
    "moved": (lambda x, y: x.reshape(10, -1).T.flip(0)[1:], 0, 0),
    "product": (lambda x, y: x * y, 1, 16),
    "square": (lambda x, y: x.square(), 1, 8),
    "product and truncation": (lambda x, y: (x * y).narrowed(), 2, 24),
    "comparison": (lambda x, y: x > y, 4, 14),
    "equality": (lambda x, y: x == y, 4, 8 + 2 * 5 + 1),
    "relu": (lambda x, y: x.relu(), 4, 14),
    "sign": (lambda x, y: functions.sign(x), 4, 8 + 2 * 5 + 2),
    "clamp": (lambda x, y: x.clamp(-1, 1), 4, 28),
    "one end": (lambda x, y: x.clamp(min=-1), 4, 14),
    "no end": (lambda x, y: x.clamp(-2000, 2000), 0, 0),
    "within": (lambda x, y: x.within(9), 3, 18),
    "known": (lambda x, y: x.within(5000), 0, 0),
    "maximum of 4": (lambda x, y: x.reshape(-1, 4).amax(1), 4, (6 * 13 + 1 + 4 * 8) / 4),
    "argmax of 4": (lambda x, y: x.reshape(-1, 4).argmax(1), 4, (6 * 13 + 1 + 4 * 16) / 4),
    "maximum of 2": (lambda x, y: x.reshape(-1, 2).amax(1), 4, (13 + 1 + 4 * 8) / 2),
    "choice": (lambda x, y: functions.where(torch.arange(N) > 3, x, y), 0, 0),
    "places": (lambda x, y: functions.one_hot(x.like(x.share, 0, bound=BITS), 8), 1, 1),
    "reveal": (lambda x, y: x.reveal(), 1, 8),
}  # fmt: skip
BITS = functions.Bound(0.0, 7.0)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_sends_what_its_formula_says(name: str, parties: int) -> None:
    call, rounds, per_value = OPERATIONS[name]

    def main(party: Any) -> tuple[int, int]:
        x, y = (
            party.secret(torch.arange(N) % 8 / 2, owner=0, shape=(N,), name=each) for each in "xy"
        )
        party.channel.confirm()
        party.channel.exchange(b"")  # all have reached the same round
        before = party.channel.round, party.channel.ledger.total().bytes_sent
        call(x, y)
        after = party.channel.round, party.channel.ledger.total().bytes_sent
        return after[0] - before[0], after[1] - before[1]

    for rounds_of_one, sent in simulate(parties, main):
        assert rounds_of_one == rounds
        payload = sent - (parties - 1) * rounds * HEADER_BYTES
        assert payload == (parties - 1) * round(per_value * N)


def test_costs_do_not_depend_on_values() -> None:
    def main(party: Any, scale: float) -> list[tuple[Any, ...]]:
        x = party.secret(torch.linspace(-scale, scale, 30).reshape(5, 6), owner=0, bound=8.0)
        functions.softmax(x.relu() @ x.T).argmax(-1).reveal()
        rows = party.channel.ledger.rows.values()
        return [
            (row.op, row.rounds, row.bytes_sent, row.offline_bytes, row.margin_bits) for row in rows
        ]

    for mode in ({}, {"comparison": "dcf"}):
        first, *others = [
            simulate(2, lambda party, s=s: main(party, s), **mode) for s in (0.0, 1e-4, 8.0)
        ]
        # Rounds are charged to whoever reaches them first, which the threads decide.
        for other in others:
            for one, two in zip(first, other, strict=True):
                assert [row[:1] + row[2:] for row in one] == [row[:1] + row[2:] for row in two]
                assert sum(row[1] for row in one) == sum(row[1] for row in two)


# --- Ledgers ---------------------------------------------------------------------------------------


def test_what_runs_inside_an_operation_is_charged_to_the_outermost() -> None:
    ledger = Ledger()
    ledger.row.bytes_sent += 1
    with ledger.scope("linear", "fc"):
        ledger.row.bytes_sent += 10
        assert (ledger.module, ledger.path) == ("fc", "linear")
        with ledger.scope("truncate"), ledger.scope("open", "other"):
            ledger.row.bytes_sent += 100
            assert (ledger.module, ledger.path) == ("other", "linear/truncate/open")
        assert ledger.module == "fc"
        ledger.note_margin(12.34)
        ledger.note_margin(40.0)
    ledger.note_margin(1.0)  # of nothing that runs
    assert ledger.path == "other"
    sent = {key: row.bytes_sent for key, row in ledger.rows.items()}
    assert sent == {("", "other"): 1, ("fc", "linear"): 10, ("other", "linear"): 100}
    total = ledger.total()
    assert (total.bytes_sent, total.margin_bits, total.op) == (111, 12.3, "total")


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 9)), max_size=9)
)
def test_a_total_is_the_sum_of_its_rows(events: list[tuple[str, str, int]]) -> None:
    ledger = Ledger()
    for module, op, count in events:
        with ledger.scope(op, module):
            row = ledger.row
            row.rounds += count
            row.bytes_sent += 2 * count
            row.offline_bytes += 3 * count
            row.waiting_s += count
            row.offline_s += count / 2
    total, every = ledger.total(), sum(count for *_, count in events)
    assert (total.rounds, total.bytes_sent, total.offline_bytes) == (every, 2 * every, 3 * every)
    assert (total.waiting_s, total.offline_s, total.margin_bits) == (every, every / 2, 62.0)
    assert set(ledger.rows) == {(module, op) for module, op, _ in events}
    assert all(isinstance(row, Cost) for row in ledger.rows.values())


# --- Replays ---------------------------------------------------------------------------------------


def traces_of(messages: list[tuple[int, int, int, float]], parties: int) -> list[list[TraceEvent]]:
    """Both ends of messages (sender, receiver, bytes, seconds of computation before), in order."""
    traces: list[list[TraceEvent]] = [[] for _ in range(parties)]
    for number, (sender, receiver, size, computing) in enumerate(messages):
        row = ("", f"op{number % 3}")
        traces[sender].append(TraceEvent(row, receiver, size, False, computing))
        traces[receiver].append(TraceEvent(row, sender, size, True, computing / 2))
    return traces


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_is_the_longest_path_through_its_messages(seed: int) -> None:
    """Each party in the order of its trace; a message leaves when its link is free."""
    rng = random.Random(seed)
    parties, network = rng.randint(2, 4), Network(0.02, 8e4)
    messages = []
    for _ in range(30):
        sender, receiver = rng.sample(range(parties), 2)
        messages.append((sender, receiver, rng.randint(28, 5000), rng.choice([0.0, 0.001, 0.5])))
    time, length = [0.0] * parties, [0] * parties
    free = {}
    for sender, receiver, size, computing in messages:
        time[sender] += computing
        start = max(time[sender], free.get((sender, receiver), 0.0))
        free[sender, receiver] = start + 8 * size / network.bits_per_s
        arrival = free[sender, receiver] + network.delay_s
        time[receiver] = max(time[receiver] + computing / 2, arrival)
        length[receiver] = max(length[receiver], length[sender] + 1)
    got = replay(traces_of(messages, parties), network)
    assert got.ends_s == pytest.approx(time)
    assert got.rounds == length
    assert sum(got.row_rounds.values()) == max(length)


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_a_chain_takes_its_delays_and_its_bytes(parties: int) -> None:
    messages = [(rank, rank + 1, 1000, 0.0) for rank in range(parties - 1)]
    got = replay(traces_of(messages, parties), Network(0.25, 8000.0))
    assert got.ends_s == pytest.approx([1.25 * rank for rank in range(parties)])
    assert got.rounds == list(range(parties))


def test_without_a_network_time_is_that_of_computation() -> None:
    messages = [(0, 1, 10**9, 0.5), (1, 0, 10**9, 0.25)]
    got = replay(traces_of(messages, 2), Network())
    assert got.ends_s == [0.75, 0.75]  # 0.5 at party 0, then 0.25 at party 1
    assert replay([[], []], Network()).ends_s == [0.0, 0.0]
    assert math.isinf(Network().bits_per_s)
