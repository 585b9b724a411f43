"""What a run depends on, as hashes: settings, data, models, and functions with all that they refer to.

A run is resumed with the same bits only if nothing of it has changed. Names alone do not tell a function
from another: a closure, `functools.partial` or an object has settings of its own.
"""

from __future__ import annotations

import gc
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

import torch

from holdfast.federated.training import as_array

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_LIBRARIES = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))


def fingerprint(value: Any) -> str:
    """Hash of an object that is the same in every process.

    A function counts with its instructions, defaults and closure, and the values that it takes from its
    module; an object with its attributes and the functions of its class. What libraries define counts by
    name.
    """
    digest, waiting = hashlib.sha256(), [value]
    seen: dict[int, Any] = {}  # objects are kept, so that no id is used again
    while waiting:
        part = waiting.pop()
        said, inside = f"{type(part).__module__}.{type(part).__qualname__} ", []
        if isinstance(part, _ATOMS):
            said += hashlib.sha256(part).hexdigest() if isinstance(part, bytes) else repr(part)
        elif isinstance(part, tuple) or id(part) not in seen:
            # Equal tuples are one object or several, as Python likes; others can be in a cycle.
            seen[id(part)] = part
            inside = list(_inside(part))
        digest.update(f"{said} {len(inside)}\n".encode())
        waiting += reversed(inside)
    return digest.hexdigest()[:16]


def _inside(part: Any) -> Iterable[Any]:
    """What an object consists of."""
    match part:
        case torch.Tensor():
            return [str(part.dtype), as_array(part)]
        case list() | tuple():
            return part
        case dict():
            return [entry for pair in part.items() for entry in pair]
        case set() | frozenset():
            return sorted(map(repr, part))
        case types.CodeType():
            return [part.co_code, part.co_names, part.co_consts]
        case types.FunctionType():
            names = [] if _of_library(part) else _global_names(part.__code__)
            used = [part.__globals__.get(name) for name in names]
            own = [part.__code__, part.__defaults__, part.__kwdefaults__, part.__closure__]
            return [part.__module__, part.__qualname__, *own, *used]
        case type():
            own = [] if _of_library(part) else vars(part).values()
            functions = [each for each in own if isinstance(each, types.FunctionType)]
            return [part.__module__, part.__qualname__, *functions]
        case types.CellType():
            return gc.get_referents(part)
    try:
        return list(part.__reduce_ex__(2))
    except Exception:  # a lock, a generator, an open file, a module: its type counts
        return ()


def _of_library(part: Any) -> bool:
    """Whether a function or class is of an installed library, or built in."""
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    return part.__module__ != "__main__" and (file is None or file.startswith(_LIBRARIES))


def _global_names(code: types.CodeType) -> list[str]:
    """Names that a function, and the functions in it, may take from their module."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [*code.co_names, *(name for each in inner for name in _global_names(each))]
