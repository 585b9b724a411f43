"""Random generators: whether a stage draws from one, and their states."""

from __future__ import annotations

import gc
import hashlib
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from holdfast.data.pipeline.encoding import digest
from holdfast.identity import is_library, references

_NAMES = frozenset(
    "random randint randrange rand randn randperm rand_like randn_like bernoulli multinomial"  # noqa: SIM905
    " default_rng shuffle uuid1 uuid4 urandom token_bytes token_hex".split()
)
_GENERATORS = frozenset({"Generator", "RandomState", "Random", "SystemRandom"})
# Elements of a container that are looked at.
_MOST = 1000


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
    if declared is None and (reason := _reachable(function)):
        return reason
    with random_state_restored():
        for sample in samples:
            before = random_states()
            first = digest(function(_copy(sample)))
            if before != random_states():
                return "draws from a global generator"
            if first != digest(function(_copy(sample))):
                return "two runs of one sample differ"
    return ""


def _reachable(function: Any) -> str:
    """A source of random numbers that can be reached from a function: by its code, closure, attributes."""
    todo, seen = [function], {}
    while todo:
        part = todo.pop()
        if id(part) in seen or isinstance(part, types.ModuleType):
            continue
        seen[id(part)] = part
        kind = type(part)
        if kind.__name__ in _GENERATORS and is_library(kind.__module__):
            return f"holds a generator ({kind.__qualname__})"
        if isinstance(part, types.CodeType) and (names := _NAMES.intersection(part.co_names)):
            return f"{part.co_name} uses {min(names)}"
        todo += _inside(part)
    return ""


def _inside(part: Any) -> Iterable[Any]:
    """What a part of a program refers to; of libraries only what users put into them."""
    match part:
        case types.CodeType():
            return part.co_consts
        case types.FunctionType():
            # A library's wrapper (`functools.wraps`) holds the user's function in its closure.
            if is_library(part.__module__):
                return [part.__closure__]
            return references(part)
        case type() if is_library(part.__module__):
            return []
    # As the garbage collector sees it: containers, attributes, methods, closures, `functools.partial`.
    return itertools.islice(gc.get_referents(part), _MOST)


def _copy(sample: Any) -> Any:
    """A copy, as a stage may change its input in place."""
    try:
        return deepcopy(sample)
    except (TypeError, ValueError):  # an open file, for example
        return sample


# --- States -------------------------------------------------------------------------


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


def random_states() -> str:
    """Fingerprint of the global generators: it changes where a stage draws from them."""
    torch = sys.modules.get("torch")
    numpy: Any = np.random.get_state()  # noqa: NPY002  # what users' transforms draw from
    positions = repr((hash(random.getstate()), numpy[2:])).encode()
    state = hashlib.blake2b(positions + numpy[1].tobytes())
    if torch is not None:
        state.update(torch.get_rng_state().numpy())
    return state.hexdigest()
