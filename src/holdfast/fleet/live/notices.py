"""Messages about changes, through apprise: one for each change, none twice, none in quiet hours.

What was sent stands in `notices.jsonl` in the store, a line before each message: if the process is killed
between line and message, the message is lost, never doubled. The day's digest says how things stand anyway.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Event, Thread

from holdfast.errors import MissingExtraError
from holdfast.files import Journal
from holdfast.fleet.live.actions import Actions, expected, named
from holdfast.fleet.live.morning import Morning
from holdfast.fleet.live.settings import Notices, secret
from holdfast.fleet.live.sources import SourceState
from holdfast.fleet.log import DAY_S
from holdfast.fleet.moments import minute

FILE = "notices.jsonl"
SENT, FAILED = "sent", "failed"


@dataclass(frozen=True)
class Notice:
    """A change to tell of."""

    key: str  # The same for the same change, whoever sees it and when
    text: str


def notices_of(
    found: Actions, changed: Morning, sources: Iterable[SourceState], now_s: float
) -> list[Notice]:
    """What is proposed, what was decided within the last day, and what broke."""
    due = [
        Notice(f"proposed {each.id}", f"{named(each)} should be pulled: {expected(each)}")
        for each in found.proposals
    ]
    for life in found.lives:
        for step in life.steps:
            if step.event != "proposed" and now_s - step.time_s < DAY_S:
                text = f"{named(life)} is {step.event}, by {step.who}. {step.why}".rstrip()
                due.append(Notice(f"{step.event} {step.id} {step.time_s}", text))
    due += [Notice(f"loop {job}", f"Job {job} fails again and again.") for job in changed.new_loops]
    for row in changed.silent:
        text = f"Silent since {minute(row['last_s'])}: {row['source']}."
        due.append(Notice(f"silent {row['source']} {row['last_s']}", text))
    for each in sources:
        if each.trouble:
            key = f"source {each.name} {each.state} {each.since_s}"
            due.append(Notice(key, each.sentence(now_s)))
    return due


@dataclass(eq=False)
class Informer:
    """Tells of changes while the console runs, in a thread of its own.

    Args:
        run: tells of what is new, once; trouble is printed, and it is run again later.
        every_s: time between two runs.
    """

    run: Callable[[], object]
    every_s: float = 60.0
    _halt: Event = field(default_factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(target=self._loop, name="notices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after a message that is under way."""
        self._halt.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._halt.wait(self.every_s):
            try:
                self.run()
            except Exception as error:  # the console goes on without it
                text = " ".join(str(error).split())
                print(f"notices: {type(error).__name__}: {text}", file=sys.stderr)


def sender(notices: Notices) -> Callable[[str, str], bool]:
    """What sends a title and a text to every address; it says whether all took it.

    Raises:
        InputError: if the variable with the addresses is not set.
        MissingExtraError: if apprise is not installed.
    """
    try:
        import apprise
    except ModuleNotFoundError as error:
        raise MissingExtraError("apprise", "notices") from error
    service = apprise.Apprise()
    for url in secret(notices.urls, "addresses such as mailto://... or slack://...").split():
        if not service.add(url):
            # The address holds a secret: it is not shown.
            print(f"an address in {notices.urls} is none that apprise knows", file=sys.stderr)
    return lambda title, text: bool(service.notify(title=title, body=text))


def is_quiet(notices: Notices, now: datetime) -> bool:
    """Whether nothing is sent at a moment (local time)."""
    if notices.quiet_hours is None:
        return False
    begin, end = notices.quiet_hours
    at = now.time()
    return begin <= at < end if begin <= end else at >= begin or at < end


def tell(
    store: str | Path,
    notices: Notices,
    changes: Iterable[Notice],
    send: Callable[[str, str], bool],
    *,
    now_s: float,
    digest: Callable[[], str] = lambda: "",
) -> list[str]:
    """Send what was not sent yet.

    Args:
        store: the folder of the store.
        notices: quiet hours, digest.
        changes: all that hold now; those that were sent are left out.
        send: sends title and text.
        now_s: epoch seconds.
        digest: the text of the day's message.

    Returns:
        the keys of what was sent.

    Raises:
        InputError: ``conflict`` if another process sends for this store just now.
    """
    now = datetime.fromtimestamp(now_s, notices.zone)
    if is_quiet(notices, now):
        return []
    due = list(changes)
    if notices.digest_at is not None and now.time() >= notices.digest_at:
        due.append(Notice(f"digest {now:%Y-%m-%d}", ""))
    told = []
    with Journal(Path(store) / FILE) as journal:
        state = {}
        for line in journal.lines():
            with suppress(ValueError, KeyError, TypeError):  # a damaged line at worst sends again
                row = json.loads(line)
                state[row["key"]] = row["event"]
        for each in due:
            if state.get(each.key) == SENT:
                continue
            _note(journal, now_s, each.key, SENT)
            state[each.key] = SENT
            text = each.text or digest()
            if send(text.partition("\n")[0][:100], text):
                told.append(each.key)
            else:
                _note(journal, now_s, each.key, FAILED)  # tried again next time
    return told


def _note(journal: Journal, now_s: float, key: str, event: str) -> None:
    line = json.dumps({"time_s": now_s, "key": key, "event": event}, ensure_ascii=False)
    journal.append(f"{line}\n".encode())
