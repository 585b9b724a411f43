"""No regular expression of ours goes on for ever, whatever a stranger's text holds."""

from __future__ import annotations

import json
import subprocess
import sys

import regular_expressions

_LIMIT_S = 120  # CPU time for all of them


def _slow(*texts: str) -> dict[str, str]:
    """Which of the expressions of `src`, or of these, are slow."""
    run = [sys.executable, regular_expressions.__file__, str(_LIMIT_S), *texts]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_every_expression_is_fast_on_every_text() -> None:
    assert _slow() == {}


def test_each_expression_is_looked_at_or_has_a_reason() -> None:
    found, unknown = regular_expressions.expressions()
    assert unknown == regular_expressions.OTHERS.keys()
    assert len(found) > 500


def test_slow_ones_are_found() -> None:
    exponential = r"([^\[\],]*[^\[\],\d])\[((?:\d+(?:-\d+)?,?)+)\]"
    slow = [exponential, r"a*b?a*c?a*d", r"-x\s*=?\s*(\S+)"]
    assert len(_slow(*slow)) == len(slow)


def test_fast_ones_are_not() -> None:
    assert _slow(r"(?<!\w)(\w++)\s*+=\s*+(\d+)", r"a{1,8}b{1,8}c", r"^(?:\d+,)*\d+$") == {}
