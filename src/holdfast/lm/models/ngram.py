"""An n-gram model as a language model, and as the exact weighted automaton that it is."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.lm.models.arpa import Arpa, read_arpa
from holdfast.lm.models.contexts import Contexts
from holdfast.lm.models.naming import fingerprint
from holdfast.lm.models.protocol import F64, Cost, NextToken, Prefix
from holdfast.lm.models.vocabulary import Reading, tokenizer_of_words

CACHE_BYTES = 64 << 20
"""Distributions that are kept, by context."""
ROUNDING = 1e-3
"""What the digits of a file may add to the sum of a distribution."""


class NgramModel:
    """A back-off n-gram model over the words of an ARPA file.

    log p(w | h) is what the file lists for h w; otherwise backoff(h) + log p(w | h less its first word). A
    text starts in the context ``<s>``, which itself is never produced; ``</s>`` ends it; ``<unk>`` keeps
    its probability and has no bytes, so no text is ever spelled with it.

    The distributions are those of the file, with one exception, since bounds need sums of at most 1: where
    the digits of the file add up to more (by at most `ROUNDING`), they are divided by their sum. Sums below
    1 stay: that mass belongs to no word. `remarks` says how far the sums are off, `sums` gives them all.

    The contexts that the model tells apart are the states of its exact automaton, without approximation of
    back-off: `num_states`, `start_state`, `step` and `logprobs_of`.

    `cost.evaluations` counts the distributions computed: prefixes with the same context share one while it
    is kept, so there may be fewer than `cost.nodes`.

    Args:
        path: an ARPA file, as text or gzipped.
        reading: how words make a text (see `tokenizer_of_words`); None lets the vocabulary tell.
        normalise: divide every distribution by its sum, whatever it is.

    Raises:
        InputError: if the file is not an ARPA file, or its probabilities add up to more than 1.
    """

    def __init__(
        self, path: str | Path, reading: Reading | None = None, normalise: bool = False
    ) -> None:
        arpa = read_arpa(path)
        self.name = f"ngram:{path}"
        self.fingerprint = fingerprint([Path(path)])
        self.tokenizer = tokenizer_of_words(arpa.vocabulary, self.name, reading)
        self.context: int | None = None
        self.cost = Cost()
        self.order = int(arpa.orders[-1].words.shape[1])
        self._normalise = normalise
        self._contexts = Contexts.of(arpa, never=self.tokenizer.bos)
        self.start_state = 0
        if self.tokenizer.bos is not None:
            self.start_state = self._contexts.step(0, self.tokenizer.bos)
        self._asked: set[Prefix] = set()
        self._kept: OrderedDict[int, F64] = OrderedDict()
        self._keep = max(16, CACHE_BYTES // (8 * self.tokenizer.size))
        self.remarks = self._check(arpa)

    @property
    def num_states(self) -> int:
        """Number of contexts that the model tells apart; states are 0 (the empty context) and up."""
        return self._contexts.size

    def step(self, state: int, token: int) -> int:
        """The context after one more token: the longest that the model still tells apart."""
        return self._contexts.step(state, token)

    def state_after(self, prefix: Sequence[int]) -> int:
        """The context after a whole prefix."""
        state, reach = self.start_state, self.order - 1
        if len(prefix) >= reach:  # what came before cannot matter
            state, prefix = 0, prefix[len(prefix) - reach :]
        for token in prefix:
            state = self._contexts.step(state, token)
        return state

    def context_words(self, state: int) -> tuple[int, ...]:
        """The tokens of a context, the oldest first."""
        return self._contexts.words_of(state)

    def logprobs_of(self, state: int) -> F64:
        """[V] natural log-probabilities of the token after a context; not to be written to."""
        known = self._kept.get(state)
        if known is not None:
            self._kept.move_to_end(state)
            return known
        self.cost.evaluations += 1
        values = self._contexts.distribution(state)
        total = float(np.exp(values).sum())
        if total > 1 or (self._normalise and total > 0):
            values -= math.log(total)
        values.flags.writeable = False
        self._kept[state] = values
        if len(self._kept) > self._keep:
            self._kept.popitem(last=False)
        return values

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix, in order."""
        begin = time.perf_counter()
        answers = [NextToken(self.logprobs_of(self.state_after(prefix))) for prefix in prefixes]
        before = len(self._asked)
        self._asked.update(prefixes)
        self.cost.nodes += len(self._asked) - before
        self.cost.calls += 1
        self.cost.seconds += time.perf_counter() - begin
        return answers

    def sums(self) -> npt.NDArray[np.float64]:
        """[states] what the probabilities of the file add up to in each context, ``<s>`` left out."""
        return self._contexts.sums()

    def _check(self, arpa: Arpa) -> tuple[str, ...]:
        if self._normalise:
            return ("every distribution is divided by its sum",)
        sums = self.sums()
        high, low = int(np.argmax(sums)), int(np.argmin(sums))
        if not sums[high] <= 1 + ROUNDING:
            raise InputError(
                "the probabilities after a context add up to more than 1",
                code="out-of-range",
                path=arpa.path,
                place=f"after {self._readable(arpa, high)}",
                found=f"{sums[high]:.6g}",
                expected=f"at most 1 (rounded digits may add {ROUNDING:g})",
                remedy="write the model again, or add ?normalise to the name of the file: "
                "each distribution is then divided by its sum",
            )
        remarks = []
        if sums[high] > 1 + 1e-6:
            remarks.append(
                f"probabilities add up to {sums[high]:.7g} after {self._readable(arpa, high)}: "
                "where they pass 1 they are divided by their sum"
            )
        if sums[low] < 1 - ROUNDING:
            remarks.append(
                f"probabilities add up to {sums[low]:.7g} only after {self._readable(arpa, low)}: "
                "the rest belongs to no word"
            )
        return tuple(remarks)

    def _readable(self, arpa: Arpa, state: int) -> str:
        words = [arpa.vocabulary[word] for word in self.context_words(state)]
        return repr(b" ".join(words).decode(errors="backslashreplace")) if words else "no context"


def open_ngram(place: str) -> NgramModel:
    """Open ``FILE.arpa``, with ``?words``, ``?pieces`` or ``?normalise`` (joined by ``&``) after it.

    Raises:
        InputError: if an option is unknown, or the file is not an ARPA file.
    """
    path, _, text = (place, "", "") if Path(place).exists() else place.rpartition("?")
    if not path:
        path, text = place, ""
    reading: Reading | None = None
    normalise = False
    readings: dict[str, Literal["words", "pieces"]] = {"words": "words", "pieces": "pieces"}
    for option in filter(None, text.split("&")):
        if option in readings:
            reading = readings[option]
        elif option == "normalise":
            normalise = True
        else:
            raise InputError(
                "unknown option of an n-gram model",
                code="unknown-name",
                found=option,
                expected="words, pieces or normalise",
            )
    return NgramModel(path, reading, normalise)
