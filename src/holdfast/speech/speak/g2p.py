"""Letters to phones: an encoder-decoder of gated recurrent units with attention, searched with a beam.

Deep Voice 4.1. This is inference, in NumPy: a word takes a millisecond, and torch is not loaded for it.
Shapes: L letters, B hypotheses, H units, P phones with the mark that begins and ends a word.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.speech.speak.dictionary import PHONES, Phones

Array = npt.NDArray[Any]
LETTERS = string.ascii_lowercase + "'"
MARK = 0
"""Index of the mark that begins and ends a word, before the phones."""
BEAM = 8
_PHONES_PER_LETTER, _MORE_PHONES = 3, 5
"""A pronunciation has at most so many phones (w is three: D AH1 B AH0 L Y UW0 is an exception)."""


@dataclass(frozen=True)
class Guess:
    """A pronunciation that the network proposes."""

    phones: Phones
    log_prob: float
    """ln P(phones | letters)."""


class LettersToPhones:
    """The network.

    Args:
        weights: of `holdfast.speech.speak.g2p_training.Network`, by the names of its parameters.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: np.asarray(each, np.float32) for name, each in weights.items()}

    @classmethod
    def load(cls, path: Path) -> LettersToPhones:
        """Read a file of weights.

        Raises:
            InputError: ``damaged`` if it cannot be read, or has other weights; ``not-finite``.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            model = cls(load_file(path))
            model.best("a")
        except (SafetensorError, OSError, KeyError, ValueError, IndexError) as error:
            raise InputError(
                "the weights cannot be read",
                code="damaged",
                path=path,
                found=f"{type(error).__name__}: {error}".splitlines()[0],
                expected="the weights of a network from letters to phones",
                remedy="copy the whole folder again, or train again",
            ) from error
        if not all(np.isfinite(each).all() for each in model.weights.values()):
            raise InputError("weights are NaN or infinite", code="not-finite", path=path)
        return model

    def best(self, word: str, beam: int = BEAM) -> list[Guess]:
        """The most probable pronunciations, the best first, at most `beam`.

        Args:
            word: of `LETTERS`.
            beam: hypotheses that survive a step.
        """
        memory, hidden = self.encode(word)
        longest = _PHONES_PER_LETTER * len(word) + _MORE_PHONES
        paths: list[Phones] = [()]
        scores, last = np.zeros(1), np.array([MARK])
        complete: list[Guess] = []
        for _ in range(longest + 1):
            hidden, log_probs = self.step(last, hidden, memory)
            totals = scores[:, None] + log_probs  # [B, P]
            complete += [
                Guess(path, float(totals[k, MARK]))
                for k, path in enumerate(paths)
                if path  # a word has a sound
            ]
            complete = sorted(complete, key=lambda each: -each.log_prob)[:beam]
            totals[:, MARK] = -np.inf
            order = np.argsort(-totals, axis=None, kind="stable")[:beam]
            # A longer path is less probable than its beginning: nothing can come before what is complete.
            worst = complete[-1].log_prob if len(complete) == beam else -np.inf
            order = order[totals.ravel()[order] > worst]
            if not len(order):
                break
            parents, last = np.divmod(order, totals.shape[1])
            scores, hidden = totals.ravel()[order], hidden[parents]
            paths = [
                (*paths[parent], PHONES[phone - 1])
                for parent, phone in zip(parents, last, strict=True)
            ]
        return complete

    def encode(self, word: str) -> tuple[Array, Array]:
        """Outputs of both directions [L, 2 H'], and the decoder's first state [1, H]."""
        letters = [LETTERS.index(letter) for letter in word]
        inputs = self.weights["letters.weight"][letters]
        outputs = []
        for suffix in ("", "_reverse"):
            state, states = np.zeros((1, self.weights["encoder.weight_hh_l0"].shape[1])), []
            for each in inputs[::-1] if suffix else inputs:
                state = self._gru(f"encoder.{{}}_l0{suffix}", each[None], state)
                states.append(state[0])
            outputs.append(np.array(states[::-1] if suffix else states))
        memory = np.concatenate(outputs, axis=1)
        ends = np.concatenate([outputs[0][-1], outputs[1][0]])[None]
        return memory, np.tanh(self._linear("bridge", ends))

    def step(self, last: Array, hidden: Array, memory: Array) -> tuple[Array, Array]:
        """One step of the decoder.

        Args:
            last: the phone before; [B].
            hidden: [B, H].
            memory: [L, 2 H'].

        Returns:
            States [B, H] and log probabilities [B, P].
        """
        hidden = self._gru("decoder.{}_l0", self.weights["phones.weight"][last], hidden)
        attention = self._linear("query", hidden) @ memory.T  # [B, L]
        attention = np.exp(attention - attention.max(axis=1, keepdims=True))
        context = attention / attention.sum(axis=1, keepdims=True) @ memory
        both = np.concatenate([hidden, context], axis=1)
        logits = self._linear("outputs", np.tanh(self._linear("mixer", both)))
        logits -= logits.max(axis=1, keepdims=True)
        return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def _linear(self, name: str, x: Array) -> Array:
        product: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return product

    def _gru(self, name: str, x: Array, hidden: Array) -> Array:
        """Torch's GRU: reset gate r, update gate z, candidate n; [B, D], [B, H] -> [B, H]."""
        weights = self.weights
        own = x @ weights[name.format("weight_ih")].T + weights[name.format("bias_ih")]
        back = hidden @ weights[name.format("weight_hh")].T + weights[name.format("bias_hh")]
        (r, z, n), (back_r, back_z, back_n) = np.split(own, 3, 1), np.split(back, 3, 1)
        r, z = 1 / (1 + np.exp(-r - back_r)), 1 / (1 + np.exp(-z - back_z))
        state: Array = (1 - z) * np.tanh(n + r * back_n) + z * hidden
        return state
