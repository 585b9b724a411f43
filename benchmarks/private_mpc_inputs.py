"""Inputs and weights of `private_mpc.py`, the same for every contender; NumPy alone."""

from __future__ import annotations

import numpy as np

ELEMENTS = 10_000
SOFTMAX = (100, 10)
LINEAR = (128, 768, 768)
SVM = {"features": 100, "examples": 50, "steps": 5}
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


def svm(w, x, y):
    """Weights [1, features] after some steps on the hinge loss, as in CrypTen's example of a linear SVM.

    Args:
        w: first weights [1, features], of any contender, as the others.
        x: [features, examples].
        y: labels -1 and 1, [1, examples].
    """
    for _ in range(SVM["steps"]):
        correct = w.matmul(x).sign() * y
        gradient = (-y * (1 - correct) * 0.5).matmul(x.t()) / SVM["examples"]
        w = w - gradient * 0.5
    return w


def svm_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First weights, examples, labels."""
    features, examples = SVM["features"], SVM["examples"]
    x = draw(8, features, examples)
    return draw(9, 1, features), x, np.sign(draw(10, 1, features) @ x)


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
