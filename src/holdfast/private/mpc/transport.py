"""Messages between parties: frames over sockets, counted, timed out, and shaped on request.

A channel belongs to one party and has one connection to each peer. Everything runs in the caller's thread:
while a party sends, it also reads, so two parties that send large messages to each other never block.

A frame is a header (`_HEADER`) and the payload. Each header carries the sender's round and clock. A
receiver sets its own round to at least the sender's plus one, so `Channel.round` is the length of the
longest chain of messages that had to follow each other, whatever the pattern of sends.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.private.mpc.accounting import Ledger

# payload length, sequence number, round of the sender, checksum of the operation, clock of the sender
_HEADER = struct.Struct("<QIIId")
HEADER_BYTES = _HEADER.size
TIMEOUT_S = 60.0
_FAREWELL_S = 1.0
_ABORT = 0xFFFFFFFF  # sequence number of the frame by which a party says why it stops
LARGEST = 1 << 36
"""Bytes of a message."""
LARGEST_REQUEST = 1 << 20
"""Bytes of a message to a dealer."""
DEALER = -1
"""Rank of the dealer in messages."""
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_Header = tuple[int, int, int, int, float]
Payload = Any
"""Bytes, or a C-contiguous array."""


class PeerError(HoldfastError):
    """A party failed, or sent what this one did not expect.

    Args:
        problem: one sentence.
        code: ``peer-lost``, ``peer-timeout``, ``peer-aborted``, ``desync`` or ``handshake``.
        peer: rank of the party.
        op: operation that ran here, with its module.
        round: round that this party had reached.
    """

    def __init__(self, problem: str, *, code: str, peer: int, op: str, round: int) -> None:
        self.code, self.peer, self.op, self.round = code, peer, op, round
        super().__init__(f"{named(peer)}: {problem}\n  operation: {op}\n  round: {round}")


def named(rank: int) -> str:
    """A member of a session, in words."""
    return "dealer" if rank == DEALER else f"party {rank}"


# --- Clocks and shaping --------------------------------------------------------------------------


class Clock:
    """The machine's monotonic clock, which all processes of one machine share."""

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    def wait_until(self, moment: float) -> None:
        """Sleep until a moment has passed."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


@dataclass(frozen=True)
class Network:
    """A network to imitate between processes of one machine."""

    delay_s: float = 0.0
    """One-way delay of each message: half of the round-trip time."""
    bits_per_s: float = float("inf")
    """Bandwidth of each direction of each connection."""

    def transfer_s(self, size: int) -> float:
        """Seconds that a message of some bytes occupies a connection."""
        return 8 * size / self.bits_per_s


# --- One connection ------------------------------------------------------------------------------


class _Link:
    """One connection to one peer: frames out, frames in, never blocking."""

    def __init__(self, peer: int, connection: socket.socket, largest: int) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer, self.socket, self._largest = peer, connection, largest
        self.sent = self.received = 0  # sequence numbers of the next frames
        self.free_at = 0.0  # when the shaped connection has carried all frames so far
        self.frames: deque[tuple[_Header, bytearray]] = deque()
        self.out: deque[memoryview] = deque()
        self.closed = False
        self._header: _Header | None = None
        self._part = bytearray(HEADER_BYTES)
        self._have = 0

    def move(self) -> None:
        """Read everything that has arrived, write as much as the connection takes."""
        try:
            self._read()
            self._write()
        except (OSError, EOFError):
            self.closed = True
            self.out.clear()

    def _write(self) -> None:
        with suppress(*_AGAIN):
            while self.out:
                written = self.socket.send(self.out[0])
                self.out[0] = self.out[0][written:]
                if not self.out[0]:
                    self.out.popleft()

    def _read(self) -> None:
        with suppress(*_AGAIN):
            while True:
                while self._have < len(self._part):
                    count = self.socket.recv_into(memoryview(self._part)[self._have :])
                    if count == 0:
                        raise EOFError
                    self._have += count
                if self._header is None:
                    self._header = _HEADER.unpack(self._part)
                    if self._header[0] > self._largest:
                        raise EOFError
                    self._part = bytearray(self._header[0])
                else:
                    self.frames.append((self._header, self._part))
                    self._header, self._part = None, bytearray(HEADER_BYTES)
                self._have = 0


# --- Channels ------------------------------------------------------------------------------------


class Channel:
    """What one party sends to and receives from the others, and from a dealer who is online.

    Messages to and from a dealer count neither as rounds nor as bytes sent: they depend on no input.

    Args:
        rank: of this party, from 0; or `DEALER`.
        connections: peer -> connected socket (TLS or not), for every other rank.
        timeout_s: longest wait for one message.
        network: to imitate; only between processes of one machine, whose clocks are the same.
    """

    def __init__(
        self,
        rank: int,
        connections: Mapping[int, socket.socket],
        *,
        timeout_s: float = TIMEOUT_S,
        network: Network | None = None,
    ) -> None:
        self.rank, self.parties = rank, len(connections) + (rank != DEALER)
        self.round = 0
        self.imagined = False
        """Whether there are no peers: what is opened then means nothing."""
        self.public_hash = 0
        """CRC of all public facts so far; messages carry it, so that parties that differ notice."""
        self._noted = False
        self.ledger = Ledger()
        self.clock = Clock()
        self._network, self._timeout_s = network, timeout_s
        self._links: dict[int, _Link] = {}
        for peer, connection in sorted(connections.items()):
            self.attach(peer, connection)

    def attach(self, peer: int, connection: socket.socket) -> None:
        """Add a connection: that to a dealer comes after those to the parties."""
        largest = LARGEST_REQUEST if self.rank == DEALER else LARGEST
        self._links[peer] = _Link(peer, connection, largest)

    def scope(self, op: str, module: str | None = None) -> AbstractContextManager[None]:
        """Charge the messages inside to an operation; see `Ledger.scope`."""
        return self.ledger.scope(op, module)

    def path(self, op: str = "") -> str:
        """Where the computation is, for messages: ``features.1 relu/less``."""
        return f"{self.ledger.module} {op or self.ledger.path}".strip()

    def note(self, *facts: Any) -> None:
        """Take public facts, bytes or what has a `repr`, into the hash that messages carry."""
        for fact in facts:
            data = fact if isinstance(fact, bytes) else repr(fact).encode()
            self.public_hash = zlib.crc32(data, self.public_hash)
        self._noted = True

    def confirm(self) -> None:
        """Have all parties seen the same public facts? One round, where they were noted since the last."""
        if self._noted:
            self.exchange(b"")

    def exchange(self, payload: Payload, group: Sequence[int] | None = None) -> list[Any]:
        """Send one payload to all peers and receive theirs, of the same size: one round.

        Args:
            payload: to send.
            group: ranks that take part, this one included; by default all.

        Returns:
            The payloads of the group in rank order, this party's own included.
        """
        self._noted = self._noted and group is not None
        members = range(self.parties) if group is None else sorted(group)
        links = [self.post(peer, payload) for peer in members if peer != self.rank]
        size = len(_octets(payload))
        everyone: list[Any] = [
            payload if peer == self.rank else self._take(self._links[peer], size)
            for peer in members
        ]
        self._settle(*links)
        return everyone

    def send(self, to: int, payload: Payload) -> None:
        """Send a payload to one peer."""
        link = self.post(to, payload)
        self._settle(link)
        if link.closed:
            raise self._lost(link)

    def post(self, to: int, payload: Payload) -> _Link:
        """Send a payload to one peer, as soon as the connection takes it, while this party goes on."""
        link, data = self._links[to], _octets(payload)
        header = _HEADER.pack(
            len(data), link.sent, self.round, self._checksum(link), self.clock.now()
        )
        link.sent += 1
        link.out.append(memoryview(header))
        if len(data):
            link.out.append(data)
        if not self._offline(link):
            self.ledger.row.bytes_sent += HEADER_BYTES + len(data)
        link.move()
        return link

    def receive(self, frm: int, nbytes: int | None) -> bytearray:
        """Receive the next payload of one peer, which has `nbytes` bytes; None: any number."""
        return self._take(self._links[frm], nbytes)

    def abort(self, reason: str) -> None:
        """Tell the peers why this party stops, as far as they still listen, and close."""
        text = reason.encode()
        frame = memoryview(_HEADER.pack(len(text), _ABORT, self.round, 0, self.clock.now()) + text)
        deadline = time.monotonic() + _FAREWELL_S
        for link in self._links.values():
            link.out.append(frame)
            link.move()
            with suppress(OSError):
                link.socket.shutdown(socket.SHUT_WR)
        for link in self._links.values():
            # A connection that is closed before everything was read drops what was sent.
            with suppress(OSError):
                link.socket.settimeout(max(0.01, deadline - time.monotonic()))
                while link.socket.recv(1 << 16):
                    pass
        self.close()

    def close(self) -> None:
        """Close the connections; what was sent has left."""
        for link in self._links.values():
            with suppress(OSError):
                link.socket.close()

    def _take(self, link: _Link, nbytes: int | None) -> bytearray:
        start = time.monotonic()
        while not link.frames:
            if link.closed:
                raise self._lost(link)
            self._pump(link, start)
        (length, sequence, round_, checksum, sent_at), data = link.frames.popleft()
        if sequence == _ABORT:
            raise self._aborted(link, data)
        nbytes = length if nbytes is None else nbytes
        if (sequence, length, checksum) != (link.received, nbytes, self._checksum(link)):
            raise self._error(
                link,
                f"sent message {sequence} of {length} bytes, expected message {link.received} of "
                f"{nbytes} bytes for the same operation and the same public values; the scripts have "
                "taken different paths, or public operands differ",
                "desync",
            )
        link.received += 1
        if self._network is not None:
            size = HEADER_BYTES + nbytes
            link.free_at = max(sent_at, link.free_at) + self._network.transfer_s(size)
            self.clock.wait_until(link.free_at + self._network.delay_s)
        if self._offline(link):
            self.round = max(self.round, round_)
            return data
        row = self.ledger.row
        row.rounds += max(0, round_ + 1 - self.round)
        self.round = max(self.round, round_ + 1)
        row.waiting_s += time.monotonic() - start
        return data

    def _settle(self, *links: _Link) -> None:
        """Return when all frames have left."""
        start = time.monotonic()
        for link in links:
            while link.out:
                self._pump(link, start)

    def _pump(self, wanted: _Link, start: float) -> None:
        """Move what can be moved on every connection; wait if that is nothing."""
        poll = select.poll()
        open_links = [link for link in self._links.values() if not link.closed]
        for link in open_links:
            poll.register(link.socket, select.POLLIN | (select.POLLOUT if link.out else 0))
        left = self._timeout_s - (time.monotonic() - start)
        if left <= 0 or not poll.poll(1000 * left):
            raise self._error(wanted, f"silent for {self._timeout_s:g} s", "peer-timeout")
        for link in open_links:
            link.move()
            # A dealer deals for all or nobody, whomever it waits for.
            if self.rank == DEALER and link.frames and link.frames[-1][0][1] == _ABORT:
                raise self._lost(link)

    def _lost(self, link: _Link) -> PeerError:
        """The error for a peer that has closed the connection: its own words, if it left any."""
        for (_, sequence, *_rest), data in link.frames:
            if sequence == _ABORT:
                return self._aborted(link, data)
        return self._error(link, "closed the connection", "peer-lost")

    def _aborted(self, link: _Link, reason: bytearray) -> PeerError:
        return self._error(link, f"stopped: {reason.decode(errors='replace')}", "peer-aborted")

    def _offline(self, link: _Link) -> bool:
        return DEALER in (self.rank, link.peer)

    def _checksum(self, link: _Link) -> int:
        return 0 if self._offline(link) else zlib.crc32(self.path().encode(), self.public_hash)

    def _error(self, link: _Link, problem: str, code: str) -> PeerError:
        return PeerError(problem, code=code, peer=link.peer, op=self.path(), round=self.round)


@dataclass(frozen=True)
class TraceEvent:
    """A message that a party of a dry run sends or receives.

    Args:
        row: module and operation, as in the ledger.
        peer: rank of the other party.
        size: bytes of header and payload.
        received: whether this party receives it.
        computing_s: computation of this party since the event before.
    """

    row: tuple[str, str]
    peer: int
    size: int
    received: bool
    computing_s: float


class EchoChannel(Channel):
    """A channel without peers, for forecasts: it records messages, and answers with what was sent.

    The costs of a protocol do not depend on the values, so each party can run alone.

    Args:
        rank: of the party that runs.
        parties: number of parties.
    """

    def __init__(self, rank: int, parties: int) -> None:
        super().__init__(rank, {})
        self.parties, self.imagined = parties, True
        self.trace: list[TraceEvent] = []
        self._computing_since = time.perf_counter()

    def exchange(self, payload: Payload, group: Sequence[int] | None = None) -> list[Any]:
        """The payload, as if every party had sent it."""
        self._noted = self._noted and group is not None
        members = range(self.parties) if group is None else sorted(group)
        for received in (False, True):
            for peer in members:
                if peer != self.rank:
                    self._record(peer, len(_octets(payload)), received)
        return [payload] * len(members)

    def send(self, to: int, payload: Payload) -> None:
        """Record a message."""
        self._record(to, len(_octets(payload)), received=False)

    def receive(self, frm: int, nbytes: int | None) -> bytearray:
        """Zeros."""
        self._record(frm, nbytes or 0, received=True)
        return bytearray(nbytes or 0)

    def _record(self, peer: int, nbytes: int, received: bool) -> None:
        computing_s = time.perf_counter() - self._computing_since
        row, size = self.ledger.row, HEADER_BYTES + nbytes
        self.trace.append(TraceEvent((row.module, row.op), peer, size, received, computing_s))
        if not received:
            row.bytes_sent += size
        self._computing_since = time.perf_counter()


def _octets(payload: Payload) -> memoryview:
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else memoryview(b"")


def local_channels(parties: int, **settings: Any) -> Sequence[Channel]:
    """Channels of parties that are threads of this process, over socket pairs; for tests."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(parties)]
    for low in range(parties):
        for high in range(low + 1, parties):
            ends[low][high], ends[high][low] = socket.socketpair()
    return [Channel(rank, connections, **settings) for rank, connections in enumerate(ends)]
