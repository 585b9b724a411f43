"""What was decided about nodes: an append-only journal with who, when and why.

A node that is to be pulled lives through its journal: proposed, approved, drained, repaired, returned,
judged; or rejected, undone, failed. `journal.jsonl` in the store has a line for each step, on the disk
before the next one is taken. Nothing is ever changed or removed: a wrong step is followed by another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from holdfast.errors import InputError
from holdfast.files import Journal, Lock
from holdfast.fleet.moments import iso

FILE = "journal.jsonl"
LOCK = ".journal.lock"

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
AS_BAD = (
    "as bad as it was"  # How the reason of a judgement begins after which it may be pulled again
)


@dataclass(frozen=True)
class Entry:
    """One step in the life of a node."""

    time_s: float  # Epoch seconds
    id: str  # Of the life, 8 hexadecimal digits
    event: str  # One of `AFTER`
    cluster: str  # "" where the store has one cluster that nothing names
    node: str
    who: str
    why: str = ""
    command: str = ""  # What was run


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
    def is_spared(self) -> bool:
        """Whether the node is out, or back from a repair and not found bad since: old failures are over."""
        as_bad = self.steps[-1].why.startswith(AS_BAD)
        return self.state in (*OUT, "returned") or (self.state == "judged" and not as_bad)

    def when(self, event: str) -> float | None:
        """When an event last happened (epoch seconds); None: never."""
        return next((step.time_s for step in reversed(self.steps) if step.event == event), None)


def entries(store: str | Path) -> list[Entry]:
    """The journal of a store, earliest first; without the half line that a killed writer left.

    Raises:
        InputError: if a line is not of a journal (``damaged``, with its number).
    """
    path = Path(store) / FILE
    if not path.exists():
        return []
    known = {field.name for field in fields(Entry)}
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            entry = Entry(**{key: value for key, value in row.items() if key in known})
            _ = iso(entry.time_s), AFTER[entry.event]
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            raise InputError(
                "a line of the journal cannot be read",
                code="damaged",
                path=path,
                place=f"line {number}",
                found=str(error)[:80],
                expected="a JSON object with time_s, id, event, cluster, node and who",
                remedy="restore the file from a backup; holdfast itself only appends to it",
            ) from None
        found.append(entry)
    return found


def lives(steps: Iterable[Entry]) -> dict[str, Life]:
    """The lives by their ids, in the order in which they began."""
    found: dict[str, Life] = {}
    for step in steps:
        before = found[step.id].steps if step.id in found else ()
        found[step.id] = Life(step.id, step.cluster, step.node, (*before, step))
    return found


def spared(store: str | Path) -> dict[tuple[str, str], Life]:
    """(Cluster, node) -> its last life, for the nodes that the journal says to leave alone."""
    last = {(life.cluster, life.node): life for life in lives(entries(store)).values()}
    return {node: life for node, life in last.items() if life.is_spared}


@contextmanager
def writing(store: str | Path) -> Iterator[Writer]:
    """Hold the journal for writing: others wait, so what was read inside still holds when it is written.

    Raises:
        InputError: if the journal cannot be read or written.
    """
    folder = Path(store)
    try:
        lock = Lock(folder / LOCK, wait=True)
    except OSError as error:
        raise InputError(
            "the journal cannot be written",
            code="unwritable",
            path=folder / FILE,
            found=error.strerror,
            remedy="run this as the owner of the store",
        ) from error
    with lock, Journal(folder / FILE) as journal:
        yield Writer(journal, entries(folder))


@dataclass
class Writer:
    """The journal while nobody else writes it."""

    journal: Journal
    entries: list[Entry]

    def add(self, entry: Entry) -> None:
        """Append a step; it is on the disk when this returns.

        Raises:
            InputError: if the step may not follow the last one of its life (``conflict``).
        """
        life = lives(self.entries).get(entry.id)
        state = life.state if life else ""
        if state not in AFTER[entry.event]:
            raise InputError(
                f"{entry.node} cannot become {entry.event}",
                code="conflict",
                place=entry.id,
                found=state or "nothing decided yet",
                expected=" or ".join(each or "nothing decided" for each in AFTER[entry.event]),
            )
        line = json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False)
        self.journal.append(f"{line}\n".encode())
        self.entries.append(entry)
