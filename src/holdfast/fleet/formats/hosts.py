"""Host lists (``node[1-4,7]``) expanded by ClusterShell, once per distinct list."""

from __future__ import annotations

import re
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.columns import Column, by_distinct, coded, flat

Codes = npt.NDArray[np.int32]
# Node names of the lists that were read, each with its place; lists -> the places of their names
_NAMES: dict[str, int] = {}
_LISTS: dict[str, Codes | None] = {}
_KEPT_LISTS = 65_536
_NO_CODES = np.zeros(0, np.int32)
_LOCK = Lock()

_MAX_HOSTS = 1_000_000
_HOST_CHARACTERS = re.compile(r"^[A-Za-z0-9_.\-\[\],]+$")
_HOST_RANGE = re.compile(r"\[([^\[\]]*)\]")
_ONE_RANGE = re.compile(r"([^\[\],]*[^\[\],\d])\[((?:\d+(?:-\d+)?,?)+)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NO_HOSTS = (
    "", "None assigned", "None Assigned", "(none)", "(null)", "None", "NONE", "none", "N/A",
    "Unknown",
)  # fmt: skip


def parse_hosts(values: Column) -> pa.Array:
    """Host lists (``node[1-4,7]``) expanded and sorted: a list of strings per row.

    Returns:
        an empty list for ``None assigned`` and blanks; null for a list that is cut off or is none.
    """
    texts = coded(values)
    with _LOCK:  # readers of several blocks share the codes
        if len(_LISTS) > _KEPT_LISTS:
            _LISTS.clear()
            _NAMES.clear()
        lists = [_codes_of(text) for text in texts.dictionary.to_pylist()]
        names = pa.array(list(_NAMES), pa.string())
    known = [each is not None for each in lists]
    codes = [_NO_CODES if each is None else each for each in lists]
    offsets = np.cumsum([0, *map(len, codes)]).astype(np.int32)
    items = pa.DictionaryArray.from_arrays(np.concatenate([_NO_CODES, *codes]), names)
    found = pa.ListArray.from_arrays(offsets, items, mask=pa.array(~np.array(known, bool)))
    return found.take(texts.indices)


def _codes_of(text: str) -> Codes | None:
    """The places of a list's hosts in `_NAMES`, which is extended."""
    if text not in _LISTS:
        hosts = hosts_of(text)
        places = (_NAMES.setdefault(name, len(_NAMES)) for name in hosts or ())
        _LISTS[text] = None if hosts is None else np.fromiter(places, np.int32)
    return _LISTS[text]


def hosts_of(text: str) -> list[str] | None:
    """The hosts of one host list, sorted; None if it is cut off or none. Do not modify it."""
    if text in _NO_HOSTS:
        return []
    if _HOST_CHARACTERS.match(text) is None:
        return None
    if "[" not in text and "]" not in text and "," not in text:
        return [text]
    if (
        text.count("[") != text.count("]")
        or text.endswith((",", "-", "["))
        or _hosts_bound(text) > _MAX_HOSTS
    ):
        return None
    if hosts := _of_one_range(text):  # ClusterShell takes 100 us for a list
        return hosts
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return sorted(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return None


def _of_one_range(text: str) -> list[str]:
    """The hosts of ``node[08-11,14]``; none where the list is of another form or damaged."""
    match = _ONE_RANGE.fullmatch(text)
    if match is None:
        return []
    hosts: set[str] = set()
    for low, high in _RANGE.findall(match[2]):
        numbers = range(int(low), int(high or low) + 1)
        if not numbers or (high and len(low) != len(high) and "0" in (low[0], high[0])):
            return []
        hosts.update([f"{match[1]}{number:0{len(low)}}" for number in numbers])
    return sorted(hosts)


def _hosts_bound(text: str) -> int:
    """At least as many hosts as the text names: a mangled range must not fill the memory."""
    bound = text.count(",") + 1
    for ranges in _HOST_RANGE.findall(text):
        size = 0
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            size += int(high) - int(low) + 1 if low.isdigit() and high.isdigit() else 1
        bound *= max(size, 1)
    return bound


_EXCLUDE = re.compile(r"(?:^|\s)(?:--exclude(?:=|\s+)|-x\s*=?\s*)(\S+)")


def excluded_hosts(values: Column) -> pa.Array:
    """The nodes that a submit line asks to avoid (``--exclude=a[1-2]``, ``-x a1``), as lists."""
    array = flat(values)
    asks = pc.or_(pc.match_substring(array, "--exclude"), pc.match_substring(array, "-x"))
    return by_distinct(
        pc.if_else(pc.fill_null(asks, False), array, pa.scalar("")),
        _excluded,
        pa.list_(pa.string()),
    )


def _excluded(line: str) -> list[str]:
    found: set[str] = set()
    for text in _EXCLUDE.findall(line):
        found.update(hosts_of(text.strip("'\"")) or ())
    return sorted(found)
