"""The live sources of a store: a thread and a spool each, and how each does.

`Sources` reads a TOML file, asks every source in its time, and never fails for one of them: what is wrong
is a named state (`holdfast.fleet.live.asking`) with its age, on every page of the console and in
``/metrics``. The spools are beside the store, in ``STORE.live/NAME``; a `Follower` reads them.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread

from holdfast.config import Duration, invalid_value, read_config
from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.files import Lock, LockHeldError
from holdfast.fleet.ingest_following import Follower
from holdfast.fleet.ingestion import IngestResult, in_store
from holdfast.fleet.live.asking import WHOLE, Source, Trouble
from holdfast.fleet.live.kubernetes import Kubernetes
from holdfast.fleet.live.prometheus import Prometheus, PrometheusSource
from holdfast.fleet.live.slurm import Slurm, SlurmSource
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.store import Store, existing_store, store_error
from holdfast.numbers import duration
from holdfast.remote import bare

GRACE_S = 3.0  # that a poll under way has to end
LONGEST_PAUSE_S = 600.0  # between two polls of a source in trouble, unless `every` is longer
_NAME = re.compile(r"[\w-][\w.-]*").fullmatch
_NAMES = "letters, digits, _, - and ., as it names a folder"
_TOKENS = "token_env or token_file"
TWO_DAYS = Duration(2 * 86400)
POLLERS: dict[str, Callable[..., Slurm | Prometheus | Kubernetes]] = {
    "slurm": Slurm,
    "prometheus": Prometheus,
    "kubernetes": Kubernetes,
}


@dataclass(frozen=True)
class Settings:
    """What the file of sources says."""

    slurm: tuple[SlurmSource, ...] = ()
    prometheus: tuple[PrometheusSource, ...] = ()
    kubernetes: tuple[Source, ...] = ()
    keep: Duration = TWO_DAYS  # How long files of a spool stay that the store has read

    @property
    def every(self) -> tuple[Source, ...]:
        """All sources."""
        return (*self.slurm, *self.prometheus, *self.kubernetes)


@dataclass(frozen=True)
class SourceState:
    """How a source does, as of its last poll."""

    name: str
    kind: str  # "slurm", "prometheus", "kubernetes"
    state: str  # "new" before the first poll, else as in `asking`
    since_s: float  # When it came into this state (epoch seconds)
    last_success_s: float | None  # When its data were last complete; None: never
    text: str = ""

    @property
    def trouble(self) -> bool:
        """Whether a reader must know: what the store has of it may be old or incomplete."""
        return self.state not in ("ok", "new")

    def age_s(self, now_s: float) -> float | None:
        """How old its data are."""
        return None if self.last_success_s is None else max(0.0, now_s - self.last_success_s)

    def sentence(self, now_s: float) -> str:
        """Name, state and age."""
        age = self.age_s(now_s)
        text = f"{self.name} ({self.kind}): {self.state}"
        text += f", {self.text}" if self.text else ""
        return f"{text}; {'no data yet' if age is None else f'read {duration(age)} ago'}."


@dataclass(eq=False)
class _Polled:
    poll: Callable[[Spool], str]
    spool: Spool
    every_s: float
    state: SourceState
    failures: int = 0


@dataclass(eq=False)
class Sources:
    """The sources of one store.

    Args:
        store: the folder of the store.
        settings: of the file of sources.
        clock: epoch seconds now.
        first_s: pause before a question is asked again.

    Raises:
        StoreError: if another process feeds this store (``in-use``).
        InputError: if two sources have one name, a name cannot be that of a folder, or a URL has a secret.
        MissingExtraError: if the extra ``console`` is not installed.
    """

    store: Path
    settings: Settings
    clock: Callable[[], float] = time.time
    first_s: float = 1.0
    _halt: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = self.store.absolute()  # a store names the files of its spools from anywhere
        self.folder = store.with_name(store.name + ".live")
        _check(self.settings)
        if find_spec("requests") is None:
            raise MissingExtraError("requests", "console")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = Lock(self.folder)
        except LockHeldError as error:
            text = f"{self.folder}: another process feeds this store\n  remedy: end it"
            raise store_error("in-use", text) from error
        self._polled: dict[str, _Polled] = {}
        for kind, poller in POLLERS.items():
            for each in getattr(self.settings, kind):
                spool = Spool(self.folder / each.name, self.clock)
                known = spool.cursor.get("success_s")
                state = SourceState(each.name, kind, "new", self.clock(), known)
                poll = poller(each, self._halt, self.first_s).poll
                self._polled[each.name] = _Polled(poll, spool, each.every, state)

    @property
    def clusters(self) -> Mapping[Path, str]:
        """The cluster of what each spool holds, where it states none."""
        every = self.settings.every
        return {self.folder / each.name: each.cluster for each in every if each.cluster}

    def states(self) -> list[SourceState]:
        """How each source does."""
        return [each.state for each in self._polled.values()]

    def start(self) -> None:
        """Poll every source in a thread of its own."""
        self._halt.clear()
        for name, each in self._polled.items():
            self._threads.append(Thread(target=self._run, args=(each,), name=name, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Stop; what came is in the spools, also of a source whose answer is not waited for."""
        self._halt.set()
        for thread in self._threads:
            thread.join(GRACE_S)
        self._threads.clear()

    def close(self) -> None:
        """Let another process feed the store."""
        for each in self._polled.values():
            each.spool.close()
        self._lock.close()

    def poll(self) -> None:
        """Ask every source once, now."""
        for each in self._polled.values():
            self._poll(each)

    def prune(self) -> None:
        """Remove files of the spools that are old and in the store."""
        for each in self._polled.values():
            with suppress(HoldfastError, OSError):
                each.spool.prune(self.store, self.settings.keep)

    def _run(self, each: _Polled) -> None:
        while not self._halt.is_set():
            self._poll(each)
            with suppress(HoldfastError, OSError):
                each.spool.prune(self.store, self.settings.keep)
            pause_s = each.every_s * 2 ** min(each.failures, 16)
            self._halt.wait(min(pause_s, max(each.every_s, LONGEST_PAUSE_S)))

    def _poll(self, each: _Polled) -> None:
        try:
            state, text = "ok", each.poll(each.spool)
        except Trouble as trouble:
            state, text = trouble.state, str(trouble)
        except (HoldfastError, OSError) as error:  # the disk, not the source
            state, text = "unwritable", " ".join(str(error).split())
        except (
            Exception
        ) as error:  # an answer of another shape, or a fault of ours: the trace tells
            traceback.print_exc(file=sys.stderr)
            state, text = "bad-answer", f"{type(error).__name__}: {error}"
        now_s = self.clock()
        complete = state in WHOLE
        each.failures = 0 if complete else each.failures + 1
        before = each.state
        since_s = before.since_s if before.state == state else now_s
        success_s = now_s if complete else before.last_success_s
        each.state = replace(
            before, state=state, text=text, since_s=since_s, last_success_s=success_s
        )
        with suppress(HoldfastError, OSError):
            if complete:
                each.spool.commit(success_s=now_s)


def read_sources(path: Path) -> Settings:
    """The settings of a file of sources.

    Raises:
        InputError: if it cannot be read, or says something impossible.
    """
    settings = read_config(path, Settings, "the live sources")
    if not settings.every:
        expected = "a table [[slurm]], [[prometheus]] or [[kubernetes]]"
        raise invalid_value("no live source", path, "slurm", "none", expected)
    return settings


def ingest_live(
    path: Path, store: Path, *, timezone: str | None = None, cluster: str = ""
) -> IngestResult:
    """Ask every source of a file once, and read what came into a store.

    Args:
        path: the file of sources.
        store: the folder of the store; made if missing.
        timezone: as of `ingest`.
        cluster: as of `ingest`, where neither a source nor its answers name one.

    Raises:
        StoreError: as `ingest`, or if another process feeds the store.
        InputError: if the file says something impossible, or what came cannot be read.
    """
    settings = read_sources(path)
    existing_store(store)
    sources = Sources(store, settings)
    try:
        sources.poll()
        follower = Follower([sources.folder], store, timezone, cluster, sources.clusters)
        problems = dict(follower.look().problems)
        sources.prune()
    finally:
        sources.close()
    now_s = time.time()
    troubles = [each.sentence(now_s) for each in sources.states() if each.trouble]
    troubles += [f"{Path(where).name}: {text}." for where, text in problems.items()]
    return replace(in_store(Store.open(store)), live_troubles=troubles)


def _check(settings: Settings) -> None:
    names = Counter(each.name for each in settings.every)
    for each in settings.every:
        for problem, wrong, key, found, expected in (
            ("a secret in a URL", bare(each.url) != each.url, "url", bare(each.url), _TOKENS),
            ("two live sources of one name", names[each.name] > 1, "name", each.name, "one each"),
            ("invalid name of a live source", not _NAME(each.name), "name", each.name, _NAMES),
        ):
            if wrong:
                raise invalid_value(problem, None, key, found, expected)
