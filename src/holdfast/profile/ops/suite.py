"""The models of the suite at their true shapes: published configurations, no weights.

`suite.json` has the configuration, the published number of parameters and the source of each; here is what
each is called with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.config import read_config, unknown_key
from holdfast.errors import InputError
from holdfast.profile.ops.running import Workload

DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Shape:
    """What a model of the suite is called with; 0: its usual size."""

    batch: int = 1
    image_size: int = 0
    """Pixels of a side."""
    frames: int = 0
    length: int = 0
    """Tokens of the prompt; of the cache for `llama-7b-decode`."""
    dtype: str = "bfloat16"

    def floats(self, *sides: int) -> Tensor:
        """Numbers of the model's type."""
        return torch.empty(self.batch, *sides, dtype=getattr(torch, self.dtype), device="meta")

    def tokens(self, *sides: int) -> Tensor:
        """Indices."""
        return torch.zeros(self.batch, *sides, dtype=torch.int64, device="meta")


class Decode(nn.Module):
    """Calls the decoder of an autoencoder."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latents: Tensor) -> Any:
        """[B, 4, H / 8, W / 8] -> image [B, 3, H, W]."""
        return self.vae.decode(latents)  # type: ignore[operator]


def _timestep(shape: Shape) -> Tensor:
    return torch.zeros(shape.batch, dtype=torch.int64, device="meta")


def _prefill(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    return (s.tokens(s.length or 1024),)


def _unet(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = (s.image_size or 512) // 8
    return s.floats(4, side, side), _timestep(s), s.floats(s.length or 77, 768)


def _vae(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = (s.image_size or 512) // 8
    return (s.floats(4, side, side),)


def _text(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    return (s.tokens(s.length or 77),)


def _unet3d(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = (s.image_size or 256) // 8
    return s.floats(4, s.frames or 16, side, side), _timestep(s), s.floats(s.length or 77, 1024)


def _amused(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = (s.image_size or 256) // 16
    return s.tokens(side, side), s.floats(s.length or 77, 768), s.floats(768), s.floats(5)


def _imagen(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = s.image_size or 64
    return s.floats(3, side, side), s.floats(512), s.floats(s.length or 256, 4096)


def _make_a_video(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    side = s.image_size or 64
    return s.floats(3, s.frames or 16, side, side), s.floats(576), s.floats(s.length or 77, 768)


def _parti(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    return s.tokens(s.length or 128), s.tokens(((s.image_size or 256) // 8) ** 2)


def _phenaki(_: nn.Module, s: Shape) -> tuple[Any, ...]:
    # The first frame alone, then pairs of frames; patches of 8 x 8 pixels.
    frames, side = 1 + ((s.frames or 11) - 1) // 2, (s.image_size or 128) // 8
    return s.tokens(frames * side * side), s.floats(s.length or 64, 1024)


_INPUTS: Mapping[str, Callable[[nn.Module, Shape], tuple[Any, ...]]] = {
    "stable-diffusion-unet": _unet,
    "stable-diffusion-vae": _vae,
    "clip-text": _text,
    "t5-xxl": _text,
    "unet3d": _unet3d,
    "amused": _amused,
    "llama-7b": _prefill,
    "llama-7b-decode": _text,
    "imagen": _imagen,
    "parti": _parti,
    "phenaki": _phenaki,
    "make-a-video": _make_a_video,
}

PIPELINES: Mapping[str, list[tuple[str, str, int]]] = {
    # (component, model, calls; 0: once per step); guidance runs text and UNet on two prompts
    "stable-diffusion": [
        ("text_encoder", "clip-text", 1),
        ("unet", "stable-diffusion-unet", 0),
        ("vae", "stable-diffusion-vae", 1),
    ],
    "llama": [("prefill", "llama-7b", 1), ("decode", "llama-7b-decode", 0)],
}
"""Pipelines of several models."""
GUIDED = ("clip-text", "stable-diffusion-unet")


@cache
def entries() -> dict[str, Any]:
    """What `suite.json` says of each model; one that decodes is its model called otherwise."""
    found = json.loads(Path(__file__).with_name("suite.json").read_text(encoding="utf-8"))
    return {**found, "llama-7b-decode": found["llama-7b"]}


def names() -> list[str]:
    """Models and pipelines."""
    return [*_INPUTS, *PIPELINES]


@contextmanager
def building(dtype: str, device: str) -> Iterator[None]:
    """Modules made in the block have a type and a device; their random weights a seed."""
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def build(name: str, dtype: str = "bfloat16", device: str = "meta") -> nn.Module:
    """A model of the suite without its inputs."""
    entry = entries()[name]
    library = import_module(entry["library"])
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["config"].items()}
    with building(dtype, device):
        if "config_class" in entry:
            model = getattr(library, entry["class"])(getattr(library, entry["config_class"])(**config))
        else:
            model = getattr(library, entry["class"])(**config)
    return (Decode(model) if name.endswith("vae") else model).eval()


def workload(name: str, settings: Mapping[str, Any] | None = None) -> Workload:
    """A model of the suite and what it is called with.

    Args:
        name: see `names`; not a pipeline.
        settings: fields of `Shape`.

    Raises:
        InputError: ``unknown-name``, ``unknown-key``, ``invalid-value``.
    """
    if name not in _INPUTS:
        raise InputError(
            "unknown model of the suite",
            code="unknown-name",
            place="TARGET",
            found=name,
            expected=f"one of {', '.join(names())}",
        )
    for key in settings or {}:
        if key not in {field.name for field in fields(Shape)}:
            raise unknown_key(key, [field.name for field in fields(Shape)], "--set")
    shape = read_config({**(settings or {})}, Shape, "the settings")
    if shape.dtype not in DTYPES:
        raise InputError(
            "unknown type",
            code="invalid-value",
            place="dtype",
            found=shape.dtype,
            expected=f"one of {', '.join(DTYPES)}",
        )
    for field in ("batch", "image_size", "frames", "length"):
        if getattr(shape, field) < (field == "batch"):
            raise InputError(
                f"invalid {field}",
                code="out-of-range",
                place=field,
                found=str(getattr(shape, field)),
                expected="a positive number",
            )
    model = build(name, shape.dtype)
    work = Workload(model, _INPUTS[name](model, shape), name=f"suite:{name}")
    if name.startswith("llama"):
        # With a cache transformers does not look into the positions, and calls attention as causal.
        work.kwargs["use_cache"] = True
    if name == "llama-7b-decode":
        work.args = (shape.tokens(1),)
        work.kwargs["past_key_values"] = _filled_cache(model, shape)
    work.rebuild = lambda device: build(name, shape.dtype, device)
    return work


def _filled_cache(model: Any, shape: Shape) -> Any:
    from transformers import DynamicCache

    heads = model.config.num_key_value_heads
    dim = model.config.hidden_size // model.config.num_attention_heads
    filled = DynamicCache(config=model.config)
    for layer in range(model.config.num_hidden_layers):
        keys, values = (shape.floats(heads, shape.length or 1024, dim) for _ in range(2))
        filled.update(keys, values, layer)
    return filled
