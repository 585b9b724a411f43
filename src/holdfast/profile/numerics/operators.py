"""Operators that `compare` and `invariance` know by name, each in several implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from holdfast.profile.numerics.bitwise import Dimensions
from holdfast.profile.ops.targets import choice, refused
from holdfast.targets import load


@dataclass(frozen=True, slots=True)
class Suite:
    """One operator.

    Attributes:
        implementations: The first is the reference.
        inputs: ``inputs(generator)``; with ``length=`` where lengths can be asked for.
        dimensions: Independent dimensions, for invariance; by default the first of every input.
        sums: Name -> function that adds the numbers of a tensor [n] as the operator does.
    """

    implementations: Mapping[str, Callable[..., Tensor]]
    inputs: Callable[..., Sequence[Tensor]]
    dimensions: Dimensions = field(default_factory=dict)
    sums: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)


def suite(name: str, place: str = "TARGET") -> Suite:
    """An operator by its name, or what ``package.module:factory`` returns: the fields of `Suite`.

    Raises:
        InputError: ``unknown-name``, ``invalid-value``, or as the target raises.
    """
    if ":" not in name:
        return SUITES[choice(name, SUITES, "operator", place)]
    result = load(name, place)()
    try:
        return Suite(**result)
    except TypeError as error:
        problem, keys = "the factory returns no dictionary of an operator", list(Suite.__slots__)
        raise refused(problem, "invalid-value", name, str(error), keys) from error


# --- Attention -----------------------------------------------------------------------------------


def _attention_inputs(generator: torch.Generator, length: int = 256) -> Sequence[Tensor]:
    return [torch.randn(4, 2, length, 64, generator=generator) for _ in range(3)]  # [B, H, N, d]


def _separate(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def _backend(kind: SDPBackend) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel([kind]):
            return scaled_dot_product_attention(q, k, v)

    return run


# --- Sums, matrices, normalization ---------------------------------------------------------------


def _matrices(generator: torch.Generator, length: int = 1024) -> Sequence[Tensor]:
    a = torch.randn(64, length, generator=generator)
    return [a, torch.randn(length, 64, generator=generator)]


def _in_parts(a: Tensor, b: Tensor) -> Tensor:
    """A product by 16 parts of the inner dimension, whose running sum is stored in the format."""
    pairs = zip(a.chunk(16, 1), b.chunk(16, 0), strict=True)
    return sum((x @ y for x, y in pairs), start=a.new_zeros(a.shape[0], b.shape[1]))


def _by_product(x: Tensor) -> Tensor:
    """The sum of a tensor [n] as an element of a product of matrices."""
    return (x.expand(64, -1) @ x.new_ones(x.shape[0], 64))[0, 0]


def _rows(generator: torch.Generator, length: int = 1024) -> Sequence[Tensor]:
    return [torch.randn(64, length, generator=generator)]


def _one_pass(x: Tensor) -> Tensor:
    """Layer norm by E[x^2] - E[x]^2, each stored in the format."""
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5).sqrt()


def _naive_softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


SUITES: Mapping[str, Suite] = {
    "attention": Suite(
        {
            "matmul-softmax-matmul": _separate,
            "sdpa math": _backend(SDPBackend.MATH),
            "sdpa flash": _backend(SDPBackend.FLASH_ATTENTION),
        },
        _attention_inputs,
        {
            "batch": ({0: 0, 1: 0, 2: 0}, 0),
            "heads": ({0: 1, 1: 1, 2: 1}, 1),
            "queries": ({0: 2}, 2),
        },
    ),
    "matmul": Suite(
        {"torch.matmul": torch.matmul, "16 parts": _in_parts},
        _matrices,
        {"batch": ({0: 0}, 0), "columns": ({1: 1}, 1)},
        {"torch.matmul": _by_product},
    ),
    "softmax": Suite(
        {"torch.softmax": lambda x: torch.softmax(x, -1), "exp / sum": _naive_softmax}, _rows
    ),
    "layer-norm": Suite(
        {"layer_norm": lambda x: layer_norm(x, x.shape[-1:]), "one pass": _one_pass}, _rows
    ),
    "sum": Suite({"torch.sum": lambda x: x.sum(-1)}, _rows, sums={"torch.sum": torch.sum}),
}
