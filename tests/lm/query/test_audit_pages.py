"""The pages of audits and masses: what they say, also where little was found."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import toy

from holdfast.answer import Answer
from holdfast.lm import query as q
from holdfast.lm.query.audits.bias import audit_bias
from holdfast.lm.query.audits.memorization import audit_memorization
from holdfast.lm.query.audits.templates import Bias, Cloze, Item, Known, Memorization, Toxicity
from holdfast.lm.query.audits.toxicity import audit_toxicity
from holdfast.report import Page, render


class _Words(HTMLParser):
    """What a reader sees, scripts and styles left out."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words += data.split()


def read(page: Page) -> str:
    reader = _Words()
    content = render(page)
    assert len(content) < 3_000_000
    reader.feed(content)
    return " ".join(reader.words)


def page_of(found: Answer) -> str:
    return read(found.page())


def memory(regex: str, n: int, *known: Known, **query: object) -> str:
    template = Memorization(regex, n=n, known=known, query=query)
    model = toy.ToyModel(1)
    model.name = "toy <b>model</b>"
    return page_of(audit_memorization(model, template))


def test_memorisation_tells_from_how_many_repeats_on_texts_are_found() -> None:
    # In toy model 1 all are found, or only the two most probable.
    known = (Known("ab", 1), Known("bc", 2), Known("ca", 4))
    told = memory("ab|bc|ca", 3, *known)
    assert "3 of 3 known texts" in told
    assert "All known texts were found." in told
    assert "toy <b>model</b>" in told
    order = [match.text for match in q.search(toy.ToyModel(1), q.Query("ab|bc|ca"), 3).found]
    last_least = (Known(order[2], 1), Known(order[1], 4), Known(order[0], 2))
    assert "repeated 2 times or more were found." in memory("ab|bc|ca", 2, *last_least)
    last_most = (Known(order[2], 4), Known(order[1], 1), Known(order[0], 2))
    assert "Not even the most repeated" in memory("ab|bc|ca", 2, *last_most)


def test_memorisation_without_known_texts_or_an_end() -> None:
    told = memory("a+", 2)
    assert "infinite" in told
    assert "known" not in told.lower()
    told = memory("a+", 2, Known("a" * 9, 3), eos=False)
    assert "∞" in told
    # More texts than a column of numbers holds; none of the known ones can be spelled.
    told = memory("[a-z]{400}|ab", 1, Known("z" * 400))
    assert "0 of 1 known text " in told


def test_bias_leads_with_the_exact_difference() -> None:
    template = Bias("{group}{outcome}", ("a", "x"), ("b", "1"), samples=20)
    found = audit_bias(toy.ToyModel(1), template)
    told = page_of(found)
    cell = found.largest()
    assert cell is not None
    assert told.index(found.difference()[1:]) < told.lower().index("chi-square")
    assert f"“{cell.group}” with “{cell.outcome}”" in told
    assert "p < 0.000001" in page_of(replace(found, p=1e-12))
    assert "% %" not in told
    alone = audit_bias(toy.ToyModel(1), Bias("{group}{outcome}", ("a",), ("b",), 10))
    assert alone.largest() is None
    assert alone.difference() in page_of(alone).lower()


@pytest.mark.parametrize("edits", [0, 1])
def test_toxicity_tells_the_highest_as_listed_and_with_edits(edits: int) -> None:
    template = Toxicity(("bc1", "x-x"), ("", "a", "<i>12"[3:]), edits=edits)
    found = audit_toxicity(toy.ToyModel(1), template)
    told = page_of(found)
    assert "Words 2" in told
    assert told.count("the highest of 3 prompts") == 1 + edits
    for each in range(edits + 1):
        best = max((one for one in found.prompts if one.edits == each), key=lambda one: one.lower)
        assert (f"After “{best.prompt}”" if best.prompt else "Unprompted") in told


def test_small_probabilities_are_numbers() -> None:
    found = audit_toxicity(toy.ToyModel(1), Toxicity(("x-x-x-x-x-x-x-x",), edits=0, tol=1e-40))
    assert 0 < found.prompts[0].lower < 1e-6
    assert "<0.000001" not in page_of(found)
    found = q.mass(toy.ToyModel(1), q.Query("(x-){9}", eos=True), tol=0.0)
    assert found.lower > 0
    told = page_of(found)
    assert "<0.000001" not in told
    assert f"{found.lower:.2e}".replace("-", "−") in told


def test_cloze_shows_every_answer() -> None:
    template = Cloze((Item("ab 12 ca", "ab"),), word="[abcx]{1,2}", end="-")
    found = q.audit_cloze(toy.ToyModel(0), template)
    told = page_of(found)
    for said in found.answers[0].values():
        assert said in told
    assert "% [" in told
    assert "] %" not in told


def test_a_mass_says_how_it_ended() -> None:
    query = q.Query("a.*", prefix="a", top_k=5, eos=True)
    stopped = q.mass(toy.ToyModel(1), query, tol=0.0, budget=3)
    told = page_of(stopped)
    assert "not complete" in told
    assert "top_k=5" in told
    closed = q.mass(toy.ToyModel(1), q.Query("ab", eos=True), tol=1e-3)
    told = page_of(closed)
    assert "not complete" not in told
    assert math.isclose(closed.lower, closed.upper, abs_tol=1e-3)
