"""The pickles that PyTorch's recorder writes, taken apart without making objects.

A pickle is a program for a stack machine. PyTorch's pickler (C++) uses some twenty of its instructions
to write nothing but dictionaries, lists, tuples, texts and numbers. `scan` runs those on a stack of
tokens instead of objects and knows no other: it cannot call, import or allocate anything. A token is
a kind and two numbers:

======== ================================ ==============================
kind     first                            second
======== ================================ ==============================
INTEGER  the value
TEXT     offset of its bytes in the file  their number
LIST     place of its items in the heap   their number
DICT     likewise, key and value in turn  twice the number of its entries
======== ================================ ==============================

Whatever it does not expect makes it give up; the caller then reads the file in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

NONE, INTEGER, BOOLEAN, FLOAT, TEXT, LIST, DICT, TUPLE = 1, 2, 3, 4, 5, 6, 7, 8
DEEPEST = 64
FIELDS = (
    b"record_id",
    b"collective_seq_id",
    b"p2p_seq_id",
    b"time_created_ns",
    b"timeout_ms",
    b"is_p2p",
    b"retired",
    b"state",
    b"process_group",
    b"profiling_name",
    b"input_sizes",
    b"output_sizes",
    b"input_dtypes",
    b"output_dtypes",
)
"""Of an entry, in the order of the columns that `columns` fills; the last five make the operation."""
NUMBERS, STATE, GROUP, OPERATION = 7, 7, 8, 9
_WHOLE = (1 << len(FIELDS)) - 1
FRAMES = len(FIELDS)
NAMES = (*FIELDS, b"frames")
"""What is looked for in an entry; it may lack the last, its stack."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    made: Any = njit(cache=True, nogil=True)(function)
    return cast(_Function, made)


@_compiled
def scan(data: Any, stack: Any, heap: Any, memo: Any) -> int:
    """Run a pickle on tokens.

    Args:
        data: bytes of the file, uint8 [n].
        stack: int64 [n + 1, 3], filled here; at the end the document is its first row.
        heap: likewise; the items of containers.
        memo: likewise; what the pickle remembers.

    Returns:
        How many rows of the heap are used; -1 if it is not written as PyTorch writes.
    """
    size = len(data)
    marks = np.empty(DEEPEST, np.int64)
    place, top, used, depth, known = 0, 0, 0, 0, 0
    while place < size:
        code = data[place]
        place += 1
        if code == 0x68 or code == 0x6A:  # BINGET, LONG_BINGET
            wide = 1 if code == 0x68 else 4
            if place + wide > size:
                return -1
            index = _unsigned(data, place, wide)
            place += wide
            if index >= known:
                return -1
            for part in range(3):
                stack[top, part] = memo[index, part]
            top += 1
        elif code == 0x71 or code == 0x72:  # BINPUT, LONG_BINPUT
            wide = 1 if code == 0x71 else 4
            if place + wide > size or top == 0:
                return -1
            index = _unsigned(data, place, wide)
            place += wide
            # A container that is remembered before it is filled is not written so by PyTorch.
            # And what it remembers, it counts from 0 on without a gap.
            if index != known or (stack[top - 1, 0] >= LIST and stack[top - 1, 2] == 0):
                return -1
            known += 1
            for part in range(3):
                memo[index, part] = stack[top - 1, part]
        elif code == 0x4B or code == 0x4D or code == 0x4A:  # BININT1, BININT2, BININT
            wide = 1 if code == 0x4B else 2 if code == 0x4D else 4
            if place + wide > size:
                return -1
            value = _unsigned(data, place, wide)
            if wide == 4 and value >= 1 << 31:
                value -= 1 << 32
            place += wide
            stack[top, 0], stack[top, 1] = INTEGER, value
            top += 1
        elif code == 0x8A:  # LONG1
            if place >= size or data[place] > 8 or place + 1 + data[place] > size:
                return -1
            wide = int(data[place])
            value = _unsigned(data, place + 1, wide)
            if 0 < wide < 8 and value >= 1 << (8 * wide - 1):
                value -= 1 << (8 * wide)
            place += 1 + wide
            stack[top, 0], stack[top, 1] = INTEGER, value
            top += 1
        elif code == 0x58:  # BINUNICODE
            if place + 4 > size:
                return -1
            length = _unsigned(data, place, 4)
            place += 4
            if place + length > size:
                return -1
            stack[top, 0], stack[top, 1], stack[top, 2] = TEXT, place, length
            place += length
            top += 1
        elif code == 0x4E:  # NONE
            stack[top, 0] = NONE
            top += 1
        elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
            stack[top, 0], stack[top, 1] = BOOLEAN, 1 if code == 0x88 else 0
            top += 1
        elif code == 0x47:  # BINFLOAT
            if place + 8 > size:
                return -1
            stack[top, 0], stack[top, 1] = FLOAT, place
            place += 8
            top += 1
        elif code == 0x5D or code == 0x7D:  # EMPTY_LIST, EMPTY_DICT
            stack[top, 0], stack[top, 1], stack[top, 2] = LIST if code == 0x5D else DICT, 0, 0
            top += 1
        elif code == 0x28:  # MARK
            if depth == DEEPEST:
                return -1
            marks[depth] = top
            depth += 1
        elif code == 0x65 or code == 0x75:  # APPENDS, SETITEMS
            if depth == 0:
                return -1
            depth -= 1
            first = marks[depth]
            kind = LIST if code == 0x65 else DICT
            if first == 0 or stack[first - 1, 0] != kind or stack[first - 1, 2] != 0:
                return -1
            if kind == DICT and (top - first) % 2:
                return -1
            stack[first - 1, 1], stack[first - 1, 2] = used, top - first
            used = _moved(stack, first, top, heap, used)
            top = first
        elif 0x85 <= code <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
            first = top - (int(code) - 0x84)
            if first < 0:
                return -1
            start = used
            used = _moved(stack, first, top, heap, used)
            stack[first, 0], stack[first, 1], stack[first, 2] = TUPLE, start, top - first
            top = first + 1
        elif code == 0x80:  # PROTO
            place += 1
        elif code == 0x2E:  # STOP
            return used if top == 1 and depth == 0 else -1
        else:
            return -1
        if depth and top < marks[depth - 1]:
            return -1
    return -1


@_compiled
def _unsigned(data: Any, place: int, wide: int) -> Any:
    value: Any = np.int64(0)
    for part in range(wide):
        value |= np.int64(data[place + part]) << (8 * part)
    return value


@_compiled
def _moved(stack: Any, first: Any, top: Any, heap: Any, used: Any) -> Any:
    """Tokens of the stack, moved to the heap."""
    for place in range(first, top):
        for part in range(3):
            heap[used, part] = stack[place, part]
        used += 1
    return used


@_compiled
def columns(
    data: Any, heap: Any, start: int, names: Any, lengths: Any, field_at: Any, out: Any
) -> int:
    """The fields of every entry.

    Args:
        data: bytes of the file.
        heap: what `scan` filled.
        start: where the entries are in it.
        names: `NAMES`, uint8 [names, longest].
        lengths: of each of them, int64 [names].
        field_at: int16 [n + 1], -2 everywhere: which field the text at an offset names, as it is learnt.
        out: int64 [entries, 16], filled: the numbers of the first seven fields; offset and length of the
            state, of the group's name, of its description; a hash of the operation; whether it has a stack;
            the place of the entry in the heap.

    Returns:
        0, or -1 if an entry is not as PyTorch writes it.
    """
    for row in range(len(out)):
        entry = start + row
        if heap[entry, 0] != DICT:
            return -1
        seen = 0
        mixed = np.zeros(5, np.int64)
        for pair in range(heap[entry, 1], heap[entry, 1] + heap[entry, 2], 2):
            if heap[pair, 0] != TEXT:
                return -1
            offset = heap[pair, 1]
            field = field_at[offset]
            if field == -2:
                field = _field(data, offset, heap[pair, 2], names, lengths)
                field_at[offset] = field
            if field == -1:
                continue
            if field == FRAMES:
                if heap[pair + 1, 0] != LIST:
                    return -1
                out[row, 14] = heap[pair + 1, 2] > 0
                continue
            seen |= 1 << field
            kind, first, count = heap[pair + 1, 0], heap[pair + 1, 1], heap[pair + 1, 2]
            if field < NUMBERS:
                wanted = INTEGER if field < 5 else BOOLEAN
                if kind != wanted:
                    return -1
                out[row, field] = first
            elif field == STATE:
                if kind != TEXT:
                    return -1
                out[row, 7], out[row, 8] = first, count
            elif field == GROUP:
                if (
                    kind != TUPLE
                    or count != 2
                    or heap[first, 0] != TEXT
                    or heap[first + 1, 0] != TEXT
                ):
                    return -1
                for part in range(2):
                    out[row, 9 + 2 * part] = heap[first + part, 1]
                    out[row, 10 + 2 * part] = heap[first + part, 2]
            else:
                mixed[field - OPERATION] = _hashed(heap, kind, first, count)
        if seen != _WHOLE:
            return -1
        code: Any = np.int64(17)
        for part in range(5):
            code = code * np.int64(1_000_003) ^ mixed[part]
        out[row, 13], out[row, 15] = code, entry
    return 0


@_compiled
def _field(data: Any, offset: int, length: int, names: Any, lengths: Any) -> int:
    for field in range(len(lengths)):
        if lengths[field] == length:
            same = True
            for part in range(length):
                if data[offset + part] != names[field, part]:
                    same = False
                    break
            if same:
                return field
    return -1


@_compiled
def _hashed(heap: Any, kind: int, first: int, count: int) -> Any:
    """Of a text, or of a list of texts, of numbers or of such lists; three levels are all there are."""
    code: Any = np.int64(kind * 31 + count)
    if kind == TEXT:
        return code * np.int64(1_000_003) ^ first
    if kind != LIST and kind != TUPLE:
        return code
    for place in range(first, first + count):
        inside = heap[place, 0]
        if inside in (LIST, TUPLE):
            code = _mixed(code, inside, heap[place, 2])
            for inner in range(heap[place, 1], heap[place, 1] + heap[place, 2]):
                code = _mixed(code, heap[inner, 0], heap[inner, 1])
        else:
            code = _mixed(code, inside, heap[place, 1])
    return code


@_compiled
def _mixed(code: Any, kind: int, value: int) -> Any:
    return (code * np.int64(1_000_003) ^ kind) * np.int64(16_777_619) ^ value
