"""A Chrome trace: what is needed of its events, and what stands around them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import InputError
from holdfast.opening import open_source


class Event(Struct, gc=False):
    """One event; further fields, such as the arguments of an operator, are passed over."""

    ph: Any = None
    """``X``: it has a length."""
    cat: Any = None
    name: Any = None
    ts: Any = None
    """Begin, microseconds."""
    dur: Any = 0
    """Length, microseconds."""


class Trace(Struct):
    """A trace as torch.profiler exports it; a bare array is its events."""

    traceEvents: list[Event]
    distributedInfo: Any = None
    host_name: Any = None


def read_events(path: Path) -> Trace:
    """The events of a trace, in the order of the file, and where they are from.

    Raises:
        InputError: if the file cannot be read, is truncated, or is not a trace.
    """
    try:
        with open_source(path) as source:
            text = source.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise _error(path, f"the trace cannot be read: {error}") from None
    try:
        content = _decoded(text)
    except RecursionError:
        raise _error(path, "no trace: values are nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _error(path, "no trace", str(error)) from None
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        # A cut breaks the last word, or a string, of which the error names the begin.
        if error.msg.startswith("Unterminated string") or re.fullmatch(r"[\w.+-]*\s*", rest[:1000]):
            problem = "the trace is cut off" if error.pos or not rest else "no trace"
            raise _error(path, problem, rest[:40]) from None
        raise _error(path, "no JSON", f"{error.msg}: {rest[:40]}") from None
    return content if isinstance(content, Trace) else Trace(content)


def _decoded(text: str) -> Trace | list[Event]:
    kind = Trace | list[Event]
    try:
        return msgspec.json.decode(text, type=kind)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # NaN, which PyTorch may write, is no JSON; else this says where
        return msgspec.convert(json.loads(text), kind)  # type: ignore[no-any-return]


def _error(path: Path, problem: str, found: str | None = None) -> InputError:
    return InputError(
        problem,
        code="damaged",
        path=path,
        found=found or None,
        expected="a trace as torch.profiler exports it (export_chrome_trace), .json or .json.gz",
        remedy="export it again" if "cut" in problem else None,
    )
