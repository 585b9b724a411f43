"""The journal of a run: one SQLite file to which rows are only added, so that a killed run resumes.

A response is committed before its worker takes the next item: after a kill at any moment, what was
committed stands, and at most one item per worker is sent again. Commits reach the operating system at once
and the disk once a second: a crash of the machine, unlike one of the process, can cost the last second.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.files import Lock, sync
from holdfast.lm.safety.specification import Content, duplicate, shipped

FILE = "journal.sqlite"
_APPLICATION = 0x48465346  # "HFSF" in the file's header
_VERSION = 1
_PAGE = 500  # items read at a time
_SYNC_S = 1.0

RESPONSE = "INSERT OR IGNORE INTO response VALUES (?, ?, ?, ?, ?)"
ANNOTATION = "INSERT OR REPLACE INTO annotation VALUES (?, ?, ?, ?)"
ATTEMPT = "INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
Statement = tuple[str, tuple[Any, ...]]


class Journal:
    """The journal in the folder of a run.

    Args:
        folder: of the run.
        write: hold the lock of the run, so that nobody else writes.

    Raises:
        InputError: if the folder has no journal of a run, or a damaged one.
        LockHeldError: if another process writes it.
    """

    def __init__(self, folder: Path, write: bool = False) -> None:
        self.folder, self.path = folder, folder / FILE
        if not self.path.is_file():
            raise _not_a_run(folder, "no journal", "not-found")
        self._lock = Lock(folder) if write else None
        self._connection = _connected(self.path)
        self._waiting: list[tuple[Sequence[Statement], asyncio.Future[None]]] = []
        self._synced = 0.0
        try:
            header = [self.value(f"PRAGMA {name}") for name in ("application_id", "user_version")]
            begun = self.value("SELECT count(*) FROM sqlite_schema") > 0
            facts = dict(self.rows("SELECT key, value FROM run")) if begun else {}
        except sqlite3.DatabaseError as error:
            self.close()
            raise _not_a_run(folder, str(error), "damaged") from error
        if not begun:  # killed while it was created
            self.close()
            problem, remedy = "the run has not begun", "start it again: holdfast lm safety run"
            raise InputError(problem, code="no-data", path=folder, remedy=remedy)
        if header != [_APPLICATION, _VERSION]:
            self.close()
            raise _not_a_run(folder, "a database of another kind", "unknown-format")
        self.facts: Mapping[str, Any] = {key: json.loads(value) for key, value in facts.items()}
        """What is run: specification, content, system, fingerprint."""

    def close(self) -> None:
        """Close the file; what was committed stands."""
        self._connection.close()
        if self._lock:
            self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Reading ---------------------------------------------------------------------------------

    def rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""
        return iter(self._connection.execute(query, values))

    def row(self, query: str, *values: Any) -> tuple[Any, ...]:
        """The first row of a query."""
        return next(self.rows(query, *values))

    def value(self, query: str, *values: Any) -> Any:
        """The first value of a query."""
        return self.row(query, *values)[0]

    def records(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a query by the names of its columns."""
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def pages(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query that starts with ``item.place``, in its order, read page by page.

        Rows may be added meanwhile. `query` ends with a WHERE clause.
        """
        last = -1
        while page := self._connection.execute(
            f"{query} AND item.place > ? ORDER BY item.place LIMIT {_PAGE}", (last,)
        ).fetchall():
            yield from page
            last = page[-1][0]

    # --- Writing ---------------------------------------------------------------------------------

    def write(self, statements: Iterable[Statement]) -> None:
        """Commit statements together."""
        with self._connection as connection:
            for statement, values in statements:
                connection.execute(statement, tuple(map(_storable, values)))
        self._sync()

    async def commit(self, statements: Sequence[Statement]) -> None:
        """Commit statements, with those that other workers bring in the same turn of the event loop."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        done = loop.create_future()
        self._waiting.append((statements, done))
        await done

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        problem: Exception | None = None
        try:
            self.write(statement for statements, _ in waiting for statement in statements)
        except Exception as error:  # such as a full disk; a future that is never set waits for ever
            problem = _unwritable(self.path, error)
        for _, done in waiting:
            if not done.done():  # else its worker was cancelled
                done.set_exception(problem) if problem else done.set_result(None)

    def _sync(self) -> None:
        if time.monotonic() - self._synced > _SYNC_S:
            with suppress(FileNotFoundError):
                sync(self.path.with_name(f"{FILE}-wal"))
            self._synced = time.monotonic()

    def note(self, kind: str, detail: str = "") -> None:
        """Add an event."""
        self.write([("INSERT INTO event VALUES (?, ?, ?)", (time.time(), kind, detail))])

    def annotator_number(self, name: str, fingerprint: str) -> int:
        """The number of an annotator; judgements that another version of it made are removed."""
        new = "INSERT OR IGNORE INTO annotator VALUES (NULL, ?, ?)"
        self.write([(new, (name, fingerprint))])
        number, before = self.row("SELECT number, fingerprint FROM annotator WHERE name = ?", name)
        if before != fingerprint:
            self.note("annotator changed", name)
            change = "UPDATE annotator SET fingerprint = ? WHERE number = ?"
            remove = "DELETE FROM annotation WHERE annotator = ?"
            self.write([(change, (fingerprint, number)), (remove, (number,))])
        return int(number)


def create(folder: Path, facts: Mapping[str, Any], content: Content) -> None:
    """Make the journal of a run in one transaction: a kill leaves none.

    Args:
        folder: made if there is none.
        facts: what is run.
        content: the items.

    Raises:
        InputError: if the folder has a run, or two items have one id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with Lock(folder), closing(_connected(path)) as connection:
        try:
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise InputError(
                    "the folder already has a run",
                    code="output-exists",
                    path=folder,
                    remedy="resume it (holdfast lm safety resume), or name another folder",
                )
            _fill(connection, facts, content)
        except sqlite3.OperationalError as error:
            raise _unwritable(path, error) from error
        except sqlite3.DatabaseError as error:
            raise _not_a_run(folder, str(error), "damaged") from error


def _fill(connection: sqlite3.Connection, facts: Mapping[str, Any], content: Content) -> None:
    connection.execute("BEGIN")
    for statement in shipped("journal.sql").split(";\n"):
        connection.execute(statement)
    for place, item in enumerate(content.items()):
        try:
            connection.execute("INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?)", (place, *item))
        except sqlite3.IntegrityError:
            connection.rollback()
            raise duplicate(item) from None
    rows = {**facts, "content": content.hash}
    texts = [(key, json.dumps(value)) for key, value in rows.items()]
    connection.executemany("INSERT INTO run VALUES (?, ?)", texts)
    connection.execute("INSERT INTO event VALUES (?, 'created', '')", (time.time(),))
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.commit()


def _storable(value: Any) -> Any:
    """A value that SQLite takes: half a character (a lone surrogate) becomes U+FFFD."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60)
    with suppress(sqlite3.DatabaseError):  # what is not a database is found when it is read
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = normal")
    return connection


def _not_a_run(folder: Path, found: str, code: str) -> InputError:
    return InputError(
        "not the folder of a run",
        code=code,
        path=folder,
        found=found,
        expected=f"a folder with {FILE}, as holdfast lm safety run writes it",
    )


def _unwritable(path: Path, error: Exception) -> InputError:
    return InputError(
        "the journal cannot be written",
        code="unreadable",
        path=path,
        found=str(error),
        remedy="free space on the disk and resume the run",
    )
