"""``module:function`` on the command line: the function that builds and returns the loader."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def load(target: str) -> Callable[[], Any]:
    """Import the function; the current folder is searched first.

    Args:
        target: ``package.module:function`` or ``path/to/file.py:function``.

    Raises:
        InputError: ``invalid-syntax``, or ``not-found`` for a module or function that does not exist.
    """
    module, colon, name = target.partition(":")
    refused = partial(InputError, place="MODULE:FUNCTION", found=target)
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
        function = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or " "):
            raise  # the module exists and lacks a library
        function = None
    if not callable(function):
        remedy = "run in the folder that contains the module, or install it"
        raise refused("function not found", code="not-found", remedy=remedy)
    return function


def built(make: Callable[[], Any]) -> tuple[Any, Callable[[Any], object] | None]:
    """The loader that a function returns, and the consumer of its batches if it returns both."""
    loader = make()
    if isinstance(loader, tuple) and len(loader) == 2 and callable(loader[1]):
        return loader
    return loader, None
