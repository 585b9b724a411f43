"""Text generation by early exit: draft with the first layers, verify with the rest.

    from holdfast.lm import generate as g
    generator = g.Generator("hf:models/small")
    generator.generate(["def area("], max_new=64).texts

Names are imported when they are first used, so that a command that needs one does not pay for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.lm.generate.architectures import Architecture, architecture
    from holdfast.lm.generate.arena import Arena, Cache
    from holdfast.lm.generate.decoder import Decoder
    from holdfast.lm.generate.decoding import Generator, generate
    from holdfast.lm.generate.results import Generation, Text
    from holdfast.lm.generate.sampling import Sampling
    from holdfast.lm.generate.speculation import Plan

_HOMES = {
    "Architecture": "architectures",
    "Arena": "arena",
    "Cache": "arena",
    "Decoder": "decoder",
    "Generation": "results",
    "Generator": "decoding",
    "Plan": "speculation",
    "Sampling": "sampling",
    "Text": "results",
    "architecture": "architectures",
    "generate": "decoding",
}

__all__ = [
    "Architecture",
    "Arena",
    "Cache",
    "Decoder",
    "Generation",
    "Generator",
    "Plan",
    "Sampling",
    "Text",
    "architecture",
    "generate",
]

__getattr__ = lazily(__name__, _HOMES)
