"""Samples as bytes and back, without pickle: what a cache on disk stores.

Plain values, bytes, containers, NumPy arrays, CPU tensors and Pillow images come back equal and of the same
type; any other type is refused, so that a cache never returns something slightly different.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from holdfast.errors import InputError

_MODES = frozenset({"1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F"})  # without a palette


def encode(value: Any) -> bytes:
    """A sample as bytes.

    Raises:
        InputError: `unsupported`, with the type that cannot be stored.
    """
    return msgspec.msgpack.encode(_pack(value))


def digest(value: Any) -> str:
    """Hash of all values in a sample or batch, in their order.

    Files that are named count with their size and time; objects that are not stored, with their attributes.
    """
    return hashlib.sha256(msgspec.msgpack.encode(_pack(value, _described))).hexdigest()


def decode(data: bytes | memoryview) -> Any:
    """The sample that `encode` stored; arrays are fresh and writable."""
    return _unpack(msgspec.msgpack.decode(data))


# Every msgpack array is ``[tag, ...]``; scalars and bytes stand for themselves.


def _unsupported(value: Any) -> Any:
    raise InputError(
        "a value of this type cannot be cached on disk",
        code="unsupported",
        found=f"{type(value).__module__}.{type(value).__qualname__}",
        expected="plain values, bytes, lists, tuples, dicts, NumPy arrays, CPU tensors, Pillow images",
        remedy="place the cache at another stage, or return one of these types",
    )


def _pack(value: Any, other: Callable[[Any], Any] = _unsupported) -> Any:
    """A tree that msgpack takes; of other types whatever `other` makes of them."""
    kind = type(value)  # exact types: a subclass would come back as its base
    if kind in (str, Path) and other is not _unsupported:
        return [str(value), _file_state(value)]
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else ["int", str(value)]
    if kind in (list, tuple):
        return [kind.__name__, [_pack(part, other) for part in value]]
    if kind is dict:
        return ["dict", [_pack(part, other) for pair in value.items() for part in pair]]
    plain = isinstance(value, np.generic) or kind is np.ndarray
    if plain and not value.dtype.hasobject and not value.dtype.names:
        tag = "array" if kind is np.ndarray else "scalar"
        return [tag, value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    torch, pillow = sys.modules.get("torch"), sys.modules.get("PIL.Image")
    tensor = torch and kind is torch.Tensor and not value.requires_grad
    if torch and tensor and value.is_cpu and value.layout is torch.strided:
        # As bytes: NumPy has no bfloat16.
        flat = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return ["tensor", str(value.dtype).removeprefix("torch."), list(value.shape), flat]
    if pillow and isinstance(value, pillow.Image) and value.mode in _MODES:
        info = _pack(dict(value.info), other)
        return ["image", value.mode, list(value.size), value.tobytes(), info]
    return other(value)


def _described(value: Any) -> Any:
    """What tells apart values of types that are not stored."""
    # A tensor with gradients, on a device, or of a class of its own.
    if hasattr(value, "as_subclass"):
        import torch

        return _pack(value.detach().cpu().to_dense().as_subclass(torch.Tensor), _described)
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    elif isinstance(value, Mapping):
        value = {repr(key): part for key, part in value.items()}
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        value = list(value)
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    else:  # a class of the user's
        value = dict(vars(value)) if hasattr(value, "__dict__") else repr(value)
    return _pack(value, _described)


def _file_state(path: str | Path) -> list[int] | None:
    """Size and time of a file that a text names; a folder's time is not that of the files in it."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return None
    return [state.st_size, state.st_mtime_ns] if state.st_mode & 0o100000 else None


def _unpack(tree: Any) -> Any:
    if type(tree) is not list:
        return tree
    tag, *parts = tree
    match tag:
        case "int":
            return int(parts[0])
        case "list":
            return [_unpack(part) for part in parts[0]]
        case "tuple":
            return tuple(_unpack(part) for part in parts[0])
        case "dict":
            flat = [_unpack(part) for part in parts[0]]
            return dict(zip(flat[::2], flat[1::2], strict=True))
        case "array" | "scalar":
            dtype, shape, data = parts
            array = np.frombuffer(data, dtype).reshape(shape)
            return array.copy() if tag == "array" else array[()]
        case "tensor":
            import torch

            name, shape, data = parts
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else None
            dtype = getattr(torch, name)
            return torch.empty(shape, dtype=dtype) if flat is None else flat.view(dtype).view(shape)
        case _:
            from PIL import Image

            mode, size, data, info = parts
            image = Image.frombytes(mode, tuple(size), data)
            image.info = _unpack(info)
            return image
