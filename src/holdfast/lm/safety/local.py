"""A local model as a system under test: responses sampled from `holdfast.lm`'s backends."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.models.loading import load
from holdfast.lm.models.protocol import LanguageModel, Prefix
from holdfast.lm.safety.specification import Settings
from holdfast.lm.safety.systems import Limits, Messages, Reply, Threads


class LocalModel(Threads):
    """A model folder (``hf:FOLDER``), one response at a time; served models are faster for whole runs.

    The folder's chat template writes the conversation; without one the prompt is continued as it is.

    Args:
        name: ``hf:FOLDER`` with the options of `holdfast.lm.models`.
        settings: longest response, temperature.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(1)
        self.name, self.limits = name, Limits(concurrency=1, retries=0)
        self._settings = settings
        self._model: LanguageModel = load(name)

    async def fingerprint(self) -> str:
        """Of the files of the model."""
        model: Any = self._model
        return str(model.fingerprint)

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        """A sampled response; the same prompt gets the same one."""
        reply: Reply = await self.call(self._respond, messages)
        return reply

    def _respond(self, messages: Messages) -> Reply:
        tokenizer = self._model.tokenizer
        if tokenizer.chat:
            text = tokenizer.chat(messages)
            tokens = tuple(tokenizer.parsed(text))
            prompt = tokens[1:] if tokens[:1] == (tokenizer.bos,) else tokens
        else:
            text = messages[-1]["content"]
            prompt = tuple(tokenizer.encode(text.encode()))
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        written = self._sample(prompt, np.random.default_rng(seed))
        finish = "length" if len(written) == self._settings.max_tokens else "stop"
        response = tokenizer.spell(written).decode(errors="replace")
        return Reply(response, finish, len(prompt), len(written))

    def _sample(self, prompt: Prefix, generator: np.random.Generator) -> list[int]:
        """Token ids until the end of text or the longest response."""
        context = self._model.context
        if context is not None and len(prompt) >= context:
            raise InputError(
                "a prompt is longer than the model's context",
                code="out-of-range",
                place=self.name,
                found=f"{len(prompt)} tokens",
                expected=f"fewer than {context}",
            )
        written: list[int] = []
        ends = self._model.tokenizer.ends
        most = min(self._settings.max_tokens, (context or 1 << 30) - len(prompt))
        while len(written) < most:
            [following] = self._model.logprobs([prompt + tuple(written)])
            token = draw(following.logprobs, self._settings.temperature, generator)
            if token in ends:
                break
            written.append(token)
        return written


def draw(logprobs: np.ndarray, temperature: float, generator: np.random.Generator) -> int:
    """A token of a distribution; at temperature 0 the most probable one.

    Args:
        logprobs: [V] natural logarithms.
        temperature: divides them.
        generator: of the random number.
    """
    if temperature == 0:
        return int(np.argmax(logprobs))
    scaled = (logprobs - np.max(logprobs)) / temperature
    weights = np.exp(scaled)
    return int(generator.choice(len(weights), p=weights / weights.sum()))
