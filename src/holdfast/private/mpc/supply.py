"""Where a party gets its preprocessing items from: a dealer that is online, a store, or a dry run.

An item (a Beaver triple, shared bits ...) is known by its index in the run, its kind and its parameters.
All parties take the same items in the same order. Each expands its part from its own seed; besides, the
last party needs bytes from the dealer, the corrections. Items of the kinds in `dealing.COMMON` have
corrections that everybody needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError, InputError
from holdfast.private.mpc import dealing
from holdfast.private.mpc.accounting import Ledger
from holdfast.private.mpc.handshake import DEALER, receive_exactly, receive_message, send_message
from holdfast.private.mpc.transport import LARGEST, Channel, PeerError

SEED_BYTES = 16


class SupplyError(HoldfastError):
    """No usable preprocessing item; ``store-exhausted``, ``store-replayed`` or ``store-mismatch``."""

    def __init__(self, problem: str, *, code: str, op: str = "start", round: int = 0) -> None:
        self.code = code
        super().__init__(f"{problem}\n  operation: {op}\n  round: {round}")


def run_seed(seed: bytes, run: int) -> bytes:
    """The seed of one run of a store."""
    return hashlib.blake2b(
        run.to_bytes(8, "little"), key=seed, digest_size=SEED_BYTES, person=b"holdfast-run"
    ).digest()


class Supply:
    """This party's parts of preprocessing items; one run.

    Args:
        seed: of this party and run.
        rank: of this party.
        parties: number of parties.
        source: index, kind, parameters -> the corrections of an item; asked only where they are needed.
        ledger: to which offline bytes are charged.
    """

    def __init__(
        self,
        seed: bytes,
        rank: int,
        parties: int,
        source: Callable[[int, str, dict[str, Any]], bytes],
        ledger: Ledger | None = None,
    ) -> None:
        self.rank, self.parties = rank, parties
        self.items: list[tuple[str, dict[str, Any]]] = []
        """Kind and parameters of what was taken, in order: the demand from which a store is made."""
        self._seed, self._source = seed, source
        self.ledger = ledger or Ledger()

    @property
    def peek_index(self) -> int:
        """Index of the next item."""
        return len(self.items)

    def take(self, kind: str, **parameters: Any) -> Any:
        """This party's part of the next item, as `dealing.expand` returns it.

        Args:
            kind: as `dealing` names it.
            parameters: shapes and settings, the same at every party; JSON.
        """
        index = len(self.items)
        self.items.append((kind, parameters))
        corrections = None
        if needs_corrections(kind, self.rank, self.parties):
            start = time.perf_counter()
            corrections = self._source(index, kind, parameters)
            row = self.ledger.row
            row.offline_s += time.perf_counter() - start
            row.offline_bytes += len(corrections)
        return dealing.expand(kind, parameters, self._seed, index, corrections)


def needs_corrections(kind: str, rank: int, parties: int) -> bool:
    """Whether a party needs bytes from the dealer for an item of some kind."""
    return rank == parties - 1 or kind in dealing.COMMON


def local_supplies(parties: int) -> list[Supply]:
    """Supplies of parties in one process, which deal for themselves: no secrecy, for tests."""
    seeds = [os.urandom(SEED_BYTES) for _ in range(parties)]

    def source(index: int, kind: str, parameters: dict[str, Any]) -> bytes:
        return dealing.deal(kind, parameters, seeds, index)

    return [Supply(seed, rank, parties, source) for rank, seed in enumerate(seeds)]


def dry_supply(rank: int, parties: int, ledger: Ledger) -> Supply:
    """Items whose corrections are zeros, for forecasts."""
    return Supply(
        bytes(SEED_BYTES),
        rank,
        parties,
        lambda index, kind, parameters: bytes(dealing.correction_bytes(kind, parameters)),
        ledger,
    )


# --- A dealer that is online ---------------------------------------------------------------------


class LiveSupply(Supply):
    """Items from a dealer that answers while the parties compute."""

    connection: socket.socket

    def finish(self) -> None:
        """Tell the dealer that this party has what it needs; without it, the dealer fails."""
        send_message(self.connection, {"done": len(self.items)})
        self.connection.close()


def live_supply(connection: socket.socket, rank: int, parties: int, channel: Channel) -> LiveSupply:
    """Items from a dealer that is online; its messages are delayed as the channel's are.

    Raises:
        PeerError: if the dealer hangs up.
    """

    def error(failure: Exception) -> PeerError:
        problem = (
            "the dealer is silent" if isinstance(failure, TimeoutError) else "the dealer has gone"
        )
        code = "peer-timeout" if isinstance(failure, TimeoutError) else "peer-lost"
        return PeerError(problem, code=code, peer=DEALER, op=channel.path(), round=channel.round)

    def source(index: int, kind: str, parameters: dict[str, Any]) -> bytes:
        try:
            if rank == parties - 1:  # it asks for all; the dealer answers whoever needs the item
                place = {"op": channel.path(), "round": channel.round}
                asked = {"index": index, "kind": kind, "parameters": parameters, **place}
                channel.delay(len(json.dumps(asked)))
                send_message(connection, asked)
            answer = receive_message(connection)
            size = dealing.correction_bytes(kind, parameters)
            if (answer["index"], answer["bytes"]) != (index, size):
                raise SupplyError(
                    f"the dealer sent item {answer['index']}, expected item {index}",
                    code="store-replayed",
                    op=channel.path(),
                    round=channel.round,
                )
            corrections = bytes(receive_exactly(connection, size))
        except (OSError, EOFError, ValueError, KeyError) as failure:
            raise error(failure) from failure
        channel.delay(size)
        return corrections

    try:
        seed = bytes.fromhex(receive_message(connection)["seed"])
    except (OSError, EOFError, ValueError, KeyError) as failure:
        raise error(failure) from failure
    supply = LiveSupply(seed, rank, parties, source, channel.ledger)
    supply.connection = connection
    return supply


def serve(connections: Mapping[int, socket.socket], timeout_s: float) -> tuple[int, int]:
    """Deal for one session: a seed to every party, then corrections, until all say that they are done.

    Args:
        connections: to every party, by rank.
        timeout_s: longest silence of the last party. Parties do not wait longer for each other.

    Returns:
        The number of items and the bytes of corrections.

    Raises:
        PeerError: if a party goes without a word, or is silent.
        SupplyError: if an item is asked for twice.
        InputError: if an item is not one that can be dealt.
    """
    parties = len(connections)
    seeds = [os.urandom(SEED_BYTES) for _ in range(parties)]
    for rank, connection in connections.items():
        send_message(connection, {"seed": seeds[rank].hex()})
    working, served, sent = set(connections), 0, 0
    place: dict[str, Any] = {"op": "start", "round": 0}

    def lost(rank: int, problem: str, code: str = "peer-lost") -> PeerError:
        return PeerError(problem, code=code, peer=rank, **place)

    while working:
        rank = _first_to_speak({each: connections[each] for each in working}, timeout_s)
        if rank is None:
            raise lost(max(working), f"silent for {timeout_s:g} s", "peer-timeout")
        try:
            request = receive_message(connections[rank])
        except (OSError, EOFError, ValueError) as error:
            problem = "closed the connection, or sent something else"
            raise lost(rank, problem) from error
        if "done" in request:
            working.discard(rank)
            continue
        place |= {"op": str(request.get("op"))[:200], "round": request.get("round")}
        index, kind, parameters = checked_item(request)
        if index != served or rank != parties - 1:
            raise SupplyError(
                f"party {rank} asked for item {index} after item {served - 1}",
                code="store-replayed",
                **place,
            )
        corrections = _dealt(kind, parameters, seeds, index)
        for receiver, connection in connections.items():
            if needs_corrections(kind, receiver, parties):
                try:
                    send_message(connection, {"index": index, "bytes": len(corrections)})
                    connection.sendall(corrections)
                except OSError as error:
                    raise lost(receiver, "closed the connection") from error
        served, sent = served + 1, sent + len(corrections)
    return served, sent


def _first_to_speak(connections: Mapping[int, socket.socket], timeout_s: float) -> int | None:
    """A party from which something can be read, or that has gone; None after the timeout."""
    poll = select.poll()
    ranks = {}
    for rank, connection in connections.items():
        if isinstance(connection, ssl.SSLSocket) and connection.pending():
            return rank
        poll.register(connection, select.POLLIN)
        ranks[connection.fileno()] = rank
    ready = poll.poll(1000 * timeout_s)
    return ranks[ready[0][0]] if ready else None


def _dealt(kind: str, parameters: dict[str, Any], seeds: list[bytes], index: int) -> bytes:
    """The corrections of an item, unless it is not one, or of more bytes than a message may have."""
    try:
        if dealing.correction_bytes(kind, parameters) < LARGEST:
            return dealing.deal(kind, parameters, seeds, index)
    except (KeyError, TypeError, ValueError, IndexError):
        pass
    found = repr((kind, parameters))[:80]
    raise InputError("not a preprocessing item", code="invalid-value", found=found)


def checked_item(request: Mapping[str, Any]) -> tuple[int, str, dict[str, Any]]:
    """Index, kind and parameters of an item that somebody asks for.

    Raises:
        InputError: if it is not a known item.
    """
    index, kind, parameters = (request.get(key) for key in ("index", "kind", "parameters"))
    if not (isinstance(index, int) and isinstance(kind, str) and isinstance(parameters, dict)):
        raise InputError("not a preprocessing item", code="invalid-value", found=repr(request)[:80])
    return index, kind, parameters


def total_correction_bytes(
    items: Sequence[tuple[str, dict[str, Any]]], rank: int, parties: int
) -> int:
    """Bytes of corrections that a party needs for a run."""
    return sum(
        dealing.correction_bytes(kind, parameters)
        for kind, parameters in items
        if needs_corrections(kind, rank, parties)
    )
