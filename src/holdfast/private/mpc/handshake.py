"""How parties find each other, and what all of them must agree on before they compute.

A party listens for the higher ranks and connects to the lower ones. After TLS, both sides send what they
run (`Agreement`): parties with different scripts, settings or sessions end here, before any secret moves.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holdfast.config import Duration, read_config
from holdfast.errors import InputError
from holdfast.private.mpc.certificates import certificate_bytes, tls_context, validity_problem
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.transport import DEALER, PeerError

PROTOCOL = "holdfast-mpc/3"
Mode = Literal["dealer", "replicated3"]
Comparison = Literal["tree", "dcf"]
_LARGEST_HELLO = 1 << 20
_HANDSHAKE_S = 5.0  # for TLS, whose messages are short
_HANDSHAKES = 64  # connections that have not said anything yet


@dataclass(frozen=True)
class Member:
    """One process of a session, as the others know it."""

    address: str
    """HOST:PORT."""
    certificate: str
    """File, relative to the configuration."""


@dataclass(frozen=True)
class Session:
    """The content of ``parties.toml``, the same at every party but for `key`."""

    session: str
    """Name of the session; parties of different sessions refuse each other."""
    party: list[Member]
    """The parties by rank."""
    dealer: Member | None = None
    """The dealer; none in mode ``replicated3`` or with stores."""
    key: str | None = None
    """Private key of this party; by default the certificate's path with the suffix ``.key``."""
    mode: Mode = "dealer"
    """A trusted dealer, or three parties with an honest majority."""
    fraction_bits: int = 16
    """Bits after the binary point."""
    comparison: Comparison = "tree"
    """Comparison protocol."""
    timeout: Duration = field(default=Duration(60.0))
    """Longest wait for a connection or a message."""
    folder: Path = Path()
    """Where the relative paths begin; not in the file."""

    @property
    def protocol(self) -> dict[str, Any]:
        """The settings of `Party`."""
        names = ("mode", "fraction_bits", "comparison")
        return {name: getattr(self, name) for name in names}

    @property
    def ranks(self) -> list[int]:
        """All members."""
        return [*range(len(self.party)), *([DEALER] if self.dealer else [])]

    def member(self, rank: int) -> Member:
        """A party, or the dealer."""
        found = self.dealer if rank == DEALER else self.party[rank]
        assert found is not None
        return found

    def certificate(self, rank: int) -> Path:
        """File of a member's certificate."""
        return self.folder / self.member(rank).certificate

    def key_path(self, rank: int) -> Path:
        """File of this member's private key."""
        return self.folder / self.key if self.key else self.certificate(rank).with_suffix(".key")


def read_session(path: Path) -> Session:
    """Read ``parties.toml``.

    Raises:
        InputError: if the file does not describe a session.
    """
    session = read_config(path, Session, "the session")
    parties = len(session.party)
    if parties != 3 if session.mode == "replicated3" else parties < 2:
        expected = "3 for replicated3" if session.mode == "replicated3" else "2 or more"
        where = {"path": path, "place": "party"}
        raise invalid("number of parties", parties, expected, "out-of-range", **where)
    session = dataclasses.replace(session, folder=path.parent)
    seen: dict[bytes, int] = {}
    for rank in session.ranks:
        place = "dealer" if rank == DEALER else f"party[{rank}]"
        split_address(session.member(rank).address, path, f"{place}.address")
        other = seen.setdefault(certificate_bytes(session.certificate(rank)), rank)
        if other != rank:
            raise InputError(
                "two members have the same certificate",
                code="duplicate",
                path=path,
                place=f"{place}.certificate",
                found=session.member(rank).certificate,
                remedy="every member makes its own with `holdfast private certs`",
            )
    return session


def split_address(text: str, path: Path | None = None, place: str | None = None) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``.

    Raises:
        InputError: if it is not an address.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise invalid("address", text, "HOST:PORT", path=path, place=place)
    return host.strip("[]"), int(port)


# --- What all must agree on ----------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """What must be the same at every party."""

    session: str
    parties: int
    script: str
    """SHA-256 of the script."""
    settings: dict[str, Any]
    """Mode, fraction bits, comparison protocol."""
    modules: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the modules that the script imports, but for installed packages."""
    store: str = ""
    """Identity of the preprocessing store; empty with a live dealer."""
    protocol: str = PROTOCOL

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """The first field in which another party differs, in words; None if there is none."""
        for name, own in dataclasses.asdict(self).items():
            theirs = other.get(name)
            if theirs != own:
                if name == "modules" and isinstance(theirs, dict):
                    files = (each for each in {*own, *theirs} if own.get(each) != theirs.get(each))
                    return f"module {min(files)} is another one there"
                return f"{name} is {theirs!r} there and {own!r} here"
        return None


def parsed(text: bytes | bytearray) -> dict[str, Any]:
    """A JSON object of another member.

    Raises:
        ValueError: if it is something else.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")  # noqa: TRY004
    return content


# --- Connections ---------------------------------------------------------------------------------


class Meeting:
    """Connects one member of a session to the others.

    Args:
        session: the addresses and certificates.
        rank: of this member; `DEALER` for the dealer.
        listener: a bound socket, where the launcher has made one; by default the member's port is bound.
    """

    def __init__(self, session: Session, rank: int, listener: socket.socket | None = None) -> None:
        self.session, self.rank = session, rank
        self._deadline = time.monotonic() + session.timeout
        self._certificate, self._key = session.certificate(rank), session.key_path(rank)
        for member in session.ranks:
            if problem := validity_problem(session.certificate(member)):
                raise self._error(member, problem, "certificate")
        if listener is None:
            host, port = split_address(session.member(rank).address)
            try:
                listener = socket.create_server((host, port))
            except OSError as error:
                raise InputError(
                    "cannot listen at this address",
                    code="network",
                    place=session.member(rank).address,
                    found=error.strerror,
                    expected="an address of this machine whose port is free",
                ) from error
        self._listener = listener

    def connect(self, peer: int) -> ssl.SSLSocket:
        """Connect to a member that listens, and wait until it does.

        Raises:
            PeerError: if it does not answer in time, or its certificate is not the pinned one.
        """
        trusted = self.session.certificate(peer)
        context = tls_context(self._certificate, self._key, [trusted], server=False)
        pinned = certificate_bytes(trusted)
        address = split_address(self.session.member(peer).address)
        last = "no answer"
        while (left := self._deadline - time.monotonic()) > 0:
            try:
                raw = socket.create_connection(address, timeout=left)
            except OSError as error:
                last = error.strerror or str(error)
                time.sleep(min(0.05, left))
                continue
            try:
                link = context.wrap_socket(raw)
            except ssl.SSLError as error:
                raw.close()
                raise self._error(peer, f"TLS failed: {_reason(error)}", "certificate") from error
            except OSError as error:  # it ended while we connected
                raw.close()
                last = error.strerror or str(error)
                continue
            link.settimeout(self.session.timeout)
            if link.getpeercert(binary_form=True) == pinned:
                return link
            link.close()
            raise self._error(peer, "not the pinned certificate", "certificate")
        raise self._error(peer, f"cannot connect: {last}", "peer-timeout")

    def accept_all(self, expected: set[int]) -> dict[int, ssl.SSLSocket]:
        """Wait for the connections of some members, then stop listening; strangers are turned away.

        Every connection has a thread for its TLS handshake, so that one that says nothing stops nobody.

        Raises:
            PeerError: if one does not arrive in time; it names the last connection that was refused.
        """
        links: dict[int, ssl.SSLSocket] = {}
        if not expected:
            self._listener.close()
            return links
        arrivals: queue.SimpleQueue[ssl.SSLSocket | str] = queue.SimpleQueue()
        files = [self.session.certificate(peer) for peer in expected]
        context = tls_context(self._certificate, self._key, files, server=True)
        pinned = {certificate_bytes(self.session.certificate(peer)): peer for peer in expected}
        threading.Thread(target=self._listen, args=(context, arrivals), daemon=True).start()
        refused = ""
        try:
            while waiting := expected - set(links):
                try:
                    arrival = arrivals.get(timeout=max(0.0, self._deadline - time.monotonic()))
                except queue.Empty:
                    problem = f"did not connect in time{refused}"
                    raise self._error(min(waiting), problem, "peer-timeout") from None
                if isinstance(arrival, str):
                    refused = arrival
                    continue
                peer = pinned.get(arrival.getpeercert(binary_form=True) or b"")
                if peer in waiting:
                    arrival.settimeout(self.session.timeout)
                    links[peer] = arrival
                else:
                    arrival.close()
        except BaseException:
            for link in links.values():
                link.close()
            raise
        finally:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
            self._listener.close()
        return links

    def _listen(self, context: ssl.SSLContext, arrivals: queue.SimpleQueue[Any]) -> None:
        """Accept connections until the listener is closed; of too many that say nothing the oldest goes."""
        limit = min(_HANDSHAKE_S, self.session.timeout)
        silent: deque[socket.socket] = deque()
        self._listener.settimeout(None)
        with suppress(OSError):
            while True:
                raw, address = self._listener.accept()
                raw.settimeout(limit)
                silent.append(raw)
                if len(silent) > _HANDSHAKES:
                    silent.popleft().close()
                arguments = (context, raw, address[0], arrivals)
                threading.Thread(target=_shake_hands, args=arguments, daemon=True).start()

    def _error(self, peer: int, problem: str, code: str) -> PeerError:
        return PeerError(problem, code=code, peer=peer, op="connect", round=0)


def _shake_hands(
    context: ssl.SSLContext, raw: socket.socket, host: str, arrivals: queue.SimpleQueue[Any]
) -> None:
    try:
        arrivals.put(context.wrap_socket(raw, server_side=True))
    except (OSError, EOFError, ValueError) as error:
        raw.close()
        arrivals.put(f"; a connection from {host} was refused: {_reason(error)}")


def meet(
    meeting: Meeting, agreement: Agreement, facts: Mapping[str, Any]
) -> tuple[dict[int, socket.socket], dict[int, dict[str, Any]]]:
    """Connect a party to all others and compare what they run.

    Args:
        meeting: of this party.
        agreement: what must be the same everywhere.
        facts: what each party tells the others besides, such as its position in the store.

    Returns:
        The connections and the facts, by rank.

    Raises:
        PeerError: if a party does not come, or differs.
    """
    rank = meeting.rank
    links: dict[int, socket.socket] = {}
    learned = {rank: dict(facts)}
    try:
        for peer in range(rank):
            links[peer] = meeting.connect(peer)
        links |= meeting.accept_all(set(range(rank + 1, len(meeting.session.party))))
        for peer, link in sorted(links.items()):
            learned[peer] = compare(link, peer, agreement, {**facts, "rank": rank})
    except BaseException:
        for link in links.values():
            link.close()
        raise
    return links, learned


def compare(
    link: socket.socket, peer: int, agreement: Agreement, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Exchange agreements with one party; its facts.

    Raises:
        PeerError: if it differs, or hangs up.
    """

    def error(problem: str, code: str) -> PeerError:
        return PeerError(problem, code=code, peer=peer, op="handshake", round=0)

    try:
        hello = {"agreement": dataclasses.asdict(agreement), "facts": dict(facts)}
        link.sendall(json.dumps(hello).encode() + b"\n")
        with link.makefile("rb", buffering=0) as lines:  # a buffer would take what follows
            other = parsed(lines.readline(_LARGEST_HELLO))
        theirs, found = (dict(other.get(name) or ()) for name in ("agreement", "facts"))
    except ssl.SSLError as failure:
        raise error(f"TLS failed: {_reason(failure)}", "certificate") from failure
    except TimeoutError as failure:
        raise error("silent", "peer-timeout") from failure
    except (OSError, ValueError, TypeError) as failure:
        raise error("closed the connection or sent something else", "peer-lost") from failure
    difference = agreement.difference(theirs)
    if difference is None and found.get("rank") == peer:
        return found
    raise error(
        f"runs something else: {difference or 'another rank'}\n"
        "  remedy: start every party with the same script, settings and session",
        "handshake",
    )


def _reason(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(text).lower().replace("_", " ") or type(error).__name__
