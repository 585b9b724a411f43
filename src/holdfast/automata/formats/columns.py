"""Columns of numbers as lines of text, all at once: what the text formats are written with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Strings = Any
"""An Arrow array of strings; null where a column is left out of its line."""


def text_of(numbers: npt.NDArray[Any]) -> Strings:
    """Numbers in the fewest digits that are read as the same number again; infinity is `Infinity`."""
    text = pc.cast(pa.array(numbers), pa.large_string())
    if not np.issubdtype(numbers.dtype, np.floating) or not np.isinf(numbers).any():
        return text
    text = pc.if_else(pa.array(np.isposinf(numbers)), _scalar("Infinity"), text)
    return pc.if_else(pa.array(np.isneginf(numbers)), _scalar("-Infinity"), text)


def left_out(text: Strings, where: npt.NDArray[np.bool_]) -> Strings:
    """Text without what stands at `where`."""
    return pc.if_else(pa.array(where), _scalar(None), text)


def chosen(names: list[str], at: npt.NDArray[np.integer[Any]]) -> Strings:
    """The names at these positions."""
    return pa.array(names, pa.large_string()).take(pa.array(at))


def lines_of(columns: list[Strings], separator: str) -> Strings:
    """Lines, without their ends."""
    return pc.binary_join_element_wise(*columns, _scalar(separator), null_handling="skip")


def merged(first: Strings, second: Strings, order: npt.NDArray[np.int64]) -> Strings:
    """Both, in the order given by positions in the one followed by the other."""
    return pa.concat_arrays([first, second]).take(pa.array(order))


def text_from(lines: Strings) -> str:
    """One text, every line with its end."""
    whole = pc.binary_join_element_wise(lines, _scalar(""), _scalar("\n"))
    return str(whole.buffers()[2] or b"", "utf-8")


def _scalar(text: str | None) -> Any:
    return pa.scalar(text, pa.large_string())
