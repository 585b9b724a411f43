"""What the console shows: the store as of its last commit, analysed once and shared by all requests.

A commit replaces `store.json`; each commit is a *generation*. The first request after a commit starts
the analysis of the new generation in the background and waits for it a little; until it is there,
pages show the generation before. So `--watch` shows new data as soon as they are understood, and a
large log never leaves a reader without a page.

    snapshots = Snapshots(store, assumptions, prepare=lambda snapshot: snapshot.cache(...))
    text = snapshots.answer(lambda snapshot: snapshot.cache("findings", findings))

An engine's connection serves one thread at a time: everything that reads the log runs under the lock
of its generation, inside `Snapshot.cache` or `Snapshot.read`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from threading import Lock, RLock, Thread
from typing import Any, TypeVar, cast

import duckdb

from holdfast.errors import StoreError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.live import journal
from holdfast.fleet.log import open_log
from holdfast.fleet.store import MANIFEST, Store, store_error

_Value = TypeVar("_Value")

PATIENCE_S = 3.0  # A request waits this long for a new generation before it shows the one before


class Snapshot:
    """One generation of the store and what was computed of it.

    Attributes:
        generation: identity of the commit; changes with every one.
    """

    def __init__(self, store: Path, assumptions: Assumptions, generation: str) -> None:
        self.generation = generation
        self._store = store
        self._lock = RLock()
        self._results: dict[str, Any] = {}
        self._analysis = Analysis(open_log(store, assumptions=assumptions))

    def cache(self, name: str, build: Callable[[Analysis], _Value]) -> _Value:
        """A result by name, computed on first use; one that is there is given without waiting.

        Args:
            name: of the result, unique in the console.
            build: computes it; its value is shared by threads and must not be changed.

        Raises:
            StoreError: if a file of the store vanished or cannot be read.
        """
        if name not in self._results:
            with self._lock:
                if name not in self._results:
                    self._results[name] = self.read(build)
        return cast("_Value", self._results[name])

    def read(self, build: Callable[[Analysis], _Value]) -> _Value:
        """A result that is not kept, such as the attempts of one job.

        Raises:
            StoreError: as `cache`.
        """
        with self._lock:
            try:
                return build(self._analysis)
            except (duckdb.IOException, duckdb.InvalidInputException, OSError) as error:
                raise store_error(
                    "damaged",
                    f"{self._store}: a file of the store cannot be read\n"
                    f"  found: {str(error).partition(chr(10))[0]}\n"
                    "  remedy: ingest the logs again into a new store",
                ) from error


@dataclass(eq=False)
class Snapshots:
    """The current generation of a store.

    Args:
        store: the folder.
        assumptions: what to assume where the log is silent.
        prepare: computes what pages need most; a new generation is shown when it is done.
        patience_s: how long a request waits for that if there is a generation to show instead.
    """

    store: Path
    assumptions: Assumptions
    _: KW_ONLY
    prepare: Callable[[Snapshot], object] = lambda snapshot: None
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._shown: Snapshot | None = None
        self._coming: Future[Snapshot] | None = None
        self._analysed = ""  # the generation of `_coming`

    @property
    def generation(self) -> str:
        """Identity of the last commit.

        Raises:
            StoreError: if there is no store at the path (any more).
        """
        try:
            manifest = (self.store / MANIFEST).stat()
        except OSError:
            Store.open(self.store)  # says what is missing
            raise
        decided = self.store / journal.FILE  # only grows
        steps = decided.stat().st_size if decided.exists() else 0
        return f"{manifest.st_mtime_ns:x}-{manifest.st_size:x}-{manifest.st_ino:x}-{steps:x}"

    def current(self) -> Snapshot:
        """The last generation, or the one before while the last is being analysed.

        Raises:
            StoreError: if the store vanished or is damaged; asked again, it is read again.
        """
        generation = self.generation
        with self._lock:
            shown = self._shown
            coming = self._coming
            if shown is not None and shown.generation == generation:
                return shown
            failed = coming is not None and coming.done() and coming.exception() is not None
            if coming is None or self._analysed != generation or failed:
                coming, self._analysed = Future(), generation
                self._coming = coming
                Thread(target=self._analyse, args=(coming, generation), daemon=True).start()
        done, _ = wait([coming], None if shown is None else self.patience_s)
        return coming.result() if done or shown is None else shown

    def answer(self, build: Callable[[Snapshot], _Value]) -> _Value:
        """What `build` makes of the current snapshot; once more if a commit replaced its files.

        Raises:
            StoreError: as `current`.
        """
        snapshot = self.current()
        try:
            return build(snapshot)
        except StoreError:
            if self.generation == snapshot.generation:
                raise
        return build(self.current())

    def _analyse(self, coming: Future[Snapshot], generation: str) -> None:
        try:
            snapshot = Snapshot(self.store, self.assumptions, generation)
            self.prepare(snapshot)
        except Exception as error:  # the requests that wait for it raise it
            coming.set_exception(error)
            return
        with self._lock:
            if self._coming is coming:
                self._shown = snapshot
        coming.set_result(snapshot)
