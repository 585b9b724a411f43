"""FLOPs, bytes, attention and time of a model by operator; names are imported when they are first used."""

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

__all__ = [
    "HARDWARE",
    "Hardware",
    "OpProfile",
    "profile",
    "quantization",
    "register_flop_formula",
    "sweep",
]

__getattr__ = lazily(
    __name__,
    {
        "HARDWARE": "hardware",
        "Hardware": "hardware",
        "OpProfile": "result",
        "profile": "profiling",
        "quantization": "quantization",
        "register_flop_formula": "formulas",
        "sweep": "sweeps",
    },
)
