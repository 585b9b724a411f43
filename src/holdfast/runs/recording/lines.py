"""One event as one line of JSON: the types of fields, checked when a line is read.

A loss or a gradient norm that is not finite, which JSON cannot represent, is the string ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from holdfast.lines import LONGEST_LINE_BYTES
from holdfast.runs.recording.events import FORMAT_VERSION, SPANS, Process

KINDS = ("start", "ready", *SPANS, "begin", "published", "alive", "end")
"""Every kind of event, in the order of `EVENTS`' dictionary."""

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAY_BE_NOT_FINITE = ("loss", "grad_norm")
AMOUNTS = ("seconds", "inner_s", "tokens", "samples", "sync_s", "background_s")
"""Fields that are finite and not negative, like ``t``."""
WHOLE = ("step", "bytes", "resumed_from", "lost")
TEXTS = ("what", "reason", "how", "detail", "thread")

_LARGEST = 2**63 - 1
_START_TEXTS = ("run_id", "node", "boot_id", "launch")
_START_NUMBERS = ("opened_s", "monotonic_s", "lived_s", "gpus")


def not_finite_as_text(number: float) -> str:
    """How JSON holds a number that is not finite."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def bounded_text(value: object) -> str:
    """Text of at most 500 characters that every reader can decode."""
    return str(value)[:500].encode("utf-8", "replace").decode("utf-8")


def decode(line: bytes) -> dict[str, Any]:
    """The event of a line; fields that are not of the format are left as they are.

    Raises:
        ValueError: with the reason, in words, why the line cannot be used.
    """
    event = _object(line)
    kind = event.get("event")
    if kind not in KINDS:
        raise ValueError("no event of a known kind")
    if event.get("t") is None:
        raise ValueError("no time t")
    for name in ("t", *AMOUNTS):
        value = event.get(name)
        if value is None:
            continue
        if not (_is_number(value) and 0 <= value < math.inf):
            raise ValueError(f"{name} is not a number from 0")
        event[name] = float(value)
    if kind in SPANS and event.get("seconds") is None:
        raise ValueError("a span without seconds")
    for name in WHOLE:
        value = event.get(name)
        if value is not None and not (type(value) is int and -_LARGEST <= value <= _LARGEST):
            raise ValueError(f"{name} is not a whole number")
    for name in MAY_BE_NOT_FINITE:
        value = event.get(name)
        if value is None:
            continue
        if isinstance(value, str) and value in NOT_FINITE:
            event[name] = NOT_FINITE[value]
        elif _is_number(value) and math.isfinite(value):
            event[name] = float(value)
        else:
            raise ValueError(f"{name} is not a number")
    for name in TEXTS:
        value = event.get(name)
        if value is not None and not _is_text(value):
            raise ValueError(f"{name} is not text")
    return event


def decode_later(line: bytes) -> dict[str, Any]:
    """The event of a line that is not the first of its file.

    Raises:
        ValueError: as `decode`, and for another start.
    """
    event = decode(line)
    if event["event"] == "start":
        raise ValueError("a second start in one file")
    return event


def process_of(line: bytes, file: Path) -> Process:
    """The process whose file begins with this line.

    Raises:
        ValueError: with the reason, if it is not a start event of this version of the format.
    """
    event = decode(line)
    if event["event"] != "start":
        raise ValueError("the file does not begin with a start event")
    if event.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"written in version {event.get('version')!r} of the format; this reads {FORMAT_VERSION}"
        )
    for name in _START_TEXTS:
        if not _is_text(event.get(name)):
            raise ValueError(f"the start event has no {name}")
    for name in _START_NUMBERS:
        if not (_is_number(event.get(name)) and math.isfinite(event[name])):
            raise ValueError(f"the start event has no {name}")
    if not all(type(event.get(name)) is int for name in ("rank", "world_size", "pid")):
        raise ValueError("the start event has no rank, world_size or pid")
    if not 0 <= event["rank"] < event["world_size"] < 2**31:
        raise ValueError("the rank is not one of the ranks")
    submitted_s, labels = event.get("submitted_s"), event.get("labels") or {}
    if submitted_s is not None and not (_is_number(submitted_s) and math.isfinite(submitted_s)):
        raise ValueError("submitted_s is not a number")
    if not isinstance(labels, dict) or not all(map(_is_text, labels.values())):
        raise ValueError("labels are not text")
    return Process(
        file=file,
        run_id=event["run_id"],
        rank=event["rank"],
        world_size=event["world_size"],
        node=event["node"],
        pid=event["pid"],
        boot_id=event["boot_id"],
        launch=event["launch"],
        opened_s=float(event["opened_s"]),
        monotonic_s=float(event["monotonic_s"]),
        lived_s=max(0.0, float(event["lived_s"])),
        submitted_s=None if submitted_s is None else float(submitted_s),
        gpus=float(event["gpus"]),
        labels=labels,
    )


def _object(line: bytes) -> dict[str, Any]:
    if len(line) >= LONGEST_LINE_BYTES:  # a reader keeps no more of a line
        raise ValueError("longer than a line can be")
    try:
        event = _parse(line.decode("utf-8"))
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from None
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the value of the line
    return event


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)


_parse = json.JSONDecoder(parse_constant=_refuse).decode


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _LARGEST)


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
