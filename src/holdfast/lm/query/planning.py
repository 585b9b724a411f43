"""Explain a query without running a model: its language, automata and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import automata as fa
from holdfast.answer import Answer, Section
from holdfast.automata.drawing.pictures import to_svg
from holdfast.errors import LimitError
from holdfast.files import write_whole
from holdfast.lm.query.compiling import CompiledQuery, Prompt, compile_query, language_of
from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.operations import count_strings, strings
from holdfast.lm.query.results import Count, how_many, pairs, readable
from holdfast.lm.query.tokens.automaton import TokenAutomaton
from holdfast.lm.tokenizers.tokenizer import Tokenizer
from holdfast.numbers import counted, number

EXAMPLES = 5
MOST_DRAWN = 300
"""States of a token automaton that a picture may have."""
MOST_MARKED = 10_000
"""Texts whose canonical encodings are marked in a picture."""


@dataclass(frozen=True)
class PromptPlan:
    """One string of the prefix."""

    text: str
    tokens: tuple[str, ...]
    """What the model is given."""
    given: str
    """Rest of the prefix, which the first tokens must spell."""
    first_tokens: int
    """Number of tokens that may come next."""


@dataclass(frozen=True)
class Plan(Answer):
    """Explanation of a query, computed without a model."""

    strings: Count
    """Number of texts of the language, exact or ``"infinite"``."""
    examples: tuple[str, ...]
    """The shortest texts."""
    states: int
    """States of the minimal automaton over bytes."""
    classes: int
    """Number of byte classes that the automaton distinguishes."""
    prompts: tuple[PromptPlan, ...]
    canonical_by: str | None
    """How canonical sequences are recognized: ``automaton``, ``encoding again``; None if all count."""
    picture: Path | None = None
    """Where the token sequences were drawn."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        own = {name: value for name, value in vars(self).items() if name != "picture"}
        return {**own, "prompts": [vars(prompt) for prompt in self.prompts]}

    def written(self) -> Mapping[str, Path]:
        """The picture."""
        return {} if self.picture is None else {"picture": self.picture}

    def sections(self) -> Sequence[Section]:
        """Language, automaton and prompts."""
        texts = how_many(self.strings)
        rows = [
            ("texts", texts),
            ("for example", ", ".join(map(repr, self.examples))),
            ("states of the byte automaton", number(self.states)),
            ("byte classes", number(self.classes)),
        ]
        if self.canonical_by is not None:
            rows.append(("canonical encodings by", self.canonical_by))
        for prompt in self.prompts:
            tokens = " ".join(map(repr, prompt.tokens)) or "nothing"
            if prompt.given:
                tokens += f", then tokens that spell {prompt.given!r}"
            name = f"prefix {prompt.text!r}" if prompt.text else "no prefix"
            rows.append((name, f"given {tokens}"))
            rows.append(("", counted(prompt.first_tokens, "token") + " may follow"))
        sentence = f"Texts: {texts}; states of the byte automaton: {number(self.states)}."
        return [
            Section("plan", "What does the query ask?", sentence, tables=[pairs(rows, "query")])
        ]


def plan(query: Query, tokenizer: Tokenizer | None = None) -> Plan:
    """Explain a query without running a model: language, automaton, prompts.

    Args:
        query: the query.
        tokenizer: without one, only the language is described.

    Raises:
        InputError: if the query cannot be compiled.
    """
    compiled = None if tokenizer is None else compile_query(query, tokenizer)
    language = language_of(query) if compiled is None else compiled.language
    prompts = () if compiled is None else compiled.prompts
    canonical_by = None
    if compiled is not None and query.encodings == "canonical":
        again = any(prompt.accepts is not None for prompt in prompts)
        canonical_by = "encoding again" if again else "automaton"
    return Plan(
        strings=count_strings(language),
        examples=tuple(readable(text) for text in strings(language, EXAMPLES)),
        states=language.num_states,
        classes=language.next.shape[1],
        prompts=tuple(_told(prompt, compiled.tokenizer) for prompt in prompts if compiled),
        canonical_by=canonical_by,
    )


def _told(prompt: Prompt, tokenizer: Tokenizer) -> PromptPlan:
    start = prompt.automaton.start
    names = {token: name for name, token in tokenizer.specials.items()}
    return PromptPlan(
        text=readable(prompt.text),
        tokens=tuple(
            names.get(token) or readable(tokenizer.pieces[token] or b"")
            for token in (*prompt.context, *prompt.tokens)
        ),
        given=readable(prompt.remainder),
        first_tokens=len(prompt.automaton.arcs(start)[0]) if start >= 0 else 0,
    )


def draw(query: Query, tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a picture (SVG) of the token sequences of a query.

    Those of the tokenizer itself have another color. With several prefix strings, those of the first.

    Raises:
        InputError: if the query cannot be compiled.
        LimitError: if the automaton is too large for a picture that anybody could read.
        HoldfastError: if the file cannot be written.
    """
    compiled = compile_query(query, tokenizer, "texts")
    prompt = compiled.prompts[0]
    machine, numbers = _machine(prompt.automaton, compiled.tokenizer)
    svg = to_svg(machine, _canonical_arcs(compiled, prompt, numbers))
    write_whole(Path(path), svg.encode())


def _machine(
    automaton: TokenAutomaton, tokenizer: Tokenizer
) -> tuple[fa.Fst, dict[tuple[int, int], tuple[int, int]]]:
    """The automaton unfolded, and (state, token) -> (number of the arc, next state)."""
    seen = {automaton.start: 0}
    waiting = [automaton.start]
    numbers: dict[tuple[int, int], tuple[int, int]] = {}
    rows: list[tuple[int, int, int]] = []
    for state in waiting:
        for token, following in zip(*automaton.arcs(state), strict=True):
            if int(following) not in seen:
                seen[int(following)] = len(seen)
                waiting.append(int(following))
            numbers[seen[state], int(token)] = len(rows), seen[int(following)]
            rows.append((seen[state], int(token) + 1, seen[int(following)]))
        if len(seen) > MOST_DRAWN:
            raise LimitError(
                "the token automaton is too large to be drawn",
                needed=f"more than {MOST_DRAWN} states",
                allowed=f"{MOST_DRAWN} states",
                remedy="draw a shorter text of the language",
            )
    names = {
        label: _visible(tokenizer.pieces[label - 1] or b"") for label in {row[1] for row in rows}
    }
    symbols = fa.SymbolTable({0: "<eps>", **names})
    machine = fa.Fst.build(
        [(source, label, label, 0.0, following) for source, label, following in rows],
        [number for number, state in enumerate(waiting) if automaton.is_final(state)],
        states=len(waiting),
        semiring="log",
        isymbols=symbols,
        osymbols=symbols,
    )
    return machine, numbers


def _canonical_arcs(
    compiled: CompiledQuery, prompt: Prompt, numbers: dict[tuple[int, int], tuple[int, int]]
) -> set[int]:
    """Arcs on the path of some text's canonical encoding."""
    marked: set[int] = set()
    for text in strings(compiled.language, MOST_MARKED):
        tokens = tuple(compiled.tokenizer.encode(text.removeprefix(prompt.head)))
        if tokens[: len(prompt.tokens)] != prompt.tokens:
            continue  # no token of it ends where the prefix does
        arcs, state = [], 0
        for token in tokens[len(prompt.tokens) :]:
            if (state, token) not in numbers:
                break
            arc, state = numbers[state, token]
            arcs.append(arc)
        else:
            marked.update(arcs)
    return marked


def _visible(piece: bytes) -> str:
    """A token as a label: a space is a dot."""
    return readable(piece).replace(" ", "·").replace("\n", "⏎")
