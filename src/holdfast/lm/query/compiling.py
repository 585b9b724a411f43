"""From a query to automata over tokens: one `Prompt` for each string of the prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.query.canonical.automaton import canonical_automaton
from holdfast.lm.query.queries import Encodings, Query
from holdfast.lm.query.regex import operations as languages
from holdfast.lm.query.regex.dfa import ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.results import readable
from holdfast.lm.query.tokens.automaton import I32, TokenAutomaton
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton
from holdfast.lm.tokenizers.tokenizer import Tokenizer

MOST_PREFIXES = 10_000

Purpose = Literal["event", "texts"]
"""What automata are for: the query's event, or its texts themselves (search, counts)."""
Check = Callable[[tuple[int, ...]], bool]


@dataclass(frozen=True, eq=False)
class Prompt:
    """What is given to the model, and the automaton of what may follow."""

    text: bytes
    """The string of the prefix; empty without one."""
    tokens: tuple[int, ...]
    """What the model is given, BOS left out."""
    remainder: bytes
    """Bytes of the prefix that `tokens` do not spell (healing, or a prefix given as text): what follows
    must spell them first. Probabilities are conditional on that event, and the decoding rule does not
    apply to a token that starts among them."""
    automaton: TokenAutomaton
    """What may follow `tokens`: spells `remainder`, then the rest of the text. For the event ``prefix``,
    its final states take everything, and are never left."""
    remainder_automaton: TokenAutomaton | None
    """Token sequences whose spelling starts with `remainder` (event ``prefix``); None when it is empty."""
    share: float
    """Probability of this prefix string among all."""
    context: tuple[int, ...] = ()
    """Tokens in front of `tokens` that spell nothing: messages, `prefix_tokens`, special tokens."""
    head: bytes = b""
    """What the special tokens at the end of `context` stand for: `text` starts with it."""
    accepts: Check | None = None
    """Final check of a token sequence (after `tokens`); set if canonical sequences are verified by
    re-encoding."""


@dataclass(frozen=True, eq=False)
class CompiledQuery:
    """A query, ready to be asked."""

    query: Query
    tokenizer: Tokenizer
    """The tokenizer as this query reads it (`Tokenizer.spaced` where the regex writes a space)."""
    language: ByteDfa
    """The whole texts: prefix, edits and exclusion applied."""
    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()
    """Remarks about the query, for people."""


def compile_query(query: Query, tokenizer: Tokenizer, purpose: Purpose = "event") -> CompiledQuery:
    """The automata of a query.

    Args:
        query: the question.
        tokenizer: that of the model which will be asked.
        purpose: ``event`` for the query's event (mass, samples), ``texts`` for the texts themselves.

    Raises:
        InputError: if a setting makes no sense, the language is empty, the prefix has no or infinitely
            many strings, or no token sequence spells a text.
    """
    _check(query)
    writes_space = " " in (query.prompt or "") or languages.writes_a_space(query.regex)
    if tokenizer.spaced is not None and writes_space:
        tokenizer = tokenizer.spaced
    rests = list(_after_prefixes(query))
    wholes = [languages.concatenated(languages.literal(text), rest) for text, rest in rests]
    language = wholes[0]
    for whole in wholes[1:]:
        language = languages.union(language, whole)
    lexicon = Lexicon.of(tokenizer)
    context = _context(query, tokenizer)
    prompts = [
        _prompt(query, tokenizer, lexicon, context, text, whole, purpose, share=1 / len(rests))
        for (text, _), whole in zip(rests, wholes, strict=True)
    ]
    spelled = [prompt for prompt in prompts if prompt.automaton.start >= 0]
    if not spelled:
        raise InputError(
            "no token sequence spells a text of the regular expression",
            code="no-match",
            place=f"regex {query.regex!r}",
            found=f"the {tokenizer.size:,} tokens of {tokenizer.name}, without bytes that it needs",
            remedy="ask for texts that the vocabulary can spell, or, where the prefix ends inside a token, "
            "take its last token back (heal)",
        )
    return CompiledQuery(
        query, tokenizer, language, tuple(prompts), _notes(query, tokenizer, rests)
    )


def language_of(query: Query) -> ByteDfa:
    """The whole texts of a query, without a tokenizer.

    Raises:
        InputError: as `compile_query`.
    """
    _check(query)
    language: ByteDfa | None = None
    for text, rest in _after_prefixes(query):
        whole = languages.concatenated(languages.literal(text), rest)
        language = whole if language is None else languages.union(language, whole)
    assert language is not None  # _after_prefixes yields or raises
    return language


# --- The language --------------------------------------------------------------------------------


def _after_prefixes(query: Query) -> Iterator[tuple[bytes, ByteDfa]]:
    """(a string of the prefix, what may follow it), edits and exclusion applied; never empty."""
    language = compile_regex(query.regex, ignore_case=query.ignore_case)
    if language.is_empty:
        raise InputError(
            "no text matches the regular expression",
            code="no-match",
            place=f"regex {query.regex!r}",
        )
    excluded = (
        None
        if query.exclude is None
        else compile_regex(query.exclude, ignore_case=query.ignore_case)
    )
    some = False
    if query.prompt is not None:
        starts = [(query.prompt.encode(), language)]
    else:
        starts = [(text, languages.after(language, text)) for text in _prefixes(query, language)]
    for text, rest in starts:
        if query.edits:
            rest = languages.edited(rest, query.edits)
        if excluded is not None:
            rest = languages.difference(rest, languages.after(excluded, text))
        if not rest.is_empty:
            some = True
            yield text, rest
    if not some:
        raise InputError(
            "every text of the regular expression is excluded",
            code="no-match",
            place=f"regex {query.regex!r}",
            found=f"exclude {query.exclude!r}",
        )


def _prefixes(query: Query, language: ByteDfa) -> list[bytes]:
    """The strings of the prefix with which a text of the language starts."""
    if query.prefix is None:
        return [b""]
    starts = replace(language, final=np.ones(language.num_states, dtype=np.bool_))
    allowed = compile_regex(query.prefix, ignore_case=query.ignore_case)
    prefixes = languages.intersection(allowed, starts)
    if prefixes.is_empty:
        raise InputError(
            "no text of the regular expression starts with the prefix",
            code="no-match",
            place=f"prefix {query.prefix!r}",
            expected=f"what texts of {query.regex!r} start with: the regex describes the whole text",
        )
    if not languages.is_finite(prefixes):
        raise InputError(
            "the prefix has infinitely many strings, which cannot be equally likely",
            code="unsupported",
            place=f"prefix {query.prefix!r}",
            remedy="bound its repetitions: {0,3} in the place of *",
        )
    found = languages.strings(prefixes, MOST_PREFIXES + 1)
    if len(found) > MOST_PREFIXES:
        raise InputError(
            f"the prefix has more than {MOST_PREFIXES:,} strings",
            code="out-of-range",
            place=f"prefix {query.prefix!r}",
            found=f"{languages.count_strings(prefixes):,} strings",
            remedy="for plain text use --prompt (prompt=), and a regex of the rest; "
            "or write \\. for a dot: a bare . is any character"
            if re.search(r"(^|[^\\])\.", query.prefix)
            else "use a prefix with fewer strings",
        )
    return found


# --- Tokens --------------------------------------------------------------------------------------


def _prompt(
    query: Query,
    tokenizer: Tokenizer,
    lexicon: Lexicon,
    context: tuple[int, ...],
    text: bytes,
    whole: ByteDfa,
    purpose: Purpose,
    share: float,
) -> Prompt:
    head, special, tail = _special_head(query, tokenizer, text)
    text, whole = text[len(head) :], languages.after(whole, head)
    tokens, given = _given(query, tokenizer, text, tail)
    if purpose == "event" and query.event == "prefix":
        whole = languages.followed_by_anything(whole)

    def led(language: ByteDfa) -> ByteDfa:
        """What token sequences spell from the start of a text; a prefix is read with its lead."""
        if not text:
            return languages.with_lead(language, tokenizer.lead)
        return languages.concatenated(languages.literal(tokenizer.lead), language)

    def follow(language: ByteDfa) -> tuple[TokenAutomaton, Check | None]:
        """The automaton of what may follow `tokens`, for texts that start with `text`."""
        if query.encodings != "canonical":
            spelled = tokenizer.spell(tokens)
            rest = languages.after(language, spelled)
            return SpellingAutomaton(rest if tokens else led(rest), lexicon), None
        automaton, check = canonical_automaton(led(language), tokenizer, lexicon)
        if check is not None and purpose == "event" and query.event == "prefix":
            raise InputError(
                "this tokenizer does not support canonical encodings of unfinished texts",
                code="unsupported",
                place=tokenizer.name,
                remedy="ask for finished texts (--eos; eos=True), or use --encodings all",
            )
        return _started(automaton, tokens), check and (lambda path: check((*tokens, *path)))

    automaton, accepts = follow(whole)
    given_automaton = None
    if given:
        anything = languages.followed_by_anything(languages.literal(text))
        given_automaton, _ = follow(anything)
    return Prompt(
        head + text,
        tokens,
        given,
        automaton,
        given_automaton,
        share,
        context + special,
        head,
        accepts,
    )


def _context(query: Query, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Tokens in front of every text."""
    tokens = tuple(query.prefix_tokens)
    if tokens and query.messages is not None:
        raise InputError(
            "messages and prefix_tokens exclude each other", code="conflict", place="prefix_tokens"
        )
    if query.messages is not None:
        tokens = tokenizer.chat_tokens(query.messages)
    for token in tokens:
        if not (isinstance(token, int) and 0 <= token < tokenizer.size):
            raise InputError(
                "invalid token id",
                code="out-of-range",
                place="prefix_tokens",
                found=repr(token),
                expected=f"0 to {tokenizer.size - 1:,}",
            )
    return tokens


def _special_head(
    query: Query, tokenizer: Tokenizer, text: bytes
) -> tuple[bytes, tuple[int, ...], tuple[int, ...] | None]:
    """A prefix up to its last special token: its bytes and tokens; and the tokens that follow.

    Special tokens spell nothing, and the encoder starts afresh after one.
    """
    if not query.special_tokens or not text:
        return b"", (), None
    tokens = tuple(tokenizer.parsed(text.decode()))
    ids = set(tokenizer.specials.values())
    size = max((place for place, token in enumerate(tokens, 1) if token in ids), default=0)
    if size == 0:
        return b"", (), None
    rest = tokenizer.spell(tokens[size:])
    if not text.endswith(rest):
        raise InputError(
            "the tokenizer cannot spell the prefix",
            code="unsupported",
            place=f"prefix {readable(text)!r}",
            found=f"{readable(rest)!r} after its last special token",
        )
    return text[: len(text) - len(rest)], tokens[:size], tokens[size:]


def _notes(
    query: Query, tokenizer: Tokenizer, rests: list[tuple[bytes, ByteDfa]]
) -> tuple[str, ...]:
    """What somebody who wrote this query may not expect."""
    notes = []
    if not query.special_tokens:
        written = [text for text, _ in rests[:100]] + [query.regex.replace("\\", "").encode()]
        found = [one for one in tokenizer.specials if any(one.encode() in text for text in written)]
        if found:
            notes.append(
                f"{', '.join(map(repr, found[:3]))} is read as plain text, not as a special token: in a "
                "prefix --special-tokens (special_tokens=True) changes that; --messages applies a template"
            )
    notes += [
        f"{literal[1]} is literal text in RE2's syntax; for a repetition write {{0{literal[1][1:]}"
        for pattern in (query.regex, query.prefix or "", query.exclude or "")
        if (literal := _OPEN_REPEAT.search(pattern))
    ]
    return tuple(notes)


_OPEN_REPEAT = re.compile(r"(?:^|[^\\])(\{,[0-9]+\})")


def _given(
    query: Query, tokenizer: Tokenizer, text: bytes, tail: tuple[int, ...] | None = None
) -> tuple[tuple[int, ...], bytes]:
    """(tokens given to the model, bytes of the prefix that they leave to be spelled)."""
    if not text:
        return (), b""
    if query.encodings == "all":  # no token of the prefix is settled
        return (), tokenizer.lead + text
    tokens = tuple(tokenizer.encode(text)) if tail is None else tail
    if tokenizer.spell(tokens) != text:
        raise InputError(
            "the tokenizer cannot spell the prefix",
            code="unsupported",
            place=f"prefix {readable(text)!r}",
            found=f"{readable(tokenizer.spell(tokens))!r} after encoding and decoding",
        )
    if not query.heal:
        return tokens, b""
    return tokens[:-1], tokenizer.pieces[tokens[-1]] or b""


@dataclass(frozen=True)
class _Started:
    """An automaton entered at another state."""

    inner: TokenAutomaton
    start: int

    def arcs(self, state: int) -> tuple[I32, I32]:
        return self.inner.arcs(state)

    def is_final(self, state: int) -> bool:
        return self.inner.is_final(state)


def _started(automaton: TokenAutomaton, tokens: tuple[int, ...]) -> TokenAutomaton:
    """The automaton after `tokens`; one without a start where they lead nowhere."""
    state = automaton.start
    for token in tokens:
        if state < 0:
            break
        arcs, following = automaton.arcs(state)
        place = int(np.searchsorted(arcs, token))
        state = int(following[place]) if place < len(arcs) and arcs[place] == token else -1
    return _Started(automaton, state) if tokens else automaton


# --- Settings ------------------------------------------------------------------------------------


def _check(query: Query) -> None:
    """Refuse settings that make no sense."""
    wrong: tuple[str, object, str] | None = None
    if query.encodings not in get_args(Encodings):
        wrong = ("encodings", query.encodings, " or ".join(get_args(Encodings)))
    elif query.top_k is not None and query.top_k < 1:
        wrong = ("top_k", query.top_k, "1 or more")
    elif query.top_p is not None and not 0 < query.top_p <= 1:
        wrong = ("top_p", query.top_p, "above 0, 1 at most")
    elif not 0 < query.temperature < float("inf"):
        wrong = ("temperature", query.temperature, "above 0 (the most probable text: search)")
    elif query.edits < 0:
        wrong = ("edits", query.edits, "0 or more")
    elif query.prompt is not None and query.prefix is not None:
        raise InputError("prompt and prefix exclude each other", code="conflict", place="prompt")
    elif query.max_tokens is not None and query.max_tokens < 1:
        wrong = ("max_tokens", query.max_tokens, "1 or more")
    if wrong is not None:
        name, found, expected = wrong
        raise InputError(
            f"invalid {name}",
            code="invalid-value",
            place=name,
            found=str(found),
            expected=expected,
        )
