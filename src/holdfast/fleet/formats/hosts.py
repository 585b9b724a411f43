"""Host lists (``node[1-4,7]-ib,login1``) expanded by ClusterShell, once per distinct list.

The forms of other schedulers are read too: hosts between ``:``, ``;``, ``+`` or spaces, with slots.
"""

from __future__ import annotations

import math
import re
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from ClusterShell.RangeSet import RangeSet, RangeSetException

from holdfast.fleet.formats.columns import Column, by_distinct, coded, flat

Codes = npt.NDArray[np.int32]
# Node names of the lists that were read, each with its place; lists -> the places of their names
_NAMES: dict[str, int] = {}
_LISTS: dict[str, Codes | None] = {}
_KEPT_LISTS = 65_536
_NO_CODES = np.zeros(0, np.int32)
_LOCK = Lock()

_MAX_CHARACTERS = 20_000_000  # of the hosts of one list: a million names
_MAX_DIGITS = 18  # of a number in a range
_HOST_CHARACTERS = re.compile(r"[A-Za-z0-9_.\-\[\],]+")
# LSF writes "8*n1:8*n2", PBS "n1/0*8+n2/0,1", a data frame "['n1', 'n2']": slots and quotes are no hosts
_NO_PART = re.compile(
    r"^\[(?=['\"])|['\"]\]$|['\"{}]|(?<![\w.-])\d+\*(?=\w)|/\d[\d*-]*(?:,\d[\d*-]*)*"
)
_BETWEEN = re.compile(r" ?[,:;+] ?| ")
_SLOTS = re.compile(r"[^A-Za-z]*[A-Za-z].*[: ]\d+(?![\w.-])")  # "n1:8,n2:8"
_NO_HOSTS = (
    "", "None assigned", "None Assigned", "(none)", "(null)", "None", "NONE", "none", "N/A",
    "Unknown",
)  # fmt: skip


def parse_hosts(values: Column) -> pa.Array:
    """Host lists (``node[1-4,7]``) expanded and sorted: a list of strings per row.

    Returns:
        an empty list for ``None assigned`` and blanks; null for a list that is cut off or is none. What
        reads a batch counts those (`Format.batches`).
    """
    texts = coded(pc.fill_null(flat(values), ""))
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
        places = [_NAMES.setdefault(name, len(_NAMES)) for name in hosts or ()]
        _LISTS[text] = None if hosts is None else np.array(places, np.int32)
    return _LISTS[text]


def hosts_of(text: str) -> list[str] | None:
    """The hosts of one host list, sorted; None if it is cut off or none. Do not modify it."""
    if text in _NO_HOSTS:
        return []
    if _HOST_CHARACTERS.fullmatch(text) is None:
        text = _as_slurm(text)
        if _HOST_CHARACTERS.fullmatch(text) is None:
            return None
    if "[" not in text and "]" not in text and "," not in text:
        return [text]
    first, *others = text.split("[")
    pieces = [each.partition("]") for each in others]
    if "]" in first or not all(closed and "]" not in outside for _, closed, outside in pieces):
        return None
    # A comma outside of brackets ends a group, a range multiplies the names of its own.
    *hosts, name = first.split(",")
    group = [name]
    left = _MAX_CHARACTERS
    for ranges, _, outside in pieces:
        suffix, *names = outside.split(",")
        left -= len(group) * _size(ranges) * len(group[0] + suffix + "0001")
        if left < 0:
            return None
        try:
            numbers = set(RangeSet(ranges))  # iterating over it would sort it
        except RangeSetException:  # "4-2", "01-3"
            return None
        group = [name + number + suffix for name in group for number in numbers]
        if names:
            hosts += [*group, *names[:-1]]
            group = names[-1:]
    found = {*hosts, *group}
    return sorted(found) if all(found) else None


def _as_slurm(text: str) -> str:
    """A list of another scheduler with commas; as it is where it may be words, or slots among hosts."""
    plain = _NO_PART.sub("", " ".join(text.split()))
    if _SLOTS.match(plain) or not re.search("[0-9]", plain):
        return text
    return _BETWEEN.sub(",", plain)


def _size(ranges: str) -> float:
    """How many numbers "01-04,7" names, before a mangled one fills the memory; infinite: it is no range."""
    size = 0
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not (low.isdigit() and high.isdigit() and max(len(low), len(high)) <= _MAX_DIGITS):
            return math.inf
        size += max(int(high) - int(low), 0) + 1
    return size


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
    names = set()
    words = iter(line.split())
    for word in words:
        option, _, text = word.partition("=")
        if word.startswith("-x"):
            text = word[2:].removeprefix("=")
        elif option != "--exclude":
            continue
        names.update(hosts_of((text or next(words, "")).strip("'\"")) or ())
    return sorted(names)
