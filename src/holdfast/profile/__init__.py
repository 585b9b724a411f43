"""Where the arithmetic, bytes and time of a model go, and how far its numbers deviate.

    from holdfast import profile
    result = profile.profile(module, x)       # FLOPs and bytes, without running it
    result.by_class(), result.attention, result.roofline("h100-sxm")

Names are imported when they are first used: help does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.profile.ops.formulas import register_flop_formula
    from holdfast.profile.ops.hardware import HARDWARE, Hardware
    from holdfast.profile.ops.profiling import profile
    from holdfast.profile.ops.quantization import quantization
    from holdfast.profile.ops.result import OpProfile
    from holdfast.profile.ops.sweeps import sweep

_HOMES = {
    "HARDWARE": "ops.hardware",
    "Hardware": "ops.hardware",
    "OpProfile": "ops.result",
    "profile": "ops.profiling",
    "quantization": "ops.quantization",
    "register_flop_formula": "ops.formulas",
    "sweep": "ops.sweeps",
}

__all__ = [
    "HARDWARE",
    "Hardware",
    "OpProfile",
    "profile",
    "quantization",
    "register_flop_formula",
    "sweep",
]

__getattr__ = lazily(__name__, _HOMES)
