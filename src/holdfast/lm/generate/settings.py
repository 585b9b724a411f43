"""How tokens are chosen and texts end: by the user, and else as the checkpoint says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from holdfast.command import Count, Options, Share, option
from holdfast.errors import InputError

_TOP_K = 50
"""What transformers takes for a checkpoint that samples and does not say."""
_WITHOUT_EFFECT = {
    "transformers_version",
    "_from_model_config",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "return_dict_in_generate",
    "use_cache",
    "temperature",
}
"""Settings that change no token here (all whose names begin with output_ neither)."""


def in_range(place: str, value: Any, valid: bool, expected: str, what: str = "") -> None:
    """Refuse a value that is not valid; `what` it is, where its place does not say."""
    if not valid:
        raise InputError(
            f"invalid {what or place}",
            code="out-of-range",
            place=place,
            found=str(value),
            expected=expected,
        )


@Options
@dataclass(frozen=True)
class Sampling:
    """How a token is drawn; None is what the checkpoint says, and greedy where it says nothing."""

    temperature: Annotated[float | None, option(metavar="T")] = None
    """Temperature of sampling; 0 decodes greedily."""
    top_k: Count | None = None
    """Sample among the N most likely tokens; 0: all."""
    top_p: Share | None = None
    """Sample among the most likely tokens that hold this share of the probability."""
    repetition_penalty: Annotated[float | None, option(metavar="R")] = None
    """Divide positive logits of tokens that occurred by R, and multiply negative ones by it."""
    seed: Count = 0
    """Random seed."""

    def __post_init__(self) -> None:
        for name, (valid, expected) in _VALID.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and value < float("inf")
            in_range(name, value, value is None or (number and valid(value)), expected)

    def over(self, base: Sampling) -> Sampling:
        """These settings, and those of `base` where they are None."""
        return replace(
            base, **{key: value for key, value in vars(self).items() if value is not None}
        )


_VALID: dict[str, tuple[Callable[[float], bool], str]] = {
    # 0 is greedy; logits that are divided by less than this leave the range of float32.
    "temperature": (lambda value: (value or 1) >= 1e-6, "0, or 1e-6 or more"),
    "top_k": (lambda value: isinstance(value, int) and value >= 0, "0 or more"),
    "seed": (lambda value: isinstance(value, int) and 0 <= value < 1 << 63, "0 to 2^63 - 1"),
    "top_p": (lambda value: 0 < value <= 1, "above 0, at most 1"),
    "repetition_penalty": (lambda value: 1e-6 <= value <= 1e6, "1e-6 to 1e6"),
}
GREEDY, AS_THE_CHECKPOINT = Sampling(0.0, 0, 1.0, 1.0), Sampling()


@dataclass(frozen=True)
class Settings:
    """What a checkpoint says about generation (``generation_config.json``)."""

    ends: frozenset[int]
    """Tokens that end a text, as in transformers: the tokenizer's own end only where it is named."""
    sampling: Sampling
    ignored: dict[str, Any]
    """Settings that have no effect here, with their values."""


def read_settings(model: Any, tokenizer: Any) -> Settings:
    """The settings of a model of transformers."""
    from transformers import GenerationConfig

    neutral = GenerationConfig().to_dict()
    neutral |= getattr(GenerationConfig, "_get_default_generation_params", dict)()
    config = getattr(model, "generation_config", None) or GenerationConfig()
    values = {key: value for key, value in config.to_dict().items() if value is not None}
    named = values.pop("eos_token_id", [])
    ends = frozenset([named] if isinstance(named, int) else named)
    sampling = Sampling(
        # The file may have a temperature and not sample: then it decodes greedily.
        temperature=values.pop("temperature", 1.0) if values.get("do_sample") else 0.0,
        top_k=values.pop("top_k", _TOP_K if values.pop("do_sample", False) else 0),
        top_p=values.pop("top_p", 1.0),
        repetition_penalty=values.pop("repetition_penalty", 1.0),
    )
    ignored = {
        key: value
        for key, value in values.items()
        if value != neutral.get(key)
        and key not in _WITHOUT_EFFECT
        and not key.startswith("output_")
    }
    if getattr(tokenizer, "eos_token_id", None) not in (None, *ends):
        ignored["eos_token of the tokenizer"] = tokenizer.eos_token
    return Settings(ends, sampling, ignored)
