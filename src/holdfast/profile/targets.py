"""``package.module:factory`` on the command line -> the object; the current folder is searched first."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def load(text: str, place: str = "TARGET") -> Any:
    """Import what a text names.

    Args:
        text: ``package.module:name``; the name may be dotted. The current folder is on the path.
        place: the argument that the text was given for, for messages.

    Raises:
        InputError: ``invalid-syntax``, or ``not-found`` for a module or name that does not exist.
    """
    module_name, colon, path = text.partition(":")
    if not colon or not module_name or not path:
        raise InputError(
            "invalid target",
            code="invalid-syntax",
            place=place,
            found=text,
            expected="package.module:factory or suite:NAME",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or " "):
            raise  # the module exists and lacks a library
        raise InputError(
            "module not found",
            code="not-found",
            place=place,
            found=module_name,
            remedy="run in the folder that contains it, or install it",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"{module_name} has no {path}", code="not-found", place=place, found=text
            )
        found = getattr(found, part)
    return found
