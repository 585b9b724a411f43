"""``module:function`` on the command line: a function of the user's code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def load(target: str, place: str = "TARGET") -> Callable[..., Any]:
    """Import a function; the current folder is searched first.

    Args:
        target: ``package.module:function`` or ``path/to/file.py:function``; the name may be dotted.
        place: the argument that the text was given for, for messages.

    Raises:
        InputError: ``invalid-syntax``, or ``not-found`` for a module or function that does not exist.
    """
    module, colon, name = target.partition(":")
    refused = partial(InputError, place=place, found=target)
    if not colon or not module or not name:
        expected = "package.module:function or path/to/file.py:function"
        raise refused("invalid target", code="invalid-syntax", expected=expected)
    folder = Path.cwd()
    if module.endswith(".py"):  # worker processes must be able to import it too
        path = Path(module).resolve()
        folder, module = path.parent, path.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or " "):
            raise  # the module exists and lacks a library
        remedy = "run in the folder that contains the module, or install it"
        raise refused("module not found", code="not-found", remedy=remedy) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise refused(f"{module} has no function {name}", code="not-found")
    return found
