"""Messages about changes, through apprise: one for each change, none twice, none in quiet hours.

What was sent stands in `notices.jsonl` in the store, a line before each message: if the process is killed
between line and message, the message is lost, never doubled. The day's digest says how things stand anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from holdfast.errors import MissingExtraError
from holdfast.files import Journal
from holdfast.fleet.live.actions import Actions
from holdfast.fleet.live.journal import append, named, records
from holdfast.fleet.live.morning import Morning
from holdfast.fleet.live.settings import Notices, secret
from holdfast.fleet.live.sources import SourceState
from holdfast.fleet.log import DAY_S
from holdfast.fleet.moments import minute

FILE = "notices.jsonl"
SENT, FAILED = "sent", "failed"


def changes(
    decisions: Actions, news: Morning, sources: Iterable[SourceState], now_s: float
) -> dict[str, str]:
    """What is proposed, what was decided within the last day, and what broke: key -> message.

    The key of a change is the same whoever sees it and when.
    """
    texts = {
        f"proposed {each.id}": f"{named(each)} should be pulled: {each.gain}"
        for each in decisions.proposals
    }
    for step in (step for life in decisions.lives for step in life.steps):
        if step.event != "proposed" and now_s - step.time_s < DAY_S:
            text = f"{named(step)} is {step.event}, by {step.who}. {step.why}"
            texts[f"{step.event} {step.id} {step.time_s}"] = text.rstrip()
    texts |= {f"loop {job}": f"Job {job} fails again and again." for job in news.new_loops}
    for row in news.silent:
        text = f"Silent since {minute(row['last_s'])}: {row['source']}."
        texts[f"silent {row['source']} {row['last_s']}"] = text
    for each in sources:
        if each.trouble:
            texts[f"source {each.name} {each.state} {each.since_s}"] = each.sentence(now_s)
    return texts


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


def send_new(
    store: str | Path,
    notices: Notices,
    texts: Mapping[str, str],
    send: Callable[[str, str], bool],
    *,
    now_s: float,
    digest: Callable[[], str] = lambda: "",
) -> list[str]:
    """Send what was not sent yet.

    Args:
        store: the folder of the store.
        notices: quiet hours, digest.
        texts: all `changes` that hold now; those that were sent are left out.
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
    due = dict(texts)
    if notices.digest_at is not None and now.time() >= notices.digest_at:
        due[f"digest {now:%Y-%m-%d}"] = ""
    sent = []
    with Journal(Path(store) / FILE) as file:
        last = {row["key"]: row["event"] for row in records(file.path, dict[str, object])}
        for key, text in due.items():
            if last.get(key) == SENT:
                continue
            append(file, {"time_s": now_s, "key": key, "event": SENT})
            text = text or digest()
            if send(text.partition("\n")[0][:100], text):
                sent.append(key)
            else:  # tried again next time
                append(file, {"time_s": now_s, "key": key, "event": FAILED})
    return sent
