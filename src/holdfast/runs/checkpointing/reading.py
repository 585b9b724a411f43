"""Loading through `torch.distributed.checkpoint` (DCP), without executing code from a file.

DCP unpickles `.metadata` and every value that is not a tensor without restrictions. Here only the
classes of a checkpoint's table of contents are allowed, and values are loaded as by
`torch.load(weights_only=True)`. DCP also ignores stored values that the state dict does not contain;
here they are an error.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader

from holdfast.errors import InputError
from holdfast.runs.checkpointing.leaves import key_of, leaves, put

_METADATA = ".metadata"
_SHOWN = 3
_MADE = {
    "torch.distributed.checkpoint.metadata": {
        "_MEM_FORMAT_ENCODING",
        *dcp_metadata.__all__,
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "collections": {"OrderedDict"},
}


class _TableOfContents(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _MADE.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def read_metadata(path: Path) -> Any:
    """DCP's table of contents of a checkpoint.

    Raises:
        InputError: if it is none, or names anything else than what such a table consists of.
    """
    try:
        found = _TableOfContents(io.BytesIO((path / _METADATA).read_bytes())).load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise InputError(
            "invalid checkpoint metadata; no code in it was run",
            code="unreadable",
            path=path / _METADATA,
            found=f"{type(error).__name__}: {error}",
            expected="what torch.distributed.checkpoint writes",
        ) from error
    if not isinstance(found, dcp_metadata.Metadata):
        raise InputError(
            "invalid checkpoint metadata",
            code="unknown-format",
            path=path / _METADATA,
            found=type(found).__name__,
            expected="torch.distributed.checkpoint.metadata.Metadata",
        )
    if found.storage_meta is None:
        found.storage_meta = dcp_metadata.StorageMeta()
    return found


class CarefulReader(FileSystemReader):  # type: ignore[misc]  # torch is not typed here
    """Reads a checkpoint whose table of contents was read before."""

    def __init__(self, path: Path, metadata: Any) -> None:
        super().__init__(path)
        self._metadata = metadata

    def read_metadata(self) -> Any:
        """The table of contents."""
        return self._metadata


class CarefulPlanner(DefaultLoadPlanner):  # type: ignore[misc]
    """Loads values that are not tensors without executing code."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        """Take the state dict to load into."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self._paths = {key_of(path): path for path, _ in leaves(state_dict)}

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        """Load a value that is not a tensor.

        Raises:
            InputError: if it would execute code.
        """
        try:
            loaded = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            raise InputError(
                "a value of the checkpoint would run code when it is loaded",
                code="unreadable",
                path=self._path,
                place=read_item.dest_index.fqn,
                found=str(error).partition("\n")[0],
                remedy="if you trust it: torch.serialization.add_safe_globals",
            ) from error
        put(self.original_state_dict, self._paths[read_item.dest_index.fqn], loaded)


def requested_keys(state_dict: dict[str, Any], metadata: Any, path: Path) -> int:
    """Which of a checkpoint's keys a state dict asks for: bit i for the i-th key.

    Raises:
        InputError: if it asks for a key that is not there.
    """
    wanted = {key_of(where) for where, _ in leaves(state_dict)}
    there = metadata.state_dict_metadata
    if lacking := sorted(wanted - there.keys()):
        raise InputError(
            "the checkpoint lacks what the state dict asks for",
            code="missing-key",
            path=path,
            found=f"no {_few(lacking)}",
            expected=f"for example {_few(there)}",
            remedy="load with the model and optimizer of the run that saved it",
        )
    return sum(1 << i for i, key in enumerate(there) if key in wanted)


def refuse_unasked(requested: int, metadata: Any, path: Path) -> None:
    """Raise if the checkpoint holds what no rank asks for.

    Raises:
        InputError: naming the keys.
    """
    there = metadata.state_dict_metadata
    unasked = [key for i, key in enumerate(there) if not requested >> i & 1]
    if unasked:
        raise InputError(
            "the checkpoint holds what the state dict does not ask for, and it would be lost",
            code="unknown-key",
            path=path,
            found=_few(unasked),
            remedy="an optimizer has no state before its first step: get the state with "
            "torch.distributed.checkpoint.state_dict.get_state_dict; or load with strict=False",
        )


def _few(keys: Iterable[str]) -> str:
    listed = list(keys)
    more = f" and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
