"""When the parties of a protocol end: their traces replayed against each other on a network.

Parties wait only for messages. So the time of each event follows from the party's own computation and from
the arrival of what it receives, and the last party to end is the end of the critical path. In
``replicated3`` that path mostly leads through party 2, which deals for the others and rarely waits.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.private.mpc.transport import Network, TraceEvent


class Replay(NamedTuple):
    """A run as the traces of its parties give it.

    Args:
        ends_s: when each party ends, by rank.
        rounds: longest chain of messages that led to each party, by rank, as `Channel.round` counts it.
        row_rounds: by how much each module and operation lengthened the longest chain of all.
    """

    ends_s: list[float]
    rounds: list[int]
    row_rounds: dict[tuple[str, str], int]


def replay(traces: Sequence[Sequence[TraceEvent]], network: Network) -> Replay:
    """Run all traces at once: each party until it waits for a message that was not sent yet.

    Args:
        traces: of all parties, by rank; each message is in two of them.
        network: between them, with the delays of `Channel`.
    """
    ends_s, rounds = [0.0] * len(traces), [0] * len(traces)
    row_rounds: dict[tuple[str, str], int] = defaultdict(int)
    free_at: dict[tuple[int, int], float] = defaultdict(float)  # sender, receiver
    arrivals: dict[tuple[int, int], deque[tuple[float, int]]] = defaultdict(deque)
    waiting = [deque(trace) for trace in traces]
    while any(waiting):
        for rank, events in enumerate(waiting):
            while events and (not events[0].received or arrivals[events[0].peer, rank]):
                event = events.popleft()
                ends_s[rank] += event.computing_s
                if event.received:
                    arrival_s, length = arrivals[event.peer, rank].popleft()
                    ends_s[rank] = max(ends_s[rank], arrival_s)
                    row_rounds[event.row] += max(0, length - max(rounds))
                    rounds[rank] = max(rounds[rank], length)
                    continue
                link = (rank, event.peer)
                free_at[link] = max(ends_s[rank], free_at[link]) + network.transfer_s(event.size)
                arrivals[link].append((free_at[link] + network.delay_s, rounds[rank] + 1))
    return Replay(ends_s, rounds, row_rounds)
