"""FLOPs, bytes, attention and time of a model by operator; names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.profile.ops.fewer_bits import quantization as quantization
    from holdfast.profile.ops.formulas import register_flop_formula as register_flop_formula
    from holdfast.profile.ops.hardware import HARDWARE as HARDWARE
    from holdfast.profile.ops.hardware import Hardware as Hardware
    from holdfast.profile.ops.profiling import profile as profile
    from holdfast.profile.ops.result import OpProfile as OpProfile
    from holdfast.profile.ops.sweeps import sweep as sweep

_HOMES = {
    "HARDWARE": "hardware",
    "Hardware": "hardware",
    "OpProfile": "result",
    "profile": "profiling",
    "quantization": "fewer_bits",
    "register_flop_formula": "formulas",
    "sweep": "sweeps",
}

__all__ = list(_HOMES)
__getattr__ = lazily(__name__, _HOMES)
