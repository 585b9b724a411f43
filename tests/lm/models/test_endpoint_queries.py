"""Queries through a server: bounds that hold whatever it lists and whenever it stops."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import toy
from completion_server import MODEL, Server, serving

from holdfast.errors import InputError
from holdfast.lm.models.endpoint import Endpoint, Settings
from holdfast.lm.query import asking
from holdfast.lm.query.queries import Query

REGEX = "(ab|a1| b|é){1,2}"


@pytest.fixture(scope="module")
def process() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def truth() -> dict[str, float]:
    """The probability of every text, by trying all token sequences."""
    return {text: chance for text, (chance, _) in toy.by_text(toy.ToyModel(), REGEX, 4).items()}


def opened(server: Server, listed: int | None, dialect: str = "vllm", retries: int = 1) -> Endpoint:
    server.set(dialect=dialect)
    settings = Settings(listed, concurrency=2, batch=3, retries=retries, end="<end>")
    return Endpoint(server.url, MODEL, toy.TOKENIZER, settings, lambda _: None)


def test_the_mass_of_a_full_list_is_exact(process: Server, truth: dict[str, float]) -> None:
    with opened(process, None) as model:
        found = asking.mass(model, Query(REGEX, eos=True), 0.0)
    exact = math.fsum(truth.values())
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower < 1e-9
    assert found.stopped == "closed"


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp", "text"])
@pytest.mark.parametrize("listed", [5, 12])
def test_bounds_hold_when_little_is_listed(
    process: Server, truth: dict[str, float], dialect: str, listed: int
) -> None:
    exact = math.fsum(truth.values())
    with opened(process, listed, dialect) as model:
        found = asking.mass(model, Query(REGEX, eos=True), 0.0)
        assert found.lower <= exact <= found.upper
        assert found.upper < 1
        matches = asking.search(model, Query(REGEX, eos=True), 3)
    for match in matches.found:
        chance = math.log(truth[match.text])
        assert match.logprob <= chance + 1e-9
        assert chance <= match.logprob_upper + 1e-9


def test_the_most_probable_texts(process: Server, truth: dict[str, float]) -> None:
    with opened(process, None) as model:
        found = asking.search(model, Query(REGEX, eos=True), 5)
    best = sorted(truth, key=lambda text: -truth[text])[:5]
    assert [match.text for match in found.found] == best
    for match in found.found:
        assert match.logprob == pytest.approx(math.log(truth[match.text]), abs=1e-9)


def test_top_k_within_what_is_listed_is_exact(process: Server) -> None:
    decoded = toy.by_text(toy.ToyModel(), REGEX, 4, top_k=4)
    exact = math.fsum(chance for chance, _ in decoded.values())
    with opened(process, 5) as model:
        found = asking.mass(model, Query(REGEX, top_k=4, eos=True), 0.0)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower < 1e-9
        with pytest.raises(InputError):
            asking.mass(model, Query(REGEX, top_k=6, eos=True), 0.0)


def test_bounds_hold_when_the_server_stops(process: Server, truth: dict[str, float]) -> None:
    exact = math.fsum(truth.values())
    gaps = []
    for answered in (0, 1, 4, 12):
        with opened(process, None) as model:
            process.set(after=answered, faults=1000, fault="503")
            found = asking.mass(model, Query(REGEX, eos=True), 0.0, batch=4)
        assert found.lower <= exact <= found.upper
        assert "503" in found.stopped
        gaps.append(found.upper - found.lower)
    assert sorted(gaps, reverse=True) == gaps
    assert gaps[-1] < gaps[0]
