"""The pickles of PyTorch's own recorder, straight into columns: ten times as fast as through objects.

The compiled stack machine of `_kernels` knows the few instructions that PyTorch writes. A pickle
with any other (one that another program wrote, or a hostile one) is left to `restricted_unpickling`.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.runs.flight import _kernels as k
from holdfast.runs.flight.compact import WITHOUT_STATES, NoDumpError, compact, operation_of
from holdfast.runs.flight.record import COMPLETED, ENTRY, LEFT, STATES, Dump, Operation

MOST_TOKENS = 100_000
"""That may become objects: all but the entries, and one entry of each operation."""
SMALLEST = 1024

_NAMES = np.zeros((len(k.NAMES), max(map(len, k.NAMES))), np.uint8)
for _place, _name in enumerate(k.NAMES):
    _NAMES[_place, : len(_name)] = np.frombuffer(_name, np.uint8)
_LENGTHS = np.array([len(_name) for _name in k.NAMES])


class _IrregularError(Exception):
    """Not as PyTorch writes it."""


class PlainReader:
    """Reads one pickle after another; keeps its working memory."""

    def __init__(self) -> None:
        self._tables = [np.zeros((SMALLEST, 3), np.int64) for _ in range(3)]

    def read(self, content: bytes, file: str) -> Dump | None:
        """The columns of a dump; None if it has to be read in the ordinary way."""
        data = np.frombuffer(content, np.uint8)
        if len(data) >= len(self._tables[0]):
            self._tables = [np.zeros((2 * len(data), 3), np.int64) for _ in range(3)]
        stack, heap, memo = self._tables
        if k.scan(data, stack, heap, memo) < 0 or stack[0, 0] != k.DICT:
            return None
        try:
            return _dump(_Tokens(content, heap), data, int(stack[0, 1]), int(stack[0, 2]), file)
        except (_IrregularError, NoDumpError, KeyError, ValueError, OverflowError, TypeError):
            return None  # whoever reads it in the ordinary way says what is wrong


class _Tokens:
    """Tokens of a file, made into objects where they are wanted."""

    def __init__(self, content: bytes, heap: NDArray[np.int64]) -> None:
        self.content = content
        self.heap = heap
        self._left = MOST_TOKENS

    def text(self, offset: int, length: int) -> str:
        return self.content[offset : offset + length].decode()

    def value(self, kind: int, first: int, count: int) -> Any:
        """An object. Shared tokens are made again each time, so their number is limited."""
        self._left -= 1
        if self._left < 0:
            raise _IrregularError
        if kind == k.TEXT:
            return self.text(first, count)
        if kind == k.INTEGER:
            return first
        if kind == k.BOOLEAN:
            return bool(first)
        if kind == k.FLOAT:
            return struct.unpack_from(">d", self.content, first)[0]
        if kind in (k.LIST, k.TUPLE):
            return [self.at(place) for place in range(first, first + count)]
        if kind == k.DICT:
            pairs = range(first, first + count, 2)
            return {self.key(place): self.at(place + 1) for place in pairs}
        return None

    def at(self, place: int) -> Any:
        kind, first, count = self.heap[place].tolist()
        return self.value(kind, first, count)

    def key(self, place: int) -> str:
        kind, first, count = self.heap[place].tolist()
        if kind != k.TEXT:
            raise _IrregularError
        return self.text(first, count)


def _dump(tokens: _Tokens, data: NDArray[np.uint8], first: int, count: int, file: str) -> Dump:
    keys = {tokens.key(place): place + 1 for place in range(first, first + count, 2)}
    rest = {key: tokens.at(place) for key, place in keys.items() if key != "entries"}
    dump = compact(rest | {"entries": []}, file)
    if "entries" not in keys:
        return dump
    kind, start, entries = tokens.heap[keys["entries"]].tolist()
    if kind != k.LIST:
        raise _IrregularError
    out = np.zeros((entries, 16), np.int64)
    field_at = np.full(len(data) + 1, -2, np.int16)
    if k.columns(data, tokens.heap, start, _NAMES, _LENGTHS, field_at, out) < 0:
        raise _IrregularError
    return _with_entries(dump, tokens, out) if entries else dump


def _with_entries(dump: Dump, tokens: _Tokens, out: NDArray[np.int64]) -> Dump:
    rows = np.zeros(len(out), ENTRY)
    rows["record"], rows["created_ns"], rows["timeout_ms"] = out[:, 0], out[:, 3], out[:, 4]
    rows["p2p"] = out[:, 5] != 0
    rows["sequence"] = np.where(rows["p2p"], out[:, 2], out[:, 1])

    # Equal hashes are the same operation; equal operations may have several.
    _, example, number = np.unique(out[:, 13], return_index=True, return_inverse=True)
    operations: dict[Operation, int] = {}
    made = [_operation(tokens, int(out[each, 15])) for each in example]
    index = np.array([operations.setdefault(each, len(operations)) for each in made])
    rows["operation"] = index[number]

    groups: dict[tuple[str, str], int] = {}
    pairs = _first_of_each(out[:, 9] * (len(tokens.content) + 1) + out[:, 11])
    named = [
        (tokens.text(*out[each, 9:11].tolist()), tokens.text(*out[each, 11:13].tolist()))
        for each in pairs[0]
    ]
    index = np.array([groups.setdefault(each, len(groups)) for each in named])
    rows["group"] = index[pairs[1]]

    said, which = _first_of_each(out[:, 7])
    states = np.array([STATES[tokens.text(*out[each, 7:9].tolist())] for each in said])[which]
    without = np.array([each.backend in WITHOUT_STATES for each in operations])
    left = without[rows["operation"]] & (out[:, 6] != 0) & (states != COMPLETED)
    rows["state"] = np.where(left, LEFT, states)
    return replace(
        dump,
        groups=tuple(groups),
        operations=tuple(operations),
        entries=rows,
        stacks=bool(out[-100:, 14].any()),
    )


def _first_of_each(values: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each value occurs first, and which of them each one is."""
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    return first, which


def _operation(tokens: _Tokens, entry: int) -> Operation:
    first, count = tokens.heap[entry, 1:].tolist()
    keys = {tokens.key(place): place + 1 for place in range(first, first + count, 2)}
    return operation_of(*(tokens.at(keys[name.decode()]) for name in k.FIELDS[k.OPERATION :]))
