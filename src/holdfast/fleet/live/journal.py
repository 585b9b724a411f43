"""What was decided about nodes: an append-only journal with who, when and why.

A node that is to be pulled lives through its journal: proposed, approved, drained, repaired, returned,
judged; or rejected, undone, failed. `journal.jsonl` in the store has a line for each step, on the disk
before the next one is taken. Nothing is ever changed or removed: a wrong step is followed by another.

The store keeps its forecasts and what it sent in the same way: a file of JSON lines, read by `records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import DecodeError, Meta, json

from holdfast.errors import InputError
from holdfast.files import Journal

FILE = "journal.jsonl"

# Event -> the events after which it may come; "" is the beginning
AFTER = {
    "proposed": ("",),
    "approved": ("", "proposed", "failed", "rejected", "approved"),
    "rejected": ("proposed", "failed"),
    "failed": ("approved",),
    "drained": ("approved",),
    "repaired": ("drained",),
    "undone": ("approved", "drained", "repaired"),
    "returned": ("drained", "repaired"),
    "judged": ("returned", "judged"),
}
# Events after which a node is out of service by our hand, or may be: an approval whose command never ended
OUT = ("approved", "drained", "repaired")
# Events that end a life; the node may be proposed again
OVER = ("undone", "returned", "judged")
# How the reason of a judgement begins after which the node may be pulled again
AS_BAD = "as bad as it was"
YEAR_9999_S = 253_402_300_800  # No date is later

_Record = TypeVar("_Record")


def records(path: Path, kind: type[_Record]) -> list[_Record]:
    """The lines of a file of JSON objects; without the half line that a killed writer left.

    Raises:
        InputError: if a line is not such an object (``damaged``, with its number).
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    objects = []
    for number, line in enumerate(lines, 1):
        try:
            objects.append(json.decode(line, type=kind))
        except DecodeError as error:
            raise InputError(
                "invalid line in a file that holdfast writes",
                code="damaged",
                path=path,
                place=f"line {number}",
                found=str(error),
                remedy="restore the file from a backup; holdfast itself only appends to it",
            ) from None
    return objects


def append(file: Journal, record: Any) -> None:
    """Add a line to such a file; it is on the disk when this returns."""
    file.append(json.encode(record) + b"\n")


@dataclass(frozen=True)
class Entry:
    """One step in the life of a node."""

    time_s: Annotated[float, Meta(ge=0, lt=YEAR_9999_S)]
    id: str  # Of the life, 8 hexadecimal digits
    event: Annotated[str, Meta(pattern=f"^({'|'.join(AFTER)})$")]
    cluster: str  # "" where the store has one cluster that nothing names
    node: str
    who: str
    why: str = ""
    command: str = ""  # What was run


def named(each: Any) -> str:
    """The node of an entry, a life or a proposal, with its cluster."""
    return f"{each.cluster}:{each.node}" if each.cluster else each.node


@dataclass(frozen=True)
class Life:
    """The steps of one node from its proposal on."""

    id: str
    cluster: str
    node: str
    steps: tuple[Entry, ...]  # Earliest first

    @property
    def state(self) -> str:
        """The last event."""
        return self.steps[-1].event

    @property
    def evidence(self) -> str:
        """Why the node was proposed."""
        return self.steps[0].why


def entries(store: str | Path) -> list[Entry]:
    """The journal of a store, earliest first.

    Raises:
        InputError: as `records`.
    """
    return records(Path(store) / FILE, Entry)


def lives(steps: Iterable[Entry]) -> dict[str, Life]:
    """The lives by their ids, in the order in which they began."""
    by_id: dict[str, list[Entry]] = {}
    for step in steps:
        by_id.setdefault(step.id, []).append(step)
    return {id_: Life(id_, own[0].cluster, own[0].node, tuple(own)) for id_, own in by_id.items()}


def spared(store: str | Path) -> set[str]:
    """The nodes that are out, or back from a repair and not found bad since: old failures are over."""
    last = {named(step): step for step in entries(store)}
    return {
        name
        for name, step in last.items()
        if step.event in (*OUT, "returned")
        or (step.event == "judged" and not step.why.startswith(AS_BAD))
    }


@dataclass
class Writer:
    """The journal while nobody else writes it."""

    journal: Journal
    entries: list[Entry] = field(default_factory=list)

    def check(self, life_id: str, event: str) -> None:
        """Refuse an event that may not follow the last one of a life.

        Raises:
            InputError: ``conflict``.
        """
        state = next((step.event for step in reversed(self.entries) if step.id == life_id), "")
        if state not in AFTER[event]:
            raise InputError(
                f"the node cannot become {event}",
                code="conflict",
                place=life_id,
                found=state or "nothing decided yet",
                expected=" or ".join(filter(None, AFTER[event])),
            )

    def add(self, entry: Entry) -> None:
        """Append a step.

        Raises:
            InputError: as `check`.
        """
        self.check(entry.id, entry.event)
        append(self.journal, entry)
        self.entries.append(entry)


@contextmanager
def writing(store: str | Path) -> Iterator[Writer]:
    """Hold the journal for writing: others wait, so what was read inside still holds when it is written.

    Raises:
        InputError: if the journal cannot be read or written.
    """
    with Journal(Path(store) / FILE, wait=True) as journal:
        yield Writer(journal, entries(store))
