"""What scores a text beside the acoustic model: language model and hotwords, as the search takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from holdfast.errors import InputError
from holdfast.opening import open_source
from holdfast.speech.recognize import _tries as tries
from holdfast.speech.recognize.labels import Labels
from holdfast.speech.recognize.language_model import LanguageModel, empty_trie

CHARACTERS = 0x110000
MARKERS = ("<s>", "</s>", "<unk>", "<UNK>")
FEW = 0.5
"""Share of a language model's words that the labels can spell below which its use is doubtful."""

_Sequences = tuple[tries.Ints, tries.Ints]


def fuse(
    labels: Labels,
    lm: LanguageModel | None,
    hotwords: Mapping[str, float],
    *,
    alpha: float,
    beta: float,
    unknown_score: float,
) -> tuple[tries.Model, list[str]]:
    """Prepare a search.

    Returns:
        (what scores a text, what is doubtful about it).

    Raises:
        InputError: if the labels can spell no word of the language model, or no hotword.
    """
    letters = set("".join(labels.texts)) | {" "}
    phrases, doubts = _spelled_hotwords(hotwords, letters)
    words: dict[str, int] = {}
    if lm is not None:
        words = {word: k for k, word in enumerate(lm.words) if word not in MARKERS}
        doubts += _check_words(list(words), letters, labels)
        # A hotword is a word, also if the language model does not have it.
        for word in sorted({word for phrase in phrases for word in phrase.split()}):
            words.setdefault(word, tries.HOTWORD_ONLY)
    # The words' tree: characters of every word, and the id at the node where it ends.
    symbols, starts = _characters(list(words))
    lexicon = empty_trie(symbols.size, CHARACTERS)
    ends, nodes = tries.build_trie(lexicon, symbols, starts)
    ids = np.full(nodes, tries.NONE, np.int64)
    ids[ends] = list(words.values())
    spelling, places = _characters(labels.texts)
    favored = _automaton(phrases)
    # What a label can add at most: its ends of words, and hotwords that end or begin with it.
    ended = favored.bonus.max() + (max(beta, 0.0) if lm is not None else 0.0)
    gain = [text.count(" ") * ended + favored.promise.max() for text in labels.texts]
    space = labels.texts.index(" ") if " " in labels.texts else tries.NONE
    model = tries.Model(
        spelling,
        places,
        labels.blank,
        space,
        lm is not None,
        lexicon,
        ids,
        _no_ngrams() if lm is None else lm.ngrams,
        tries.ROOT if lm is None else lm.start,
        float(alpha),
        float(beta),
        float(unknown_score),
        np.array(gain) if alpha >= 0 else np.full(len(gain), math.inf),
        favored,
    )
    return model, doubts


def read_hotwords(path: Path) -> dict[str, float | None]:
    """Hotwords of a file: a phrase per line, and behind a tab its weight, if it has its own.

    Raises:
        InputError: if it cannot be read, has none, or a weight is not a positive number.
    """
    hotwords: dict[str, float | None] = {}
    with open_source(path) as source:
        text = source.read().decode("utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        phrase, tab, weight = line.partition("\t")
        if not phrase.strip():
            continue
        try:
            hotwords[phrase.strip()] = float(weight) if tab else None
        except ValueError as error:
            raise InputError(
                "not a weight",
                code="invalid-value",
                path=path,
                place=f"line {number}",
                found=weight,
                expected="PHRASE, or PHRASE<tab>NUMBER",
            ) from error
    if not hotwords:
        raise InputError("no hotwords", code="empty-input", path=path)
    return hotwords


def _spelled_hotwords(
    hotwords: Mapping[str, float], letters: set[str]
) -> tuple[dict[str, float], list[str]]:
    """Hotwords with single spaces that the labels can spell, in an order that is not the user's."""
    phrases: dict[str, float] = {}
    lost = []
    for given, weight in hotwords.items():
        phrase = " ".join(given.split())
        if not 0 < weight < math.inf:
            raise InputError(
                "invalid weight of a hotword",
                code="out-of-range",
                place=given,
                found=f"{weight:g}",
                expected="a positive number",
            )
        if not phrase or not set(phrase) <= letters:
            lost.append(given)
        else:
            phrases[phrase] = max(weight, phrases.get(phrase, 0.0))
    if lost and not phrases:
        raise InputError(
            "the labels can spell no hotword",
            code="no-match",
            place="hotwords",
            found=", ".join(lost[:5]),
            expected="characters of " + "".join(sorted(letters))[:80],
            remedy="write them as the model writes text (case, punctuation)",
        )
    text = f"{len(lost)} hotwords have characters that no label has: {', '.join(lost[:5])}"
    return dict(sorted(phrases.items())), [text] if lost else []


def _check_words(words: Sequence[str], letters: set[str], labels: Labels) -> list[str]:
    """What is doubtful about a language model for these labels."""
    spelled = sum(set(word) <= letters for word in words)
    if not spelled:
        raise InputError(
            "the labels can spell no word of the language model",
            code="conflict",
            place="lm",
            found=", ".join(words[:5]),
            expected="words of " + "".join(sorted(letters))[:80],
            remedy="use a language model of this alphabet and case",
        )
    doubts = []
    if spelled < FEW * len(words):
        doubts.append(
            f"The labels can spell {spelled:,} of the language model's {len(words):,} words;"
            " the others are never found."
        )
    if not labels.joined:
        doubts.append("No label ends words: each label is a word of the language model.")
    return doubts


def _characters(texts: Sequence[str]) -> _Sequences:
    """Code points of texts, one after the other, and where each text starts."""
    sizes = np.array([0, *map(len, texts)], np.int64)
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    return points.astype(np.int64), np.cumsum(sizes)


def _automaton(phrases: Mapping[str, float]) -> tries.Hotwords:
    """Aho and Corasick's automaton: a step costs the same for any number of phrases."""
    padded = {f" {phrase} ": weight for phrase, weight in phrases.items()}
    # 1. Nodes are the prefixes of the phrases, short ones first; each fails to its longest suffix.
    prefixes = {text[:size] for text in padded for size in range(1, len(text) + 1)}
    nodes = {"": tries.ROOT}
    trie, fail = empty_trie(len(prefixes), CHARACTERS), np.zeros(len(prefixes) + 1, np.int64)
    for size, group in groupby(sorted(prefixes, key=lambda each: (len(each), each)), len):
        first, texts = len(nodes), list(group)
        nodes |= {text: first + k for k, text in enumerate(texts)}
        tries.add_ngrams(trie, fail, _characters(texts)[0].reshape(-1, size), first)
    # 2. A phrase that has begun promises its share; its closing space turns that into the bonus.
    bonus, promise = np.zeros(len(nodes)), np.zeros(len(nodes))
    for text, weight in padded.items():
        bonus[nodes[text]] = weight
        for size in range(2, len(text)):
            node = nodes[text[:size]]
            promise[node] = max(promise[node], weight * (size - 1) / (len(text) - 2))
    # 3. A suffix counts wherever it ends.
    for node, shorter in enumerate(fail):
        bonus[node] += bonus[shorter]
        promise[node] = max(promise[node], promise[shorter])
    return tries.Hotwords(trie, fail, bonus, promise, nodes.get(" ", tries.ROOT))


def _no_ngrams() -> tries.Ngrams:
    zero = np.zeros(1)
    places = np.zeros(1, np.int64)
    return tries.Ngrams(
        empty_trie(1, 1), zero, zero, places, np.ones(1, np.bool_), tries.NONE, tries.NONE
    )
