"""Logs that grow, read into the store while the console runs.

`Watcher` looks at its files every minute (or as told) and commits what is new; the console shows each
commit as a new generation. No notification of the kernel is used: it does not cross NFS, on which
accounting logs like to live, and a look at files that did not change costs a `stat` each.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from threading import Event, Thread

from holdfast.errors import HoldfastError
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.live.sources import Sources, SourceState
from holdfast.fleet.moments import moment

MOST_PROBLEMS = 3  # That a page names
FIRST_S = 2.0  # Between two looks until every live source has answered


@dataclass(frozen=True)
class WatchStatus:
    """How the watching goes."""

    # When the logs were last looked at (epoch seconds); None: not yet
    last_poll_s: float | None = None
    rows: int = 0  # Rows read since the start
    # A sentence for each file that cannot be read, or for why nothing can
    problems: tuple[str, ...] = ()


class Background:
    """Runs something again and again in a thread of its own; one that is stopped may be started again.

    Args:
        name: of the thread.
        run: what is run; it says in how many seconds to run it again.
    """

    def __init__(self, name: str, run: Callable[[], float]) -> None:
        self._name, self._run = name, run
        self._halt = Event()
        self._thread: Thread | None = None

    def start(self) -> bool:
        """Begin; False if it runs already."""
        if self._thread is not None:
            return False
        self._halt.clear()
        self._thread = Thread(target=self._loop, name=self._name, daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop, and wait until a run that is under way is over."""
        self._halt.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while not self._halt.wait(self._run()):
            pass


@dataclass(eq=False)
class Watcher:
    """Follows logs into a store in a thread of its own.

    Args:
        store: the folder of the store; the first look makes it if it is missing.
        paths: files, and folders whose files are followed (a spool).
        poll_s: time between two looks.
        timezone: zone of times that are written without one; None: the store's, or UTC.
        cluster: name for logs that carry none.
        live: sources that are asked while it runs; their spools are among the paths.
        clock: epoch seconds now.

    A stopped watcher may be started again.
    """

    store: Path
    paths: Sequence[Path]
    _: KW_ONLY
    poll_s: float = 60.0
    timezone: str | None = None
    cluster: str = ""
    live: Sources | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        clusters = {} if self.live is None else self.live.clusters
        self._follower = Follower(self.paths, self.store, self.timezone, self.cluster, clusters)
        self._status = WatchStatus()
        self._background = Background("watch", self._run)

    def start(self) -> None:
        """Begin to look, in the background."""
        if self._background.start() and self.live is not None:
            self.live.start()

    def stop(self) -> None:
        """Stop, and wait until the commit under way is whole."""
        if self.live is not None:
            self.live.stop()
        self._background.stop()

    def status(self) -> WatchStatus:
        """How it goes, as of the last look."""
        return self._status

    def sources(self) -> list[SourceState]:
        """How each live source does."""
        return [] if self.live is None else self.live.states()

    def describe(self) -> str:
        """One sentence: what is watched, when it was last read, any trouble."""
        status = self._status
        names = ", ".join(str(path) for path in self.paths)
        if status.last_poll_s is None:
            return f"Watching {names}; not read yet."
        when = f"{moment(status.last_poll_s):%H:%M:%S} UTC"
        text = f"Watching {names}: last read {when}, {status.rows:,} rows since the start."
        if status.problems:
            more = len(status.problems) - MOST_PROBLEMS
            first = "; ".join(status.problems[:MOST_PROBLEMS])
            text += f" Trouble: {first}{f'; and {more} more' if more > 0 else ''}."
        return text

    def look(self) -> None:
        """Look once, now. Errors of the store or of a file become problems of the status."""
        before = self._status
        try:
            news = self._follower.look()
        except (HoldfastError, OSError) as error:
            text = " ".join(str(error).split())
            self._status = replace(before, last_poll_s=self.clock(), problems=(text,))
            return
        problems = tuple(f"{path}: {text}" for path, text in sorted(news.problems.items()))
        self._status = WatchStatus(self.clock(), before.rows + news.rows, problems)

    def _run(self) -> float:
        try:
            self.look()
        except Exception as error:  # a bug: the console goes on, and says so
            traceback.print_exc(file=sys.stderr)
            text = f"the watching failed: {type(error).__name__}: {error}"
            self._status = replace(self._status, problems=(text,))
        # Until the live sources have answered for the first time there is nothing to read.
        waits = any(source.state == "new" for source in self.sources())
        return min(self.poll_s, FIRST_S) if waits else self.poll_s
