"""Errors: each says by a code what kind of mistake it is."""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast


def test_every_input_error_has_a_code() -> None:
    root = Path(holdfast.__file__).parent
    sources = ((path, path.read_bytes()) for path in sorted(root.rglob("*.py")))
    lacking = [
        f"{path.relative_to(root)}:{call.lineno}"
        for path, text in sources
        if b"InputError(" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", getattr(call.func, "attr", "")) == "InputError"
        and not any(keyword.arg in ("code", None) for keyword in call.keywords)  # None: **facts
    ]
    assert lacking == []
