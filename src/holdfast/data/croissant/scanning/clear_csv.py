"""Whether a CSV file means the same to every reader.

Arrow's reader takes a quoted value that never ends for one long value, `"a"b` for ab, 0x1F for a number,
and every carriage return for the end of a line; DuckDB's does not. A file in which nothing of that stands
is read alike by both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

_BLOCK = 1 << 16
_QUOTE, _RETURN, _LINE, _ZERO = (ord(sign) for sign in '"\r\n0')


def is_clear(path: Path, separator: str, *, hexadecimal: bool) -> bool:
    """Whether quotes stand only around values, carriage returns only before line feeds.

    Reads the file once, in about a fifth of the time that reading its values takes.

    Args:
        path: the file; in UTF-8, not packed.
        separator: between its values.
        hexadecimal: whether 0x may stand in it.
    """
    around = np.zeros(256, bool)
    around[[ord(separator), _LINE, _RETURN, _QUOTE]] = True
    left = path.stat().st_size
    last, inside = b"\n", False  # the byte before a block, and whether the block begins in quotes
    with path.open("rb") as file:
        while left > 0:
            data = file.read(_BLOCK)
            left = left - len(data) if data else 0
            # The last byte before it stands in front, and a separator behind the last of all.
            block = last + data + (separator.encode() if left <= 0 else b"")
            signs = np.frombuffer(block, np.uint8)
            if b"\r" in block and np.any(signs[1:][signs[:-1] == _RETURN] != _LINE):
                return False
            if not hexadecimal and (b"x" in block or b"X" in block):
                crosses = (signs[1:] | 0x20) == ord("x")
                if np.any(crosses & (signs[:-1] == _ZERO)):
                    return False
            if b'"' in block:
                places = np.flatnonzero(signs == _QUOTE)
                if places[0] == 0:  # has been counted with its own block: it opened if `inside`
                    behind = places[:1] if not inside else places[:0]
                    places = places[1:]
                else:
                    behind = places[:0]
                opens = places[int(inside) :: 2]
                closes = np.concatenate([behind, places[int(not inside) :: 2]])
                closes = closes[closes + 1 < signs.size]  # of the last byte, the next block tells
                if not (around[signs[opens - 1]].all() and around[signs[closes + 1]].all()):
                    return False
                inside ^= bool(places.size % 2)
            last = block[-1:]
    return not inside
