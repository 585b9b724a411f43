"""Where a party gets its preprocessing items from: a dealer that is online, a store, or a dry run.

An item (a Beaver triple, shared bits ...) is known by its label: kind, parameters, and how many of them
were taken before. All parties take the same items in the same order. Each expands its part from its own
seed; besides, the last party needs bytes from the dealer, the corrections. Items of the kinds in
`dealing.COMMON` have corrections that everybody needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from holdfast.errors import HoldfastError, InputError
from holdfast.private.mpc import dealing
from holdfast.private.mpc.accounting import Ledger
from holdfast.private.mpc.dealing import described
from holdfast.private.mpc.handshake import parsed
from holdfast.private.mpc.randomness import SEED_BYTES
from holdfast.private.mpc.transport import DEALER, Channel

Items = Sequence[tuple[str, dict[str, Any]]]
"""Kind and parameters of items, in order."""


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


class Labels(Counter[str]):
    """How many items of each kind and parameters there were."""

    def next(self, kind: str, parameters: Mapping[str, Any]) -> str:
        """The label of one more of them."""
        text = described(kind, parameters)
        self[text] += 1
        return f"{text} {self[text]}"


class Supply:
    """This party's parts of preprocessing items; one run.

    Args:
        seed: of this party and run.
        rank: of this party.
        parties: number of parties.
        source: label, kind, parameters -> the corrections of an item; asked only where they are needed.
        ledger: to which offline bytes are charged.
    """

    def __init__(
        self,
        seed: bytes,
        rank: int,
        parties: int,
        source: Callable[[str, str, dict[str, Any]], bytes | bytearray],
        ledger: Ledger | None = None,
    ) -> None:
        self.rank, self.parties = rank, parties
        self.items = list[tuple[str, dict[str, Any]]]()
        """What was taken, in order: the demand from which a store is made."""
        self.label = ""
        """Of the item that was taken last."""
        self._seed, self._source, self._labels = seed, source, Labels()
        self.ledger = ledger or Ledger()

    def count(self, kind: str, parameters: dict[str, Any]) -> None:
        """Note what is taken."""
        self.items.append((kind, parameters))
        self.label = self._labels.next(kind, parameters)

    def take(self, kind: str, **parameters: Any) -> Any:
        """This party's part of the next item, as `dealing.expand` returns it.

        Args:
            kind: as `dealing` names it.
            parameters: shapes and settings, the same at every party; JSON.
        """
        self.count(kind, parameters)
        corrections = None
        if needs_corrections(kind, self.rank, self.parties):
            start = time.perf_counter()
            corrections = self._source(self.label, kind, parameters)
            row = self.ledger.row
            row.offline_s += time.perf_counter() - start
            row.offline_bytes += len(corrections)
        return dealing.expand(kind, parameters, self._seed, self.label, corrections)


def needs_corrections(kind: str, rank: int, parties: int) -> bool:
    """Whether a party needs bytes from the dealer for an item of some kind."""
    return rank == parties - 1 or kind in dealing.COMMON


def local_supplies(parties: int) -> list[Supply]:
    """Supplies of parties in one process, which deal for themselves: no secrecy, for tests."""
    seeds = [os.urandom(SEED_BYTES) for _ in range(parties)]

    def source(label: str, kind: str, parameters: dict[str, Any]) -> bytes:
        return dealing.deal(kind, parameters, seeds, label)

    return [Supply(seed, rank, parties, source) for rank, seed in enumerate(seeds)]


def dry_supply(rank: int, parties: int, ledger: Ledger) -> Supply:
    """Items whose corrections are zeros, for forecasts."""
    return Supply(
        bytes(SEED_BYTES),
        rank,
        parties,
        lambda label, kind, parameters: bytes(dealing.correction_bytes(kind, parameters)),
        ledger,
    )


# --- A dealer that is online ---------------------------------------------------------------------

_CONTEXT = 16  # items that are foreseen at once, and in which that agrees with earlier ones
_LOW = 8  # items ahead below which more are foreseen
_REMEMBERED = 2_000  # items among which that is looked for
_LARGEST_AHEAD = 1 << 25  # bytes of corrections that are foreseen at once


class LiveSupply(Supply):
    """Items from a dealer that answers while the parties compute, and works ahead.

    What a program takes repeats itself. So the last party asks not only for what it needs now, but also
    for what followed when the same items were taken before: the more of them, the farther. What was
    foreseen and is not taken waits until it is.

    Args:
        channel: of this party, with a connection to the dealer.

    Raises:
        PeerError: if the dealer has gone.
    """

    def __init__(self, channel: Channel) -> None:
        seed = bytes(channel.receive(DEALER, SEED_BYTES))
        super().__init__(seed, channel.rank, channel.parties, self._received, channel.ledger)
        self._channel, self._asked = channel, Labels()
        self._taken = deque[str](maxlen=_REMEMBERED)
        self._ahead = deque[str]()
        self._due = deque[str]()  # labels of what the dealer will send next
        self._arrived = dict[str, bytearray]()

    def take(self, kind: str, **parameters: Any) -> Any:
        """This party's part of the next item."""
        if self.rank == self.parties - 1:  # it asks for all
            self._ask(described(kind, parameters))
        return super().take(kind, **parameters)

    def foresee(self, items: Items) -> None:
        """Learn what the program takes next; it may take other items."""
        self._ahead.extend(described(*item) for item in items)

    def finish(self) -> None:
        """Tell the dealer that this party has what it needs; without it, the dealer fails."""
        while self._due:
            self._receive()
        self._channel.send(DEALER, b"")

    def _ask(self, label: str) -> None:
        """Ask for an item and those that are foreseen, as far as they were not asked for."""
        if self._ahead and self._ahead[0] == label:
            self._ahead.popleft()
        else:
            self._ahead.clear()
        self._taken.append(label)
        if len(self._ahead) < _LOW:
            self._ahead += continuation([*self._taken, *self._ahead])
        needed, request, total = Counter(), [], 0
        for early, each in enumerate((label, *islice(self._ahead, _CONTEXT))):
            kind, parameters = json.loads(each)
            total += dealing.correction_bytes(kind, parameters)
            if early and (kind in dealing.COMMON or total > _LARGEST_AHEAD):
                break
            needed[each] += 1
            if self._asked[each] < self._labels[each] + needed[each]:
                self._due.append(self._asked.next(kind, parameters))
                request.append([kind, parameters])
        if request:
            content = {"op": self._channel.path(), "items": request}
            self._channel.send(DEALER, json.dumps(content).encode())

    def _received(self, label: str, kind: str, parameters: dict[str, Any]) -> bytearray:
        while self._due and label not in self._arrived:
            self._receive()
        if label in self._arrived:
            return self._arrived.pop(label)
        return self._channel.receive(DEALER, None)

    def _receive(self) -> None:
        self._arrived[self._due.popleft()] = self._channel.receive(DEALER, None)


def continuation(items: Sequence[str]) -> list[str]:
    """What followed the last items where they stood before: at most as many as agree there.

    Of several places that with most items in common counts, then the latest.
    """
    best, common = 0, 0
    for place in range(len(items) - 2, -1, -1):
        length = 0
        while length < min(_CONTEXT, place + 1) and items[place - length] == items[-1 - length]:
            length += 1
        if length > common:
            best, common = place, length
    return list(items[best + 1 : best + 1 + common])


def serve(channel: Channel) -> tuple[int, int]:
    """Deal for one session: a seed to every party, then corrections, until all say that they are done.

    Args:
        channel: of the dealer.

    Returns:
        The number of items and the bytes of corrections.

    Raises:
        PeerError: if a party goes without a word, or is silent.
        InputError: if an item is not one that can be dealt.
    """
    parties, labels, sent = channel.parties, Labels(), 0
    seeds = [os.urandom(SEED_BYTES) for _ in range(parties)]
    for rank, seed in enumerate(seeds):
        channel.send(rank, seed)
    message = bytearray(b'{"op": "start", "items": []}')
    while message:
        try:
            request = parsed(message)
            with channel.scope(str(request["op"])[:200]):
                for kind, parameters in request["items"]:
                    corrections = dealing.deal(
                        kind, parameters, seeds, labels.next(kind, parameters)
                    )
                    sent += len(corrections)
                    for receiver in range(parties):
                        if needs_corrections(kind, receiver, parties):
                            channel.post(receiver, corrections)
                message = channel.receive(parties - 1, None)
        except dealing.NOT_AN_ITEM as error:
            raise InputError(
                "not a request for preprocessing items",
                code="invalid-value",
                found=repr(message)[:80],
            ) from error
    for rank in range(parties - 1):
        channel.receive(rank, 0)
    return labels.total(), sent


def total_correction_bytes(items: Items, rank: int, parties: int) -> int:
    """Bytes of corrections that a party needs for a run."""
    return sum(
        dealing.correction_bytes(kind, parameters)
        for kind, parameters in items
        if needs_corrections(kind, rank, parties)
    )
