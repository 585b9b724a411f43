"""How far numbers deviate: attention by rounding step, any operator, invariance, weights, loss spikes.

    numerics.attention(4096, 64).ratio                        # flash against baseline, every step in bf16
    numerics.compare({"a": f, "b": g}, inputs).rows           # forward and gradients, with a verdict
    numerics.WeightTracker(model, every=10, dir="run-a").attach(optimizer)

Names are imported when they are first used: spikes and sketches do not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.profile.numerics.attention_error import attention as attention
    from holdfast.profile.numerics.bitwise import invariance as invariance
    from holdfast.profile.numerics.comparing import compare as compare
    from holdfast.profile.numerics.detector import SpikeDetector as SpikeDetector
    from holdfast.profile.numerics.formats import rounded as rounded
    from holdfast.profile.numerics.spike_report import spikes as spikes
    from holdfast.profile.numerics.summation import summation_order as summation_order
    from holdfast.profile.numerics.tracker import WeightTracker as WeightTracker
    from holdfast.profile.numerics.weights import track_diff as track_diff

_HOMES = {
    "SpikeDetector": "detector",
    "WeightTracker": "tracker",
    "attention": "attention_error",
    "compare": "comparing",
    "invariance": "bitwise",
    "rounded": "formats",
    "spikes": "spike_report",
    "summation_order": "summation",
    "track_diff": "weights",
}

__all__ = list(_HOMES)
__getattr__ = lazily(__name__, _HOMES)
