"""What a function depends on: the code, constants and objects reachable from it.

Two questions are answered from one walk: is a stage random, and has it changed since a cache was written.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import logging
import random
import stat
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from holdfast.data.pipeline.encoding import encode
from holdfast.errors import InputError

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})
_BUILT_IN = frozenset({"builtins", *sys.builtin_module_names})
_RANDOM_NAMES = frozenset(
    [
        *("random", "randint", "randrange", "rand", "randn", "randperm", "rand_like", "randn_like"),
        *("bernoulli", "multinomial", "default_rng", "shuffle", "uuid1", "uuid4", "urandom"),
        *("token_bytes", "token_hex"),
    ]
)
_GENERATORS = frozenset({"Generator", "RandomState", "Random", "SystemRandom"})
_RANDOM_LIBRARIES = frozenset({"numpy", "random", "torch"})
_PLAIN = (bool, int, float, complex, str, bytes, type(...), type(NotImplemented))


def _is_library(module: str | None) -> bool:
    """Whether a module belongs to an installed library: then its version stands for its code."""
    if not module:
        return False
    if module.split(".")[0] == "holdfast":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file.startswith(_LIBRARIES) if file else module in _BUILT_IN


def _version(module: str | None) -> str:
    top = (module or "").split(".")[0]
    return str(getattr(sys.modules.get(top), "__version__", sys.version))


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Everything reachable from an object, depth first in a stable order, without going into libraries.

    Yields:
        ("text", what identifies a part), ("data", bytes), ("code", code object), ("generator", random
        generator) or ("opaque", object that cannot be looked into).
    """
    seen: dict[int, tuple[int, Any]] = {}  # the object too: an id is reused once its object is gone
    stack = [root]
    while stack:
        part = stack.pop()
        kind = type(part)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if part is None or kind in _PLAIN:
            yield "text", f"{name} {part!r}"
            if isinstance(part, str) and (state := _file_state(part)):
                yield "text", state
            continue
        if id(part) in seen:
            yield "text", f"again {seen[id(part)][0]}"
            continue
        seen[id(part)] = len(seen), part
        if kind.__name__ in _GENERATORS and kind.__module__.split(".")[0] in _RANDOM_LIBRARIES:
            yield "generator", part
            continue
        if isinstance(part, types.CodeType):
            yield "code", part
            stack.append(part.co_consts)
            continue
        inner = _inside(part, kind)
        if inner is None:
            yield "opaque", part
            continue
        labels, parts = inner
        for label in labels:
            yield ("text" if isinstance(label, str) else "data"), label
        stack.extend(reversed(parts))


def _file_state(path: str | PurePath) -> str:
    """Size and time of a file that a text names; empty if it names none."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return ""
    # A folder's time is not that of the files in it.
    regular = stat.S_ISREG(state.st_mode)
    return f"{state.st_size} bytes, modified {state.st_mtime_ns}" if regular else ""


def _inside(part: Any, kind: type) -> tuple[list[str | bytes], list[Any]] | None:
    """What identifies an object by itself, and the objects in it; None if it cannot be looked into."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    match part:
        case types.FunctionType():
            return _function(part)
        case types.MethodType():
            return [name], [part.__func__, part.__self__]
        case functools.partial():
            return [name], [part.func, part.args, part.keywords]
        case types.ModuleType():
            return [f"{part.__name__} {_version(part.__name__)}"], []
        case types.BuiltinFunctionType():
            owner = part.__self__
            bound = owner is not None and not isinstance(owner, types.ModuleType | type)
            return [f"{part.__qualname__} {_version(part.__module__)}"], [owner] if bound else []
        case type():
            return _class(part)
        case staticmethod() | classmethod():
            return [name], [part.__func__]
        case property():
            return [name], [part.fget]
        case dict():
            return [name], [item for pair in part.items() for item in pair]
        case list() | tuple():
            return [f"{name} {len(part)}"], list(part)
        case set() | frozenset():
            return [name], sorted(part, key=repr)
        case range() | slice() | np.dtype() | types.GenericAlias() | types.UnionType():
            return [f"{name} {part!r}"], []
        case PurePath():
            return [f"{name} {part} {_file_state(part)}"], []
        case logging.Logger() | types.MemberDescriptorType() | types.GetSetDescriptorType():
            return [name], []
    module = getattr(part, "__module__", None) or kind.__module__
    if callable(part) and isinstance(getattr(part, "__name__", None), str) and _is_library(module):
        return [f"{module}.{part.__name__} {_version(module)}"], []  # compiled functions
    try:
        return [name, encode(part)], []  # arrays, tensors, images
    except InputError:
        pass
    # What pickle would store of it, without storing it: objects with hidden state refuse.
    try:
        reduce = copyreg.dispatch_table.get(kind)
        parts = reduce(part) if reduce else part.__reduce_ex__(4)
    except (TypeError, AttributeError):
        return None
    if isinstance(parts, str):
        return [name, parts], []
    return [name], [kind, *(list(p) if isinstance(p, Iterator) else p for p in parts)]


def _class(part: type) -> tuple[list[str | bytes], list[Any]]:
    label: list[str | bytes] = [
        f"{part.__module__}.{part.__qualname__} {_version(part.__module__)}"
    ]
    if _is_library(part.__module__):
        return label, []
    own = [
        value
        for name, value in vars(part).items()
        if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc"))
    ]
    return label, [part.__bases__, *own]


def _function(part: types.FunctionType) -> tuple[list[str | bytes], list[Any]]:
    label = f"{part.__module__}.{part.__qualname__}"
    # A library's wrapper (`functools.wraps`) holds the user's function in its closure.
    cells = [cell.cell_contents for cell in part.__closure__ or () if _filled(cell)]
    if _is_library(part.__module__):
        return [label, _version(part.__module__)], cells
    names = _global_names(part.__code__)
    used = [part.__globals__[name] for name in names if name in part.__globals__]
    return [label], [part.__code__, part.__defaults__, part.__kwdefaults__, cells, used]


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _global_names(code: types.CodeType) -> list[str]:
    """Names that a function and the functions in it may take from their module."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_global_names(constant))
    return list(names)


def fingerprint(*parts: Any) -> str | None:
    """Hash of the code and data that the parts depend on; None if something cannot be looked into.

    Files that are named by an absolute path count with their size and modification time, installed
    libraries with their version.
    """
    digest = hashlib.sha256(sys.version.encode())
    for kind, part in _walk(parts):
        if kind in ("opaque", "generator"):
            return None
        if kind == "code":
            part = part.co_code + repr((part.co_names, part.co_varnames)).encode()
        data = part.encode() if isinstance(part, str) else part
        digest.update(kind.encode() + len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def randomness(
    function: Callable[[Any], Any], samples: Sequence[Any], declared: bool | None = None
) -> str:
    """Why a function counts as random; empty if nothing shows that it is.

    Evidence, any of which is enough: it is declared; a generator or the name of a source of random numbers
    is reachable from it (unless it is declared as not random); a run changes the state of a global
    generator; two runs of a sample differ. The states of the global generators are restored.

    Args:
        function: the stage.
        samples: inputs to run it on, twice.
        declared: what the user says.
    """
    if declared:
        return "declared"
    if declared is None:
        for kind, part in _walk(function):
            if kind == "generator":
                return f"holds a generator ({type(part).__qualname__})"
            if kind == "code" and (names := _RANDOM_NAMES.intersection(part.co_names)):
                return f"{part.co_name} uses {min(names)}"
    states = _global_states()
    try:
        for sample in samples:
            before = _digest([state for _, state in _global_states()])
            first = _digest(function(_copy(sample)))
            if before != _digest([state for _, state in _global_states()]):
                return "draws from a global generator"
            if first != _digest(function(_copy(sample))):
                return "two runs of one sample differ"
    finally:
        for restore, state in states:
            restore(state)
    return ""


def _copy(sample: Any) -> Any:
    """A copy, as a stage may change its input in place."""
    try:
        return deepcopy(sample)
    except (TypeError, ValueError):  # an open file, for example
        return sample


def _global_states() -> list[tuple[Callable[[Any], None], Any]]:
    states: list[tuple[Callable[[Any], None], Any]] = [
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),  # noqa: NPY002
    ]
    if torch := sys.modules.get("torch"):
        states.append((torch.set_rng_state, torch.get_rng_state()))
    return states


def _digest(value: Any) -> bytes:
    try:
        data = encode(value)
    except InputError:
        import pickle

        data = pickle.dumps(value)
    return hashlib.sha256(data).digest()
