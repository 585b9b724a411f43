"""Records as another implementation prints them, compared with ours value by value."""

from __future__ import annotations

import ast
import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r"<PIL\.\S+ image mode=(\S+) size=(\d+)x(\d+) at ")
_AUDIO = re.compile(r"shape=\((\d+),\), dtype=float32\), (\d+)\)$", re.DOTALL)
_BINARY = re.compile(r"<BINARY md5=([0-9a-f]{32}) size=(\d+)B>")


def read_expected(path: Path) -> list[dict[str, Any]]:
    """The records of an ``output/*.jsonl``."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without nesting, as version 0.8 prints it."""
    made: dict[str, Any] = {}
    for key, value in record.items():
        made |= flat(value) if isinstance(value, dict) else {key: value}
    return made


def differences(
    ours: Mapping[str, Any], expected: Mapping[str, Any], at: str = ""
) -> Iterator[str]:
    """What differs between two records, one line each."""
    if set(ours) != set(expected):
        yield f"{at}: keys {sorted(ours)} and {sorted(expected)}"
        return
    for key, value in expected.items():
        if isinstance(value, dict):
            yield from differences(ours[key], value, f"{at}.{key}")
        elif not same(ours[key], value):
            yield f"{at}.{key}: {ours[key]!r} is not {value!r}"


def same(ours: Any, expected: Any) -> bool:
    """Whether one of our values is what was printed."""
    if expected is None or expected == "None":
        return ours is None
    if isinstance(expected, str):
        return _same_text(ours, expected)
    if isinstance(ours, float) and isinstance(expected, (int, float)):
        return math.isclose(ours, expected, rel_tol=1e-6)
    return bool(type(ours) is type(expected) and ours == expected)


def _same_text(ours: Any, expected: str) -> bool:
    if isinstance(ours, str):
        return ours == expected
    if image := _IMAGE.match(expected):
        return ours.mode == image[1] and ours.size == (int(image[2]), int(image[3]))
    if audio := _AUDIO.search(expected):
        samples, own = ours  # at the sound's own rate, unless the description asks for another
        frames, rate = int(audio[1]), int(audio[2])
        return samples.shape == (len(samples),) and math.ceil(len(samples) * rate / own) == frames
    if isinstance(ours, (datetime.datetime, datetime.date)):
        whole = datetime.datetime.fromisoformat(expected)
        return ours == (whole if isinstance(ours, datetime.datetime) else whole.date())
    if isinstance(ours, list):
        plain = re.sub(r"np\.\w+\(([^()]*)\)", r"\1", expected)
        wanted = ast.literal_eval(plain)
        return len(ours) == len(wanted) and all(map(same, ours, wanted))
    if isinstance(ours, (int, float)):
        return math.isclose(ours, float(expected), rel_tol=1e-6)
    return False
