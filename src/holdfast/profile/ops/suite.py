"""The models of the suite at their true shapes: published configurations, no weights.

`suite.json` has of each model the configuration, its usual shape, its inputs, the published number of
parameters and the sources. Sides of inputs: B batch, F frames, T tokens of text, L pixels or patches of a
side, N patches in all, D the type of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.config import read_config
from holdfast.profile.ops.inputs import read_inputs, read_tensor
from holdfast.profile.ops.running import Workload
from holdfast.profile.ops.targets import choice, refused, table

DTYPES = ("float32", "bfloat16", "float16", "float64")
_DECODE = "llama-7b-decode"
# Pipelines of several models.
PIPELINES: Mapping[str, list[tuple[str, str, int]]] = {
    # (component, model, calls; 0: once per step)
    "stable-diffusion": [
        ("text_encoder", "clip-text", 1),
        ("unet", "stable-diffusion-unet", 0),
        ("vae", "stable-diffusion-vae", 1),
    ],
    "llama": [("prefill", "llama-7b", 1), ("decode", _DECODE, 0)],
}
# With classifier-free guidance they run on two prompts at once.
GUIDED = ("clip-text", "stable-diffusion-unet")


@dataclass(frozen=True)
class Shape:
    """What a model of the suite is called with; 0: its usual size.

    Attributes:
        image_size: Pixels of a side.
        length: Tokens of the text; those in the cache for `llama-7b-decode`.
    """

    batch: int = 1
    image_size: int = 0
    frames: int = 0
    length: int = 0
    dtype: str = "bfloat16"


class Decode(nn.Module):
    """Calls the decoder of an autoencoder."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latents: Tensor) -> Any:
        """[B, 4, H / 8, W / 8] -> image [B, 3, H, W]."""
        return self.vae.decode(latents)  # type: ignore[operator]


@cache
def entries() -> dict[str, Any]:
    """What `suite.json` says of each model; one that decodes is its model called otherwise."""
    found = table("suite.json")
    return {**found, _DECODE: found["llama-7b"]}


@contextmanager
def building(dtype: str, device: str) -> Iterator[None]:
    """Modules made in the block have a type and a device; their random weights a seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_default_dtype(before)


def build(name: str, dtype: str = "bfloat16", device: str = "meta") -> nn.Module:
    """A model of the suite without its inputs."""
    entry = entries()[name]
    library = import_module(entry["library"])
    make, config = getattr(library, entry["class"]), entry["config"]
    with building(dtype, device):
        if "config_class" in entry:
            model = make(getattr(library, entry["config_class"])(**config))
        else:
            model = make(**config)
    return (Decode(model) if name.endswith("vae") else model).eval()


def workload(name: str, settings: Mapping[str, Any] | None = None) -> Workload:
    """A model of the suite and what it is called with.

    Args:
        name: of `entries`.
        settings: fields of `Shape`.

    Raises:
        InputError: ``unknown-name``, ``unknown-key``, ``invalid-value``, ``out-of-range``.
    """
    choice(name, [*entries(), *PIPELINES], "model of the suite", "TARGET")
    if name in PIPELINES:
        raise refused("a pipeline", "unsupported", "TARGET", name, "one of its models")
    shape = read_config({**(settings or {})}, Shape, "the settings")
    choice(shape.dtype, DTYPES, "dtype")
    entry = entries()[name]
    own = entry["shape"] | {key: value for key, value in vars(shape).items() if value}
    for key, value in vars(shape).items():
        if isinstance(value, int) and value < (key == "batch" or key in (settings or {})):
            raise refused(f"invalid {key}", "out-of-range", key, value, "a positive number")
    for key in settings or {}:
        if key not in {**entry["shape"], "batch": 1, "dtype": ""}:
            expected = f"one of batch, dtype, {', '.join(entry['shape'])}"
            raise refused(f"{name} has no such shape", "unknown-key", "--set", key, expected)
    side, rest = divmod(own.get("image_size", 0), entry["patch"])
    if rest:
        expected = f"a multiple of {entry['patch']}"
        raise refused(
            "invalid image_size", "out-of-range", "image_size", own["image_size"], expected
        )
    frames = own.get("frames", 1)
    if name == "phenaki" and frames % 2 == 0:
        raise refused("invalid frames", "out-of-range", "frames", frames, "an odd number")
    sides = {"B": shape.batch, "T": own.get("length"), "F": frames, "L": side}
    # Phenaki codes the first frame alone and the others in pairs.
    sides["N"] = side * side * (1 + (frames - 1) // 2)
    specs = [spec.replace(":D", f":{shape.dtype}") for spec in entry["inputs"]]
    model = build(name, shape.dtype)
    args, kwargs = read_inputs(specs, sides)
    work = Workload(model, args, kwargs, f"suite:{name}")
    work.rebuild = lambda: build(name, shape.dtype, "cpu")
    if "llama" in name:
        # With a cache transformers does not look into the positions, and calls attention as causal.
        work.kwargs["use_cache"] = True
    if name == _DECODE:
        work.args = (read_tensor("Bx1:int64", sides, name),)
        cache = _filled_cache(model, shape.batch, own["length"], shape.dtype)
        work.kwargs["past_key_values"] = cache
    return work


def _filled_cache(model: Any, batch: int, length: int, dtype: str) -> Any:
    from transformers import DynamicCache

    heads = model.config.num_key_value_heads
    dim = model.config.hidden_size // model.config.num_attention_heads
    filled = DynamicCache(config=model.config)
    for layer in range(model.config.num_hidden_layers):
        shape = f"{batch}x{heads}x{length}x{dim}:{dtype}"
        filled.update(read_tensor(shape, {}, "cache"), read_tensor(shape, {}, "cache"), layer)
    return filled
