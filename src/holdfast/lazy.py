"""A package's public names, each imported when it is first used: a command loads only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: public name -> the module below the package that has it, or ``module:name`` where it is
            called something else there.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, called = homes[name].partition(":")
        return getattr(import_module(f"{package}.{module}"), called or name)

    return __getattr__
