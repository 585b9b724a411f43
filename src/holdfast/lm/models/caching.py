"""Answers of models, kept by prefix within a budget of memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from holdfast.lm.models.protocol import LanguageModel, ModelStopped, NextToken, Prefix

BUDGET_BYTES = 64 << 20
_ENTRY_BYTES = 400  # a key, an answer and their places, beside the numbers


class Answers:
    """The distributions asked for last, up to a number of bytes."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self._bytes = 0
        self._kept: OrderedDict[Prefix, NextToken] = OrderedDict()

    def get(self, prefix: Prefix) -> NextToken | None:
        """The answer, if it is still kept."""
        answer = self._kept.get(prefix)
        if answer is not None:
            self._kept.move_to_end(prefix)
        return answer

    def keep(self, prefix: Prefix, answer: NextToken) -> None:
        """Keep an answer; the ones not asked for longest make room."""
        if prefix not in self._kept:
            self._bytes += _size(prefix, answer)
        self._kept[prefix] = answer
        while self._bytes > self.budget_bytes and len(self._kept) > 1:
            self._bytes -= _size(*self._kept.popitem(last=False))


def _size(prefix: Prefix, answer: NextToken) -> int:
    return int(answer.logprobs.nbytes) + 8 * len(prefix) + _ENTRY_BYTES


class Cached:
    """A model that remembers its answers: for backends that would compute (or be paid for) them again.

    `cost` is that of the model behind it, so what is remembered adds nothing to it.

    Args:
        model: the model.
        budget_bytes: memory for answers.
    """

    def __init__(self, model: LanguageModel, budget_bytes: int = BUDGET_BYTES) -> None:
        self.model = model
        self.name = model.name
        self.fingerprint: str | None = getattr(model, "fingerprint", None)
        self.tokenizer = model.tokenizer
        self.context: int | None = model.context
        self.cost = model.cost
        self.remarks: tuple[str, ...] = tuple(getattr(model, "remarks", ()))
        self.answers = Answers(budget_bytes)

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix; only unknown prefixes are evaluated, each once.

        Raises:
            ModelStopped: if the model cannot continue.
        """
        known: dict[Prefix, NextToken] = {}
        unknown: list[Prefix] = []
        for prefix in dict.fromkeys(prefixes):
            answer = self.answers.get(prefix)
            if answer is None:
                unknown.append(prefix)
            else:
                known[prefix] = answer
        stopped: ModelStopped | None = None
        if unknown:
            try:
                answers = dict(enumerate(self.model.logprobs(unknown)))
            except ModelStopped as reason:
                stopped, answers = reason, reason.answered
            for place, answer in answers.items():
                known[unknown[place]] = answer
                self.answers.keep(unknown[place], answer)
        if stopped is not None:
            answered = {
                place: known[prefix] for place, prefix in enumerate(prefixes) if prefix in known
            }
            raise ModelStopped(stopped.reason, answered) from stopped
        return [known[prefix] for prefix in prefixes]
