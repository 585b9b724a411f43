"""Tensors of a file: safetensors, or a torch checkpoint read without running its pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.profile.ops.targets import refused


def read_tensors(path: str | Path) -> dict[str, Any]:
    """Name -> tensor. Of a checkpoint with nested dictionaries, the one called ``state_dict`` or ``model``.

    Raises:
        InputError: ``not-found``, ``damaged``, or ``unknown-format`` for what holds no tensors.
    """
    import torch
    from safetensors.torch import load_file

    path = Path(path)
    if not path.is_file():
        raise refused("file not found", "not-found", path=path)
    with path.open("rb") as file:
        start = file.read(9)
    is_safetensors = start[8:] == b"{"  # the length of the header, then JSON
    if not is_safetensors and start[:2] not in (b"PK", b"\x80\x02"):
        expected = "a safetensors file, or one that torch.save wrote"
        raise refused("not a checkpoint", "unknown-format", expected=expected, path=path)
    try:
        if is_safetensors:
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and safetensors errors have no common base
        found = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise refused(
            "damaged checkpoint, or one with other objects than tensors",
            "damaged",
            found=found,
            path=path,
            remedy="save the state dict alone, best as safetensors",
        ) from error
    content = content if isinstance(content, Mapping) else {}
    for key in ("state_dict", "model", "model_state_dict"):
        nested = content.get(key)
        content = nested if isinstance(nested, Mapping) else content
    tensors = {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}
    if tensors:
        return tensors
    raise refused("the checkpoint holds no tensors", "no-data", path=path)
