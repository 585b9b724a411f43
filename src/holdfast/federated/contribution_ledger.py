"""Who contributed what: an append-only ledger of deposits, updates, refunds and forfeits.

After arXiv 2209.05017, without a blockchain: each line is JSON, with the SHA-256 of the line before it and
the Ed25519 signature of whom it binds. Every client puts down a deposit before it trains. The server
refunds it where the update was used, and takes it where it was not. Each round ends with a seal.

    server: open (its key), join (a client and its key), refund, take, seal
    client: deposit, update (the SHA-256 of what it uploaded, and its number of examples)

The digest of an entry is that key or SHA-256; the kind and client of an entry say whose key signs it.

``LEDGER.head`` has number and hash of the last line: without it a ledger that was cut would look whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from holdfast.answer import Answer, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.federated.updates import Record, Update, digest
from holdfast.files import Journal, read_whole, write_whole
from holdfast.numbers import counted

FIRST = "0" * 64
"""What the first line has for the hash of the line before it."""
DEPOSIT = 1.0
_SERVER = ("open", "join", "refund", "take", "seal")
_CLIENT = ("deposit", "update")
_KEYS = {"previous", "round", "client", "kind", "amount", "digest", "signature"}


def simulated_key(seed: int, name: str) -> Ed25519PrivateKey:
    """The key of a simulated party: anybody who knows the seed can make it."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest())


class Ledger:
    """A ledger that is written.

    Lines that are there already are not written again but compared, so that a resumed run ends with the
    same file.

    Args:
        path: of the ledger.
        server: key of the server.
        clients: name -> key.
        after: round from which on lines are added; 0: a new run.

    Raises:
        InputError: ``conflict`` if another run, or another process, writes it.
    """

    def __init__(
        self,
        path: Path,
        server: Ed25519PrivateKey,
        clients: Mapping[str, Ed25519PrivateKey],
        after: int = 0,
    ) -> None:
        self._journal = Journal(path)
        self._server, self._clients = server, clients
        self._lines = self._journal.lines()
        self._next = 0
        for place, line in enumerate(self._lines if after else ()):
            entry = json.loads(line)
            if (entry["kind"], entry["round"]) == ("seal", after):
                self._next = place + 1
        if not self._next:
            joins = [("join", name, 0.0, public(key)) for name, key in clients.items()]
            self._write(0, [("open", "", 0.0, public(server)), *joins])

    def record(self, number: int, clients: Sequence[str], updates: Sequence[Update]) -> None:
        """Write a round.

        Args:
            number: of the round.
            clients: names of the clients that were asked.
            updates: those that were used.

        Raises:
            InputError: ``conflict``.
            OSError: if the disk is full or fails.
        """
        used = {update.client: update for update in updates}
        rows = [("deposit", name, DEPOSIT, "") for name in clients]
        rows += [("update", u.client, float(u.examples), digest(u.weights)) for u in updates]
        rows += [("refund" if name in used else "take", name, DEPOSIT, "") for name in clients]
        self._write(number, [*rows, ("seal", "", 0.0, "")])

    def _write(self, number: int, rows: Sequence[tuple[str, str, float, str]]) -> None:
        new = []
        for kind, client, amount, content in rows:
            key = self._clients[client] if kind in _CLIENT else self._server
            before = self._lines[self._next - 1] if self._next else b""
            entry: Record = {
                "previous": hashlib.sha256(before).hexdigest() if before else FIRST,
                "round": number,
                "client": client,
                "kind": kind,
                "amount": amount,
                "digest": content,
            }
            line = canonical({**entry, "signature": key.sign(canonical(entry)).hex()})
            if self._next == len(self._lines):
                self._lines.append(line)
                new.append(line + b"\n")
            elif self._lines[self._next] != line:
                raise InputError(
                    f"entry {self._next} of the ledger is of another run",
                    code="conflict",
                    path=self._journal.path,
                    remedy="name another output folder",
                )
            self._next += 1
        if new:
            self._journal.append(b"".join(new))
        head = {"number": self._next - 1, "hash": hashlib.sha256(self._lines[-1]).hexdigest()}
        write_whole(head_path(self._journal.path), canonical(head))

    def close(self) -> None:
        """Let others write."""
        self._journal.close()


def canonical(entry: Mapping[str, Any]) -> bytes:
    """The bytes that are signed and hashed."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def public(key: Ed25519PrivateKey) -> str:
    """The public key, hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def head_path(path: Path) -> Path:
    """Where the number and hash of the last line are."""
    return path.with_name(f"{path.name}.head")


# --- Audit ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audit(Answer):
    """Whether a ledger is whole, and the balance of every client."""

    entries: int
    """Lines before the first bad one, or all."""
    bad_entry: int | None
    """Number of the first bad entry; None if there is none."""
    reason: str
    """What is wrong with it; empty if nothing is."""
    server: str
    """Public key that the server's entries are signed with."""
    key_given: bool
    """Whether the caller named that key."""
    clients: list[Record] = field(default_factory=list)
    """Rows ``{"client", "updates", "examples", "refunded", "taken", "held"}``."""

    title = "Contribution ledger"

    @property
    def exit_code(self) -> int:
        """1 if there is a bad entry."""
        return int(self.bad_entry is not None)

    def unknowns(self) -> Sequence[Unknown]:
        """Whether the key is the server's."""
        text = f"The ledger itself names the server's key, {self.server}."
        remedy = "Compare it, or pass it as --key: a forger would sign everything with another."
        return [] if self.key_given else [Unknown(text, remedy)]

    def sections(self) -> Sequence[Section]:
        """The verdict and the balances."""
        entries = counted(self.entries, "entry", "entries")
        sentence = f"OK: {entries}, signed and in order."
        if self.bad_entry is not None:
            sentence = (
                f"Entry {self.bad_entry} is bad: {self.reason}. {entries} before it are good."
            )
        tables = [Table(pa.Table.from_pylist(self.clients))] if self.clients else []
        return [Section("ledger", "Is the ledger whole?", sentence, tables=tables)]


def verify_ledger(path: str | Path, key: str | None = None, head: str | None = None) -> Audit:
    """Check a ledger: the chain, signatures, who may sign what, balances, and that no line is missing.

    Args:
        path: of the ledger, with its ``.head`` beside it.
        key: public key of the server, hexadecimal; None: the one that the first entry names.
        head: hash of a line that has to be in the ledger, as it was published.

    Raises:
        InputError: ``not-found``, ``unreadable``, or ``invalid-value`` of `key` or `head`.
    """
    path, key, head = Path(path), _hexadecimal(key, "key"), _hexadecimal(head, "head")
    content = read_whole(path, "a contribution ledger")
    lines = content.split(b"\n")
    book = _Book(key)
    hashes: list[str] = [FIRST]
    reason = ""
    for line in lines[:-1]:
        reason = book.check(line, hashes[-1])
        if reason:
            break
        hashes.append(hashlib.sha256(line).hexdigest())
    reason = reason or _missing(path, lines[-1], hashes, book.sealed, head)
    bad = len(hashes) - 1 if reason else None
    return Audit(len(hashes) - 1, bad, reason, book.server or "", key is not None, book.rows())


def _hexadecimal(value: str | None, place: str) -> str | None:
    """A hash or a public key, in lower case."""
    if value is None or re.fullmatch("[0-9a-fA-F]{64}", value):
        return value and value.lower()
    problem, expected = f"invalid {place}", "64 hexadecimal digits"
    raise InputError(
        problem, code="invalid-value", place=place, found=repr(value), expected=expected
    )


def _missing(path: Path, rest: bytes, hashes: Sequence[str], sealed: bool, head: str | None) -> str:
    """Why lines at the end are missing or torn; empty if they are not."""
    if rest:
        return "torn line"
    if not sealed:
        return "missing: the last round has no seal"
    try:
        noted = json.loads(read_whole(head_path(path), "the head of a ledger"))
        number, last = int(noted["number"]), str(noted["hash"])
    except (InputError, ValueError, KeyError, TypeError):
        return f"missing: {head_path(path).name} does not say where the ledger ends"
    if not 0 <= number < len(hashes) - 1 or hashes[number + 1] != last:
        return "missing, or other than the head says: the ledger was cut or replaced"
    if head is not None and head not in hashes[1:]:
        return "missing: no line has the given hash"
    return ""


class _Book:
    """What the lines so far say."""

    def __init__(self, server: str | None) -> None:
        self.server = server
        self.keys: dict[str, str] = {}
        self.held: Counter[str] = Counter()
        self.sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.sealed = False

    def check(self, line: bytes, previous: str) -> str:
        """Why a line is bad; empty if it is good."""
        try:
            entry = json.loads(line)
            known = entry.keys() == _KEYS and isinstance(entry["client"], str)
            if not known or canonical(entry) != line:
                return "not an entry"
            signature = bytes.fromhex(entry.pop("signature"))
        except (ValueError, AttributeError, TypeError, RecursionError):
            return "not an entry"
        kind, client = entry["kind"], entry["client"]
        if entry["previous"] != previous:
            return "does not follow the line before it: edited, removed or out of order"
        if kind not in (*_SERVER, *_CLIENT) or (kind == "open") != (previous == FIRST):
            return f"{kind} is not allowed here"
        if kind == "open":
            self.server = self.server or entry["digest"]
        owner = self.keys.get(client) if kind in _CLIENT else self.server
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(owner or ""))
            key.verify(signature, canonical(entry))
        except (InvalidSignature, ValueError, TypeError):
            return f"{kind} is not signed by {'its client' if kind in _CLIENT else 'the server'}"
        return self._account(kind, client, entry)

    def _account(self, kind: str, client: str, entry: Record) -> str:
        amount = entry["amount"]
        if not isinstance(amount, float) or not 0 <= amount < float("inf"):
            return f"invalid amount {amount}"
        if kind == "join":
            self.keys[client] = entry["digest"]
        elif kind == "deposit":
            self.held[client] += amount  # type: ignore[assignment]
        elif kind in ("refund", "take"):
            if amount > self.held[client]:
                return f"{kind} of {amount} where {client} has a deposit of {self.held[client]}"
            self.held[client] -= amount  # type: ignore[assignment]
        elif kind == "update" and not self.held[client]:
            return f"update of {client}, which has no deposit"
        self.sums[client].update({kind: amount, f"{kind} count": 1})
        self.sealed = kind == "seal"
        return ""

    def rows(self) -> list[Record]:
        """Balance of every client."""
        return [
            {
                "client": client,
                "updates": self.sums[client]["update count"],
                "examples": self.sums[client]["update"],
                "refunded": self.sums[client]["refund"],
                "taken": self.sums[client]["take"],
                "held": self.held[client],
            }
            for client in self.keys
        ]
