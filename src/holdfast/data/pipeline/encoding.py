"""Samples as bytes and back, without pickle: what a cache on disk stores.

Plain values, bytes, containers, NumPy arrays, CPU tensors and Pillow images come back equal and of the same
type; any other type is refused, so that a cache never returns something slightly different.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
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


def decode(data: bytes | memoryview) -> Any:
    """The sample that `encode` stored; arrays are fresh and writable."""
    return _unpack(msgspec.msgpack.decode(data))


# Every msgpack array is ``[tag, ...]``; scalars and bytes stand for themselves.


def _pack(value: Any) -> Any:
    kind = type(value)  # exact types: a subclass would come back as its base
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else ["int", str(value)]
    if kind is bytearray:
        return ["bytearray", bytes(value)]
    if kind in (list, tuple):
        return [kind.__name__, [_pack(part) for part in value]]
    if kind is dict:
        return ["dict", [_pack(part) for pair in value.items() for part in pair]]
    if isinstance(value, np.generic) or kind is np.ndarray:
        if value.dtype.hasobject or value.dtype.names:
            raise _unsupported(f"array of {value.dtype}")
        tag = "array" if kind is np.ndarray else "scalar"
        return [tag, value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, PurePath):
        return ["path", str(value)]
    if (torch := sys.modules.get("torch")) and kind is torch.Tensor:
        if value.requires_grad or value.device.type != "cpu" or value.layout != torch.strided:
            raise _unsupported("tensor that is sparse, needs gradients or is not on the CPU")
        # As bytes: NumPy has no bfloat16.
        flat = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return ["tensor", str(value.dtype).removeprefix("torch."), list(value.shape), flat]
    if (pillow := sys.modules.get("PIL.Image")) and isinstance(value, pillow.Image):
        if value.mode not in _MODES:
            raise _unsupported(f"image of mode {value.mode}")
        return ["image", value.mode, list(value.size), value.tobytes(), _pack(dict(value.info))]
    raise _unsupported(f"{kind.__module__}.{kind.__qualname__}")


def _unpack(tree: Any) -> Any:
    if type(tree) is not list:
        return tree
    tag, *parts = tree
    match tag:
        case "int":
            return int(parts[0])
        case "bytearray":
            return bytearray(parts[0])
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
        case "path":
            from pathlib import Path

            return Path(parts[0])
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


def _unsupported(what: str) -> InputError:
    return InputError(
        "a value of this type cannot be cached on disk",
        code="unsupported",
        found=what,
        expected="plain values, bytes, lists, tuples, dicts, NumPy arrays, CPU tensors, Pillow images",
        remedy="place the cache at another stage, or return one of these types",
    )
