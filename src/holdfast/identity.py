"""What functions and objects of the user's code depend on, and a hash of it for every process.

Work is resumed only if nothing of it has changed. Names alone do not tell a function from another: a
closure, `functools.partial` or an object has settings of its own.
"""

from __future__ import annotations

import gc
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})
_BUILT_IN = frozenset({"builtins", *sys.builtin_module_names})


def is_library(module: str | None) -> bool:
    """Whether a module belongs to an installed library."""
    if not module or module.split(".")[0] == "holdfast":
        return bool(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    return file.startswith(_LIBRARIES) if file else module in _BUILT_IN


def references(function: types.FunctionType) -> list[Any]:
    """A function's instructions, closure and defaults, and the values that it may take from its module."""
    names = dict.fromkeys(_global_names(function.__code__))
    used = [function.__globals__.get(name) for name in names]
    own = [function.__code__, function.__closure__, function.__defaults__, function.__kwdefaults__]
    return [*own, *used]


def _global_names(code: types.CodeType) -> list[str]:
    """Names that a function, and the functions in it, may take from their module."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [*code.co_names, *(name for each in inner for name in _global_names(each))]


def fingerprint(value: Any) -> str:
    """Hash of an object that is the same in every process.

    A function counts with its `references`; an object with its attributes and what its class, and the
    classes above it, define. What libraries define counts by name.
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
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(part, torch.Tensor):
        # Anew: those of no or one number may have strides that `view` refuses.
        numbers = torch.empty(part.numel(), dtype=part.dtype).copy_(part.detach().flatten())
        kind = str(part.dtype), tuple(part.shape), part.requires_grad
        return [*kind, numbers.view(torch.uint8).numpy()]
    match part:
        case list() | tuple():
            return part
        case dict():
            return [entry for pair in part.items() for entry in pair]
        case set() | frozenset():
            return sorted(map(repr, part))
        case types.CodeType():
            return [part.co_code, part.co_names, part.co_consts]
        case types.FunctionType():
            # A library's wrapper (`functools.wraps`) holds the user's function in its closure.
            known = slice(1, 4) if is_library(part.__module__) else slice(None)
            return [part.__module__, part.__qualname__, *references(part)[known]]
        case type() if is_library(part.__module__):
            return [part.__module__, part.__qualname__]
        case type():
            own = [
                each
                for name, value in vars(part).items()
                if not name.startswith("__") or isinstance(value, types.FunctionType)
                for each in (name, value)
            ]
            return [part.__module__, part.__qualname__, *part.__bases__, *own]
        case staticmethod() | classmethod():
            return [part.__func__]
        case property():
            return [part.fget]
        case types.CellType():
            return gc.get_referents(part)
    try:
        return list(part.__reduce_ex__(2))
    except Exception:  # a lock, a generator, an open file, a module: its type counts
        return ()
