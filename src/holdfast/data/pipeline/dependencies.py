"""What a function depends on: the code, constants and objects reachable from it.

One walk answers two questions: is a stage random, and has it changed since a cache was written. The walk is
that of pickle, whose output is hashed and never loaded; it goes into the user's functions and classes, and
installed libraries count by their version.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path, PurePath
from typing import Any

import numpy as np

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})
_BUILT_IN = frozenset({"builtins", *sys.builtin_module_names})
_RANDOM_NAMES = frozenset(
    "random randint randrange rand randn randperm rand_like randn_like bernoulli multinomial"  # noqa: SIM905
    " default_rng shuffle uuid1 uuid4 urandom token_bytes token_hex".split()
)
_OPAQUE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)
_GENERATORS = frozenset({"Generator", "RandomState", "Random", "SystemRandom"})


def _is_library(module: str | None) -> bool:
    """Whether a module belongs to an installed library."""
    if not module:
        return False
    if module.split(".")[0] == "holdfast":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file.startswith(_LIBRARIES) if file else module in _BUILT_IN


def _identity(part: Any) -> str:
    """Name and version of something that a library or module defines."""
    module = getattr(part, "__module__", None) or getattr(type(part), "__module__", "")
    version = getattr(sys.modules.get(module.split(".")[0]), "__version__", sys.version)
    return f"{module}.{getattr(part, '__qualname__', getattr(part, '__name__', ''))} {version}"


class _Walk(pickle.Pickler):
    """Writes whatever identifies an object; notes signs of randomness on the way."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.fast = True  # no memo: equal objects give equal bytes, whether or not they are one
        self.random = ""
        self._inside: dict[int, Any] = {}

    def persistent_id(self, part: Any) -> Any:
        """Files that are named count with their size and time; sets have an order; generators are noted."""
        if isinstance(part, (set, frozenset)):
            return sorted(part, key=repr)
        if isinstance(part, str | PurePath):
            state = _file_state(part)
            return (str(part).encode(), state) if state else None
        kind = type(part)
        if kind.__name__ in _GENERATORS and _is_library(kind.__module__):
            self.random = self.random or f"holds a generator ({kind.__qualname__})"
        return None

    def reducer_override(self, part: Any) -> Any:
        """What is in functions and classes, which pickle takes by their names."""
        if (torch := sys.modules.get("torch")) and isinstance(part, torch.Tensor):
            plain = part.detach().cpu().to_dense().as_subclass(torch.Tensor).contiguous()
            content = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            return tuple, (str(part.dtype), tuple(part.shape), content)
        match part:
            case types.ModuleType() | logging.Logger():
                return str, (
                    f"{getattr(part, '__name__', part)} {getattr(part, '__version__', '')}",
                )
            case types.CodeType():
                if names := _RANDOM_NAMES.intersection(part.co_names):
                    self.random = self.random or f"{part.co_name} uses {min(names)}"
                return tuple, (part.co_code, part.co_names, part.co_varnames, part.co_consts)
            case types.MethodType():
                return tuple, (part.__func__, part.__self__)
            case staticmethod() | classmethod():
                return tuple, (part.__func__,)
            case property():
                return tuple, (part.fget,)
            case types.MemberDescriptorType() | types.GetSetDescriptorType():
                return str, (part.__name__,)
            case types.FunctionType():
                return tuple, (_identity(part), *self._once(part, _function))
            case type() if part.__module__ != "builtins":
                return tuple, (_identity(part), *self._once(part, _class))
            case types.BuiltinMethodType() if not isinstance(
                part.__self__, types.ModuleType | type
            ):
                return tuple, (part.__name__, part.__self__)
        module = getattr(part, "__module__", None) or type(part).__module__
        if callable(part) and hasattr(part, "__name__") and not isinstance(part, type):
            return (str, (_identity(part),)) if _is_library(module) else NotImplemented
        return NotImplemented

    def _once(self, part: Any, inner: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The inside of a function or class where it is first met: they may refer to themselves."""
        if id(part) in self._inside:
            return ()
        self._inside[id(part)] = part
        return inner(part)


def _file_state(path: str | PurePath) -> tuple[int, int] | None:
    """Size and time of a file that a text names."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return None
    # A folder's time is not that of the files in it.
    return (state.st_size, state.st_mtime_ns) if state.st_mode & 0o100000 else None


def _function(part: types.FunctionType) -> tuple[Any, ...]:
    # A library's wrapper (`functools.wraps`) holds the user's function in its closure.
    cells = [_content(cell) for cell in part.__closure__ or ()]
    if _is_library(part.__module__):
        return (cells,)
    used = [part.__globals__.get(name) for name in _global_names(part.__code__)]
    return part.__code__, part.__defaults__, part.__kwdefaults__, cells, used


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _global_names(code: types.CodeType) -> list[str]:
    """Names that a function and the functions in it may take from their module."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return list(dict.fromkeys([*code.co_names, *(n for c in inner for n in _global_names(c))]))


def _class(part: type) -> tuple[Any, ...]:
    if _is_library(part.__module__):
        return ()
    own = [
        value
        for name, value in vars(part).items()
        if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc"))
    ]
    return part.__bases__, own


def fingerprint(*parts: Any) -> str | None:
    """Hash of the code and data that the parts depend on; None if something cannot be looked into.

    Files that are named count with their size and modification time, installed libraries with their
    version.
    """
    file = io.BytesIO()
    walk = _Walk(file)
    try:
        walk.dump(parts)
    except _OPAQUE:
        return None
    return None if walk.random.startswith("holds") else hashlib.sha256(file.getvalue()).hexdigest()


def digest(value: Any) -> str:
    """Hash of all values in a sample or batch, in their order; its text where it cannot be looked into."""
    file = io.BytesIO()
    try:
        _Walk(file).dump(value)
    except _OPAQUE:
        return repr(value)
    return hashlib.sha256(file.getvalue()).hexdigest()


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
    walk = _Walk(io.BytesIO())
    with suppress(*_OPAQUE):  # then the runs must show it
        walk.dump(function)
    if declared is None and walk.random:
        return walk.random
    with random_state_restored():
        for sample in samples:
            before = _random_states()
            first = digest(function(_copy(sample)))
            if before != _random_states():
                return "draws from a global generator"
            if first != digest(function(_copy(sample))):
                return "two runs of one sample differ"
    return ""


@contextmanager
def random_state_restored(*generators: Any) -> Iterator[None]:
    """Leave the global random generators, and some of torch, as they were."""
    states: list[tuple[Callable[[Any], object], Any]] = [
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),  # noqa: NPY002
        *((generator.set_state, generator.get_state()) for generator in generators),
    ]
    if torch := sys.modules.get("torch"):
        states.append((torch.set_rng_state, torch.get_rng_state()))
    try:
        yield
    finally:
        for restore, state in states:
            restore(state)


def _random_states() -> str:
    torch = sys.modules.get("torch")
    numpy = np.random.get_state()  # noqa: NPY002
    return digest((random.getstate(), numpy, torch and torch.get_rng_state()))


def _copy(sample: Any) -> Any:
    """A copy, as a stage may change its input in place."""
    try:
        return deepcopy(sample)
    except (TypeError, ValueError):  # an open file, for example
        return sample
