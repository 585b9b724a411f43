"""The alarms of a run in a small file, so that a watcher that is started again acts on none twice."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, json

from holdfast.errors import InputError
from holdfast.files import Lock, LockHeldError, atomic_file
from holdfast.runs.watching.alarms import KINDS, Alarm, Ledger

FILE_NAME = "watch.json"
VERSION = 1


class _Saved(Struct):
    """The file."""

    version: int
    run_id: str
    counts: dict[str, int]
    open: list[Alarm]


def load(path: Path, run_id: str) -> Ledger:
    """The alarms that an earlier watcher of this run left; none without a file.

    Raises:
        InputError: the file is something else, or of another run.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ledger()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, str(error)) from None
    try:
        saved = json.decode(text, type=_Saved)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, str(error)) from None
    if saved.version != VERSION:
        raise _unusable(path, f"version {saved.version}")
    if saved.run_id != run_id:
        raise _unusable(path, f"the alarms of run {saved.run_id}", f"those of run {run_id}")
    if strange := [alarm.kind for alarm in saved.open if alarm.kind not in KINDS]:
        raise _unusable(path, f"unknown kind of alarm {strange[0]!r}")
    return Ledger({alarm.kind: alarm for alarm in saved.open}, saved.counts)


def save(path: Path, run_id: str, ledger: Ledger) -> None:
    """Write the alarms, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    saved = _Saved(VERSION, run_id, ledger.counts, list(ledger.open.values()))
    text = json.format(json.encode(saved), indent=1)
    with atomic_file(path) as file:
        file.write(text + b"\n")


def only_actor(path: Path) -> Lock:
    """The right to act on the alarms in this file: of two watchers only one may.

    Raises:
        InputError: another watcher has it.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        return Lock(lock)
    except LockHeldError:
        raise InputError(
            "another watcher acts on the alarms of this run",
            code="conflict",
            path=lock,
            remedy="end it, or watch without --act",
        ) from None
    except OSError as error:
        raise InputError(
            "acting needs a place to remember what was acted on",
            code="unwritable",
            path=lock,
            found=error.strerror,
            remedy="name a file that can be written with --state",
        ) from None


def _unusable(path: Path, found: str, expected: str = "the alarms of a run") -> InputError:
    return InputError(
        "this file does not hold the alarms of this run",
        code="unknown-format",
        path=path,
        found=found,
        expected=expected,
        remedy="name another with --state, or delete it: open alarms will be reported again",
    )
