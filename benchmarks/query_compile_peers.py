"""Who turns regular expressions into masks over tokens beside holdfast, called alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton, index
from holdfast.lm.query.tokens.token_index import TokenIndex
from holdfast.lm.tokenizers.tokenizer import Tokenizer
from measuring import CORES

Mask = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Peer:
    """One library; `prepared` is what it makes of a vocabulary, once for all expressions."""

    name: str
    distribution: str
    prepare: Callable[[Tokenizer], Any]
    first_mask: Callable[[Any, str], Any]
    """From an expression's text to the tokens that may come first."""
    masks: Callable[[Any, str], Callable[[Sequence[int]], None]]
    """Prepared, expression -> what makes the mask after every token of a sequence."""
    admits: Callable[[Any, str], Callable[[Sequence[int]], bool]]
    """Prepared, expression -> whether a token sequence spells a whole text of its language."""
    index: Callable[[Any, str], Any] | None = None
    """From an expression's text to the automaton with every state unfolded."""


# --- holdfast ------------------------------------------------------------------------------------


def _automaton(lexicon: Lexicon, pattern: str) -> SpellingAutomaton:
    return SpellingAutomaton(compile_regex(pattern), lexicon)


def our_index(lexicon: Lexicon, pattern: str) -> TokenIndex:
    """All states, tokens that act alike together."""
    return index(compile_regex(pattern), lexicon)


def our_arcs(lexicon: Lexicon, pattern: str) -> TokenIndex:
    """All states, and every arc by itself."""
    made = our_index(lexicon, pattern)
    assert len(made.tokens) == made.num_arcs
    return made


def _our_masks(lexicon: Lexicon, pattern: str) -> Callable[[Sequence[int]], None]:
    automaton = _automaton(lexicon, pattern)

    def masks(tokens: Sequence[int]) -> None:
        state = automaton.start
        for token in tokens:
            ids, follows = automaton.arcs(state)
            state = int(follows[np.searchsorted(ids, token)])
            automaton.mask(state)

    return masks


def _our_admits(lexicon: Lexicon, pattern: str) -> Callable[[Sequence[int]], bool]:
    whole = our_index(lexicon, pattern)

    def admits(tokens: Sequence[int]) -> bool:
        state = whole.start
        for token in tokens:
            ids, follows = whole.arcs(state)
            place = int(np.searchsorted(ids, token))
            if place == len(ids) or ids[place] != token:
                return False
            state = int(follows[place])
        return whole.is_final(state)

    return admits


OURS = Peer(
    "holdfast",
    "holdfast",
    lambda tokenizer: Lexicon.of(replace(tokenizer)),  # a copy, of which nothing is kept yet
    lambda lexicon, pattern: _automaton(lexicon, pattern).mask(0),
    _our_masks,
    _our_admits,
    our_index,
)


# --- peers ---------------------------------------------------------------------------------------


def _outlines() -> Peer:
    from outlines_core import Guide, Index, Vocabulary

    def prepare(tokenizer: Tokenizer) -> tuple[Any, int]:
        ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(tokenizer.pieces):
            if piece and token != tokenizer.eos:
                ids.setdefault(piece, []).append(token)
        return Vocabulary(tokenizer.eos, ids), -(-tokenizer.size // 32)

    def first_mask(prepared: tuple[Any, int], pattern: str) -> Mask:
        mask = np.zeros(prepared[1], np.uint32)
        guide = Guide(Index(pattern, prepared[0]))
        guide.write_mask_into(mask.ctypes.data, len(mask), 4)
        return mask

    def masks(prepared: tuple[Any, int], pattern: str) -> Callable[[Sequence[int]], None]:
        guide = Guide(Index(pattern, prepared[0]))
        mask = np.zeros(prepared[1], np.uint32)

        def run(tokens: Sequence[int]) -> None:
            guide.reset()
            for token in tokens:
                guide.advance(token, return_tokens=False)
                guide.write_mask_into(mask.ctypes.data, len(mask), 4)

        return run

    def admits(prepared: tuple[Any, int], pattern: str) -> Callable[[Sequence[int]], bool]:
        made = Index(pattern, prepared[0])

        def asked(tokens: Sequence[int]) -> bool:
            state = made.get_initial_state()
            for token in tokens:
                state = made.get_next_state(state, token)
                if state is None:
                    return False
            return bool(made.is_final_state(state))

        return asked

    return Peer(
        "outlines-core",
        "outlines-core",
        prepare,
        first_mask,
        masks,
        admits,
        lambda prepared, pattern: Index(pattern, prepared[0]),
    )


def _llguidance() -> Peer:
    import llguidance.numpy as bitmasks
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    class Wrapped:
        """A tokenizer as llguidance's wrapper wants it."""

        def __init__(self, tokenizer: Tokenizer) -> None:
            assert tokenizer.eos is not None
            self.eos_token_id = tokenizer.eos
            self.bos_token_id = None
            self.tokens = [
                piece or f"<|{token}|>".encode() for token, piece in enumerate(tokenizer.pieces)
            ]
            self.special_token_ids = [
                token for token, piece in enumerate(tokenizer.pieces) if not piece
            ]
            self.encode = tokenizer.encode

        def __call__(self, text: str | bytes) -> list[int]:
            return self.encode(text.encode() if isinstance(text, str) else text)

    def prepare(tokenizer: Tokenizer) -> tuple[Any, Any]:
        prepared = LLTokenizer(TokenizerWrapper(Wrapped(tokenizer)))
        return prepared, bitmasks.allocate_token_bitmask(1, prepared.vocab_size)

    def matcher(prepared: tuple[Any, Any], pattern: str) -> Any:
        made = LLMatcher(prepared[0], LLMatcher.grammar_from_regex(pattern))
        if made.is_error():
            raise ValueError(made.get_error())
        return made

    def first_mask(prepared: tuple[Any, Any], pattern: str) -> Any:
        bitmasks.fill_next_token_bitmask(matcher(prepared, pattern), prepared[1], 0)
        return prepared[1]

    def masks(prepared: tuple[Any, Any], pattern: str) -> Callable[[Sequence[int]], None]:
        made = matcher(prepared, pattern)

        def run(tokens: Sequence[int]) -> None:
            made.reset()
            for token in tokens:
                made.consume_token(token)
                bitmasks.fill_next_token_bitmask(made, prepared[1], 0)

        return run

    def admits(prepared: tuple[Any, Any], pattern: str) -> Callable[[Sequence[int]], bool]:
        made = matcher(prepared, pattern)

        def asked(tokens: Sequence[int]) -> bool:
            made.reset()
            return made.try_consume_tokens(list(tokens)) == len(tokens) and made.is_accepting()

        return asked

    return Peer("llguidance", "llguidance", prepare, first_mask, masks, admits)


def _xgrammar() -> Peer:
    import xgrammar

    def prepare(tokenizer: Tokenizer) -> tuple[Any, Any]:
        # It takes ids with empty bytes for special tokens.
        pieces = [piece or b"" for piece in tokenizer.pieces]
        stop = [tokenizer.eos] if tokenizer.eos is not None else None
        raw = xgrammar.VocabType.RAW
        made = xgrammar.TokenizerInfo(pieces, raw, stop_token_ids=stop)
        compiler = xgrammar.GrammarCompiler(made, max_threads=CORES, cache_enabled=False)
        return compiler, np.zeros((1, -(-tokenizer.size // 32)), np.int32)

    def first_mask(prepared: tuple[Any, Any], pattern: str) -> Any:
        matcher = xgrammar.GrammarMatcher(prepared[0].compile_regex(pattern))
        matcher.fill_next_token_bitmask(prepared[1])
        return prepared[1]

    def masks(prepared: tuple[Any, Any], pattern: str) -> Callable[[Sequence[int]], None]:
        matcher = xgrammar.GrammarMatcher(prepared[0].compile_regex(pattern))

        def run(tokens: Sequence[int]) -> None:
            matcher.reset()
            for token in tokens:
                matcher.accept_token(token)
                matcher.fill_next_token_bitmask(prepared[1])

        return run

    def admits(prepared: tuple[Any, Any], pattern: str) -> Callable[[Sequence[int]], bool]:
        matcher = xgrammar.GrammarMatcher(prepared[0].compile_regex(pattern))

        def asked(tokens: Sequence[int]) -> bool:
            matcher.reset()
            return all(map(matcher.accept_token, tokens)) and matcher.is_completed()

        return asked

    return Peer("xgrammar", "xgrammar", prepare, first_mask, masks, admits)


_MAKERS = {"outlines_core": _outlines, "llguidance": _llguidance, "xgrammar": _xgrammar}


def installed() -> list[Peer]:
    """The peers that are there."""
    return [make() for module, make in _MAKERS.items() if find_spec(module)]


def versions(peers: Sequence[Peer]) -> dict[str, str]:
    """Name of the distribution -> version."""
    return {peer.distribution: version(peer.distribution) for peer in peers}
