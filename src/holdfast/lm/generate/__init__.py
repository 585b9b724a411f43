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
    from holdfast.lm.generate.exit_loss import ExitTraining
    from holdfast.lm.generate.exit_recipe import ExitRecipe
    from holdfast.lm.generate.heads import HeadPolicy, read_heads
    from holdfast.lm.generate.heads_calibration import calibrate_heads
    from holdfast.lm.generate.results import Generation, Text
    from holdfast.lm.generate.schedule import Schedule
    from holdfast.lm.generate.settings import Sampling
    from holdfast.lm.generate.speculation import Plan
    from holdfast.lm.generate.training import ExitCallback, train_exits

_HOMES = {
    "Architecture": "architectures",
    "Arena": "arena",
    "Cache": "arena",
    "Decoder": "decoder",
    "ExitCallback": "training",
    "ExitRecipe": "exit_recipe",
    "ExitTraining": "exit_loss",
    "Generation": "results",
    "Generator": "decoding",
    "HeadPolicy": "heads",
    "Plan": "speculation",
    "Sampling": "settings",
    "Schedule": "schedule",
    "Text": "results",
    "architecture": "architectures",
    "calibrate_heads": "heads_calibration",
    "generate": "decoding",
    "read_heads": "heads",
    "train_exits": "training",
}

__all__ = [
    "Architecture",
    "Arena",
    "Cache",
    "Decoder",
    "ExitCallback",
    "ExitRecipe",
    "ExitTraining",
    "Generation",
    "Generator",
    "HeadPolicy",
    "Plan",
    "Sampling",
    "Schedule",
    "Text",
    "architecture",
    "calibrate_heads",
    "generate",
    "read_heads",
    "train_exits",
]

__getattr__ = lazily(__name__, _HOMES)
