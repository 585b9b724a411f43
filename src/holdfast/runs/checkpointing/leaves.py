"""A state dict as DCP flattens it: which values it saves one by one, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

Path = tuple[Any, ...]
"""Where a value stands in a state dict: keys and indices."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values that DCP saves one by one: mappings are entered, and lists that hold mappings or tensors.

    Keys keep their types. (DCP makes them strings, and so would load ``{0: "a"}`` as ``{"0": "a"}``.)
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif _is_entered(value):
        for index, part in enumerate(value):
            yield from leaves(part, (*path, index))
    else:
        yield path, value


def key_of(path: Path) -> str:
    """The key under which DCP saves a value."""
    return ".".join(map(str, path))


def put(state_dict: Any, path: Path, value: Any) -> None:
    """Replace a value in place."""
    for key in path[:-1]:
        state_dict = state_dict[key]
    state_dict[path[-1]] = value


def _is_entered(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(part, (Mapping, torch.Tensor)) or _is_entered(part) for part in value
    )
