"""Inputs and weights of `private_mpc.py`, the same for every contender; NumPy alone."""

from __future__ import annotations

import numpy as np

ELEMENTS = 10_000
SOFTMAX = (100, 10)
LINEAR = (128, 768, 768)
BLOCK = {"width": 128, "heads": 4, "sequence": 32, "layers": 2, "hidden": 512}


def draw(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers, float32."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float32)


def lenet() -> dict[str, np.ndarray]:
    """Weights of LeNet with 20 and 50 channels, random: what they are does not change the cost."""
    shapes = {
        "0.weight": (20, 1, 5, 5),
        "0.bias": (20,),
        "3.weight": (50, 20, 5, 5),
        "3.bias": (50,),
        "7.weight": (500, 800),
        "7.bias": (500,),
        "9.weight": (10, 500),
        "9.bias": (10,),
    }
    return {
        name: draw(number, *shape, scale=float(np.prod(shape[1:] or (100,))) ** -0.5)
        for number, (name, shape) in enumerate(shapes.items())
    }


def block(layer: int) -> dict[str, np.ndarray]:
    """Weights of one layer of the transformer."""
    width, hidden = BLOCK["width"], BLOCK["hidden"]
    shapes = {
        "self_attn.in_proj_weight": (3 * width, width),
        "self_attn.in_proj_bias": (3 * width,),
        "self_attn.out_proj.weight": (width, width),
        "self_attn.out_proj.bias": (width,),
        "linear1.weight": (hidden, width),
        "linear1.bias": (hidden,),
        "linear2.weight": (width, hidden),
        "linear2.bias": (width,),
    }
    weights = {
        name: draw(100 * layer + number, *shape, scale=float(np.prod(shape[1:] or (100,))) ** -0.5)
        for number, (name, shape) in enumerate(shapes.items())
    }
    for norm in ("norm1", "norm2"):
        weights[f"{norm}.weight"] = np.ones(width, np.float32)
        weights[f"{norm}.bias"] = np.zeros(width, np.float32)
    return weights
