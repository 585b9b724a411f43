"""The machines of the transducer benchmark: random graphs, tokens, spelling.

Those of speech stand in `automata_speech`.

Every input is a pair (A, B) in the tropical semiring; what is composed is A's output with B's input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.automata import Fst
from holdfast.automata.semirings import SEMIRINGS

TROPICAL = SEMIRINGS["tropical"]
Pair = tuple[Fst, Fst]


@dataclass(frozen=True)
class Case:
    """One pair of machines."""

    name: str
    group: str
    """`random`, `L o G`, `emissions o L`, `tokens` or `spelling`."""
    make: Callable[[], Pair]
    """Builds the pair; the same at every call."""
    states: int
    """About how many states the composition has."""
    arcs: int
    """About how many arcs."""


def from_columns(
    source: Any, ilabel: Any, olabel: Any, weight: Any, nextstate: Any, final: Any, start: int = 0
) -> Fst:
    """A tropical machine from arcs in any order; those of a state keep theirs. `final` is [V]."""
    order = np.argsort(source, kind="stable")
    count = np.bincount(source, minlength=len(final))
    return Fst(
        np.concatenate([[0], np.cumsum(count)]),
        np.asarray(ilabel, np.int32)[order],
        np.asarray(olabel, np.int32)[order],
        np.asarray(nextstate, np.int32)[order],
        np.asarray(weight, np.float32)[order],
        np.asarray(final, np.float32),
        start,
        TROPICAL,
    ).checked()


def finals(states: int, weights: dict[int, float]) -> Any:
    """[V] final weights of a tropical machine."""
    made = np.full(states, np.inf, np.float32)
    made[list(weights)] = list(weights.values())
    return made


# --- Random graphs -------------------------------------------------------------------------------


def random_graph(seed: int, states: int, degree: int, labels: int) -> Fst:
    """`degree` arcs from every state to random states, random labels, a seventh of the states final."""
    chance = np.random.default_rng(seed)
    arcs = states * degree
    final = np.where(chance.random(states) < 1 / 7, chance.random(states), np.inf)
    return from_columns(
        np.repeat(np.arange(states), degree),
        chance.integers(1, labels + 1, arcs),
        chance.integers(1, labels + 1, arcs),
        chance.random(arcs),
        chance.integers(0, states, arcs),
        final,
    )


# D * D / L is how many pairs of arcs match on average: at 1 and below the search dies out, and at 2 it
# may at its start. These are the first seeds that give arcs; of V, 4, 100 none of 59 did.
SEEDS = {
    (300, 4, 20): 4,
    (300, 10, 100): 3,
    (1000, 4, 8): 2,
    (1000, 4, 20): 17,
    (1000, 10, 100): 19,
}
SEEDS |= {(3000, 4, 20): 10, (3000, 10, 100): 2}


def random_case(states: int, degree: int, labels: int) -> Case:
    """Two graphs of one kind."""
    seed = SEEDS.get((states, degree, labels), 1)

    def make() -> Pair:
        first = random_graph(2 * seed - 1, states, degree, labels)
        return first, random_graph(2 * seed, states, degree, labels)

    name = f"random V={states:,} D={degree} L={labels}"
    reached = 0.95 if degree**2 > labels else 0.0
    arcs = reached * states**2 * degree**2 / labels
    return Case(name, "random", make, int(reached * states**2), int(arcs))


def random_cases() -> list[Case]:
    """The whole grid."""
    return [
        random_case(states, degree, labels)
        for states in (300, 1000, 3000)
        for degree in (4, 10)
        for labels in (8, 20, 100)
    ]


# --- Tokens of a language model ------------------------------------------------------------------

# Rows of byte sets, each with ?, *, + or nothing behind it; nothing else of regular expressions.
PATTERNS = {
    "date": rb"\d\d\d\d-[01]\d-[0-3]\d",
    "phone number": rb"\+?1?[ .-]?\(?\d\d\d\)?[ .-]?\d\d\d[ .-]?\d\d\d\d",
    "URL": rb"https?://[\w-]+\.[\w.-]+/?[\w./~%-]*\??[\w=&%.+-]*",
}


def acceptor(pattern: bytes) -> Fst:
    """The acceptor of such a pattern, without epsilons; byte b has label b + 1.

    State 0 is the start, state k + 1 has read the k-th set last (Glushkov's construction).
    """
    steps = [
        ([byte for byte in range(256) if re.fullmatch(piece, bytes([byte]))], often)
        for piece, often in re.findall(rb"(\[[^]]*\]|\\.|.)([?*+]?)", pattern)
    ]

    def following(done: int) -> Iterable[int]:
        """The sets that may come next after `done` of them, the last one perhaps again."""
        if done and steps[done - 1][1] in (b"*", b"+"):
            yield done - 1
        for k in range(done, len(steps)):
            yield k
            if steps[k][1] in (b"", b"+"):
                break

    arcs = [
        (done, byte + 1, byte + 1, 0.0, k + 1)
        for done in range(len(steps) + 1)
        for k in following(done)
        for byte in steps[k][0]
    ]
    ends = [
        done
        for done in range(len(steps) + 1)
        if all(often in (b"?", b"*") for _, often in steps[done:])
    ]
    return Fst.build(arcs, ends, states=len(steps) + 1, semiring="tropical")


def read_tokens(tokenizers: Path) -> list[bytes]:
    """The bytes of GPT-2's 50,256 tokens, by number; the one that ends a text is left out."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + k): byte for k, byte in enumerate(others)}
    table = json.loads((tokenizers / "gpt2_encoder.json").read_text(encoding="utf-8"))
    del table["<|endoftext|>"]
    ordered = sorted(table, key=table.__getitem__)
    return [bytes(byte_of[character] for character in token) for token in ordered]


def token_lexicon(tokens: Sequence[bytes]) -> Fst:
    """Tokens -> bytes as a tree with a loop through state 0; the token stands on its last byte's arc."""
    arcs = []
    node = {b"": 0}
    for number, token in enumerate(tokens):
        for k in range(1, len(token)):
            if token[:k] not in node:
                node[token[:k]] = len(node)
                arcs.append((node[token[: k - 1]], 0, token[k - 1] + 1, 0.0, node[token[:k]]))
        arcs.append((node[token[:-1]], number + 1, token[-1] + 1, 0.0, 0))
    return from_columns(*zip(*arcs, strict=True), finals(len(node), {0: 0.0}))


def token_cases(tokenizers: Path) -> list[Case]:
    """GPT-2's lexicon o each pattern."""

    def case(name: str, states: int, arcs: int) -> Case:
        def make() -> Pair:
            return token_lexicon(read_tokens(tokenizers)), acceptor(PATTERNS[name])

        return Case(f"GPT-2 tokens o {name}", "tokens", make, states, arcs)

    return [
        case("date", 283, 2_348),
        case("phone number", 1_725, 12_075),
        case("URL", 67_185, 229_420),
    ]


# --- Spelling ------------------------------------------------------------------------------------

WORDS = (
    "accept automaton backoff bigram closure compose decode epsilon filter final "
    "grammar lattice lexicon machine minimal phoneme reverse semiring spelling weight"
)


def levenshtein(distance: int, labels: int) -> Fst:
    """Every edit of at most `distance` letters, at cost 1 each: state k has made k edits."""
    letters = range(1, labels + 1)
    arcs = []
    for made in range(distance + 1):
        arcs += [(made, x, x, 0.0, made) for x in letters]
        if made < distance:
            arcs += [(made, x, 0, 1.0, made + 1) for x in letters]
            arcs += [(made, 0, x, 1.0, made + 1) for x in letters]
            arcs += [(made, x, y, 1.0, made + 1) for x in letters for y in letters if x != y]
    return Fst.build(arcs, range(distance + 1), semiring="tropical")


def strings(words: Sequence[str]) -> Fst:
    """The acceptor of some words of small letters; a is label 1."""
    arcs = []
    ends = []
    states = 1
    for word in words:
        at = 0
        for letter in word:
            arcs.append((at, ord(letter) - 96, ord(letter) - 96, 0.0, states))
            at = states
            states += 1
        ends.append(at)
    return Fst.build(arcs, ends, semiring="tropical")


def spelling_cases() -> list[Case]:
    """One edit o twenty words."""

    def make() -> Pair:
        return levenshtein(1, 26), strings(WORDS.split())

    return [Case(f"Levenshtein-1 o {len(WORDS.split())} strings", "spelling", make, 276, 7_424)]
