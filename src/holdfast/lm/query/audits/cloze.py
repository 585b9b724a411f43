"""Cloze: does the model find the word that ends a passage (as LAMBADA asks)?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, How, Section, Table, Value, measured
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.asking import check_model
from holdfast.lm.query.audits.templates import Cloze, Item, ask, escape
from holdfast.lm.query.audits.word_ends import most_probable
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.results import QueryAnswer
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import figures
from holdfast.stats import wilson_interval

MOST_WORDS = 200
"""Maximum number of word prefixes examined for one answer."""


@dataclass(frozen=True)
class Variant:
    """One way to ask, over all passages."""

    name: str
    """``any word, that ends``; ``words of the context``; ``… that end``; ``… no stop words``."""
    right: int
    """Passages whose answer is the most probable word."""
    undecided: int
    """Passages where the search cannot tell whether it is."""
    asked: int
    accuracy: float
    """Share of `right`: with passages undecided, at least that."""
    interval_low: float
    """95 % interval of the accuracy (Wilson), with the passages undecided as wrong, and as right."""
    interval_high: float


@dataclass(frozen=True)
class ClozeAudit(QueryAnswer):
    """Accuracy by variant, and every answer."""

    variants: tuple[Variant, ...]
    answers: tuple[dict[str, str], ...]
    """For each passage: its answer, the most probable word found in each variant, and ``cannot tell``: the
    variants in which that word or another one may be the answer."""
    evaluations: int
    stopped: str | None = None
    """Why some answer is not proven to be the most probable word; None if all are."""
    query_inputs: tuple[tuple[str, str], ...] = ()
    """Label and text of each input."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Cloze audit"

    def _best(self) -> Variant:
        return max(self.variants, key=lambda variant: variant.accuracy)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            **{name: value for name, value in vars(self).items() if name != "query_inputs"},
            "variants": [vars(variant) for variant in self.variants],
            "complete": self.stopped is None,
        }

    def values(self) -> Sequence[Value]:
        """The accuracy of each variant."""
        return [
            *(
                Value(
                    f"accuracy.{one.name}",
                    one.accuracy,
                    ci95=(one.interval_low, one.interval_high),
                    better="higher",
                )
                for one in self.variants
            ),
            *measured(self, evaluations="tokens, lower"),
        ]

    def sections(self) -> Sequence[Section]:
        """Accuracy by variant, and every answer."""
        best = self._best()
        range_of_best = interval(100 * best.interval_low, 100 * best.interval_high, 0)
        sentence = (
            f"{'At least ' if best.undecided else ''}{percent(best.accuracy)} {range_of_best} of "
            f"{counted(best.asked, 'passage')} are answered correctly with the variant “{best.name}”"
            f"{'; of others the search cannot tell' if self.stopped else ''}."
        )
        shares = [
            {
                "variant": one.name,
                "accuracy": 100 * one.accuracy,
                "low": 100 * one.interval_low,
                "high": 100 * one.interval_high,
            }
            for one in self.variants
        ]
        title = "Passages answered correctly (%)"
        columns = {
            "name": ColumnFormat("variant"),
            "right": ColumnFormat("correct"),
            "undecided": ColumnFormat("cannot tell"),
            "asked": ColumnFormat("passages"),
            "accuracy": ColumnFormat(
                unit="%", interval=("interval_low", "interval_high"), digits=0
            ),
        }
        variants = pa.Table.from_pylist([vars(variant) for variant in self.variants])
        answers = pa.Table.from_pylist(list(self.answers))
        caption = "One row per passage: answer, that of each variant, what is not proven."
        return [
            Section(
                "accuracy",
                "Accuracy by variant",
                sentence,
                figures=[figures.intervals(shares, "variant", "accuracy", "low", "high", title)],
                tables=[
                    Table(variants, columns, "One row per variant, the freest first."),
                    Table(answers, caption=caption, detail=True),
                ],
                how=How(
                    "correct if the most probable whole word that the variant allows is the answer",
                    source="Kuchnik et al., ReLM, MLSys 2023, section 4.4; intervals: Wilson, 95 %.",
                ),
            )
        ]


def audit_cloze(model: LanguageModel, template: Cloze) -> ClozeAudit:
    """The most probable last word of every passage, under restrictions that grow from variant to variant.

    A word's probability is that of the complete word: a character that ends a word, or the end of the
    text, follows. So a part of a word never wins over the word.

    Raises:
        InputError: if a query cannot be compiled.
    """
    check_model(model)
    began = model.cost.evaluations
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    answers = []
    stops = set()
    for item in template.items:
        said, undecided = {"answer": item.answer}, []
        start = escape(item.context)
        for name, words, boundary in _variants(template, item):
            begins = ask(template, regex=f"{start} ({words})", prefix=start, eos=False)
            best = most_probable(model, template, begins, MOST_WORDS, boundary)
            said[name] = best.text.removeprefix(f"{item.context} ")
            verdict = "right" if said[name] == item.answer else "wrong"
            if best.unproven:
                stops.add(best.unproven)
                undecided.append(name)
                verdict = "cannot tell"
            verdicts[name][verdict] += 1
        answers.append(said | {"cannot tell": "; ".join(undecided)})
    return ClozeAudit(
        tuple(
            _variant(name, found["right"], found["cannot tell"], found.total())
            for name, found in verdicts.items()
        ),
        tuple(answers),
        model.cost.evaluations - began,
        ", ".join(sorted(stops)) or None,
        (("Model", model.name), ("Passages", number(len(template.items)))),
    )


def _variant(name: str, right: int, undecided: int, asked: int) -> Variant:
    low, _ = wilson_interval(right, asked)
    _, high = wilson_interval(right + undecided, asked)
    return Variant(name, right, undecided, asked, right / asked, low, high)


def _variants(template: Cloze, item: Item) -> Iterator[tuple[str, str, str | None]]:
    """(name, words, what must follow: None for the end of the word) of each variant, the freest first."""
    seen = sorted(set(_words(compile_regex(template.word), item.context)))
    words = "|".join(map(escape, seen)) or template.word
    stop_words = {word.casefold() for word in template.stop_words}
    kept = "|".join(escape(word) for word in seen if word.casefold() not in stop_words) or words
    yield "any word, that ends", template.word, None
    yield "words of the context", words, None
    yield "… that end", words, template.end
    if template.stop_words:
        yield "… no stop words", kept, template.end


def _words(word: ByteDfa, text: str) -> Iterator[str]:
    """The words that stand in a text: from the left, each as long as can be."""
    content = text.encode()
    start = 0
    while start < len(content):
        longest = start
        state = 0 if word.num_states else DEAD
        for place in range(start, len(content)):
            state = word.step(state, content[place : place + 1])
            if state == DEAD:
                break
            if word.final[state]:
                longest = place + 1
        if longest > start:
            yield content[start:longest].decode()
        start = max(longest, start + 1)
