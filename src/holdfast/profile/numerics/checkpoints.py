"""Tensors of a file: safetensors, or a torch checkpoint read without running its pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def read_tensors(path: str | Path) -> dict[str, Any]:
    """Name -> tensor. Of a checkpoint with nested dictionaries, the one called ``state_dict`` or ``model``.

    Raises:
        InputError: ``not-found``, ``damaged``, or ``unknown-format`` for what holds no tensors.
    """
    import safetensors
    import torch

    path = Path(path)
    if not path.is_file():
        raise InputError("file not found", code="not-found", path=path)
    with path.open("rb") as file:
        start = file.read(9)
    try:
        # A safetensors file starts with the length of its header, then JSON.
        if start[8:] == b"{":
            with safetensors.safe_open(path, framework="pt") as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if start[:2] not in (b"PK", b"\x80\x02"):
            raise InputError(
                "not a checkpoint",
                code="unknown-format",
                path=path,
                expected="a safetensors file, or one that torch.save wrote",
            )
        content = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # zip, pickle and safetensors errors have no common base
        raise InputError(
            "damaged checkpoint, or one with other objects than tensors",
            code="damaged",
            path=path,
            found=(str(error).splitlines() or [type(error).__name__])[0][:200],
            remedy="save the state dict alone, best as safetensors",
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if isinstance(content, Mapping):
        tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}
        if tensors:
            return tensors
    raise InputError("the checkpoint holds no tensors", code="no-data", path=path)
