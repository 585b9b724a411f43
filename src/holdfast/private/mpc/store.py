"""Preprocessing stores: what a dealer made ahead of time, one file per party, used up run by run.

A store holds the items of a number of runs of one program. The unit that is used up is the run: a party
claims the next one, durably, before it uses any item of it. Whenever a process is killed, the rest of its
run is lost and nothing is used twice.

A file never changes after it was made. What was claimed is noted in two places, in ``STORE.used`` beside it
and in the user's state folder, so that a store restored from a copy is noticed on the same machine. Between
machines the parties start at the largest position that any of them has reached.

Layout of the file: magic, length of the header, header (JSON: identity, rank, seed, items), then the
corrections that this party needs, run after run.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.files import Lock, atomic_file, read_whole, write_whole
from holdfast.private.mpc import dealing
from holdfast.private.mpc.accounting import Ledger
from holdfast.private.mpc.dealing import described
from holdfast.private.mpc.handshake import parsed
from holdfast.private.mpc.randomness import SEED_BYTES
from holdfast.private.mpc.supply import (
    Items,
    Labels,
    Supply,
    SupplyError,
    needs_corrections,
    run_seed,
    total_correction_bytes,
)

_MAGIC = b"holdfast-store-2\n"
_LENGTH = struct.Struct("<Q")


def store_path(folder: Path, rank: int) -> Path:
    """File of one party among the stores of a folder."""
    return folder / f"party{rank}.store"


def state_folder() -> Path:
    """Where this user's claims are noted besides."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "holdfast" / "stores"


def write_stores(folder: Path, items: Items, parties: int, runs: int) -> list[Path]:
    """Deal the items of a number of runs into one store per party.

    Args:
        folder: made if there is none.
        items: kind and parameters of the items of one run, in order.
        parties: number of parties.
        runs: how often the program can run on these stores.

    Raises:
        InputError: if there is a store already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [store_path(folder, rank) for rank in range(parties)]
    for path in paths:
        if path.exists():
            raise InputError(
                "the store exists already",
                code="output-exists",
                path=path,
                remedy="name another folder",
            )
    identity = os.urandom(16).hex()
    seeds = [os.urandom(SEED_BYTES) for _ in range(parties)]
    for rank, path in enumerate(paths):
        header = json.dumps(
            {
                "identity": identity,
                "rank": rank,
                "parties": parties,
                "runs": runs,
                "seed": seeds[rank].hex(),
                "items": list(items),
            }
        ).encode()
        with atomic_file(path) as file:
            os.fchmod(file.fileno(), 0o600)  # the seed is a secret of this party
            file.write(_MAGIC + _LENGTH.pack(len(header)) + header)
            for run in range(runs):
                of_run = [run_seed(seed, run) for seed in seeds]
                labels = Labels()
                for kind, parameters in items:
                    label = labels.next(kind, parameters)
                    if needs_corrections(kind, rank, parties):
                        file.write(dealing.deal(kind, parameters, of_run, label))
        _note(_beside(path), 0)
    return paths


def read_items(path: Path) -> Items:
    """The items of one run, as ``--items`` writes them.

    Raises:
        InputError: if the file does not hold items.
    """
    try:
        listed = parsed(read_whole(path, "preprocessing items"))["items"]
        items = [(kind, parameters) for kind, parameters in listed]
        total_correction_bytes(items, 0, 1)  # whether they are items
    except dealing.NOT_AN_ITEM as error:
        raise InputError(
            "not a list of preprocessing items",
            code="invalid-syntax",
            path=path,
            expected="what `holdfast private plan --items FILE` writes",
        ) from error
    return items


def write_items(path: Path, items: Items, parties: int) -> None:
    """Write the items of one run for `read_items`."""
    write_whole(path, json.dumps({"parties": parties, "items": list(items)}).encode() + b"\n")


@dataclass(frozen=True)
class Header:
    """What a store says of itself."""

    identity: str
    rank: int
    parties: int
    runs: int
    seed: bytes
    items: Items
    start: int
    """Offset of the corrections."""

    @property
    def run_bytes(self) -> int:
        """Bytes of the corrections of a run."""
        return total_correction_bytes(self.items, self.rank, self.parties)


class Store:
    """One party's store, held by one process at a time.

    Args:
        path: the file.
        state: where claims are noted besides; by default `state_folder`.

    Raises:
        InputError: if the file is damaged, or another process uses it.
        SupplyError: ``store-replayed`` if runs were used that the store does not know of.
    """

    def __init__(self, path: Path, state: Path | None = None) -> None:
        self.path = path
        self.header = _read_header(path)
        """Which dealing this is, for which party of how many."""
        self._lock = Lock(_beside(path).with_suffix(".lock"))
        folder = state or state_folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / f"{self.header.identity}.{self.header.rank}"
        used, known = _noted(_beside(path)), _noted(self._state) or 0
        if used is None or known > used:
            self._lock.close()
            raise SupplyError(
                f"{path}: {known} runs of this store were used, its record says {used}; "
                "it was restored from a copy",
                code="store-replayed",
            )
        self.position = used
        """The next run."""
        self._file = path.open("rb")

    def claim(self, run: int) -> None:
        """Use up a run, and those before it; when this returns, the claim is on the disk.

        Args:
            run: the largest position of all parties.

        Raises:
            SupplyError: ``store-exhausted`` after the last run, ``store-replayed`` for a run that was used.
        """
        if run < self.position:
            raise SupplyError(f"{self.path}: run {run} was used before", code="store-replayed")
        if run >= self.header.runs:
            raise SupplyError(
                f"{self.path}: all {self.header.runs} runs are used", code="store-exhausted"
            )
        # This order: a crash between the two leaves the copy in the state folder behind, never ahead.
        _note(_beside(self.path), run + 1)
        _note(self._state, run + 1)
        self.position = run + 1

    def supply(self, run: int, ledger: Ledger) -> Supply:
        """The items of a claimed run."""
        header = self.header
        self._file.seek(header.start + run * header.run_bytes)

        def source(label: str, kind: str, parameters: dict[str, Any]) -> bytes:
            return self._file.read(dealing.correction_bytes(kind, parameters))

        return _StoredSupply(
            header.items,
            run_seed(header.seed, run),
            header.rank,
            header.parties,
            source,
            ledger,
        )

    def close(self) -> None:
        """Let other processes use it."""
        self._file.close()
        self._lock.close()


class _StoredSupply(Supply):
    """Takes only what was dealt, in that order."""

    def __init__(self, stored: Items, *args: Any) -> None:
        super().__init__(*args)
        self._stored = stored

    def take(self, kind: str, **parameters: Any) -> Any:
        index = len(self.items)
        if index >= len(self._stored):
            problem = f"the store has {index} items per run, and the program needs more"
            code = "store-exhausted"
        elif described(kind, parameters) != described(*self._stored[index]):
            other, of = self._stored[index]
            problem = (
                f"item {index} of the store is {other} {of}, the program needs {kind} {parameters}; "
                "it was made for another program"
            )
            code = "store-mismatch"
        else:
            return super().take(kind, **parameters)
        raise SupplyError(problem, code=code, op=self.ledger.path, round=self.ledger.total().rounds)


def _read_header(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise _damaged(path)
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            content = parsed(file.read(min(length, 1 << 32)))
            content["seed"] = bytes.fromhex(content["seed"])
            bytes.fromhex(content["identity"])  # it becomes the name of a file
            if content["rank"] not in range(content["parties"]) or content["runs"] < 0:
                raise _damaged(path)
            content["items"] = [(kind, parameters) for kind, parameters in content["items"]]
            header = Header(**content, start=file.tell())
        size = header.runs * header.run_bytes
    except OSError as error:
        raise InputError(
            "the store cannot be read",
            code="not-found" if isinstance(error, FileNotFoundError) else "unreadable",
            path=path,
            found=error.strerror,
        ) from error
    except (*dealing.NOT_AN_ITEM, struct.error) as error:
        raise _damaged(path) from error
    if path.stat().st_size != header.start + size:
        raise _damaged(path)
    return header


def _damaged(path: Path) -> InputError:
    return InputError(
        "the store is damaged, or not a store",
        code="damaged",
        path=path,
        expected="a file that `holdfast private dealer --output` has written",
    )


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.used")


def _note(path: Path, position: int) -> None:
    write_whole(path, f"{position} {zlib.crc32(str(position).encode()):08x}\n".encode())


def _noted(path: Path) -> int | None:
    try:
        position, checksum = path.read_text().split()
        if int(checksum, 16) == zlib.crc32(position.encode()):
            return int(position)
    except (OSError, ValueError):
        pass
    return None
