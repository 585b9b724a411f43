"""Text, language model and emissions for the decoding benchmark, from the documentation of Python."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

ALPHABET = "abcdefghijklmnopqrstuvwxyz'"
LABELS = ["<pad>", "|", *ALPHABET]
"""As wav2vec2 has them."""
# Letters that models of English confuse, for sounding alike.
ALIKE = ["aeiouy", "bpdtg", "ckqgx", "szcx", "mn", "fvph", "rlw", "jgy", "'s", "uw"]
SEED = 7


def sentences() -> list[list[str]]:
    """Sentences of 6 to 20 words of the topics of Python's `help`, once each."""
    import pydoc_data.topics

    text = " ".join(pydoc_data.topics.topics.values()).lower()
    found = []
    for sentence in re.split(r"[.:;]\s", text):
        words = re.findall(r"(?<![\w.])[a-z]+(?:'[a-z]+)?(?![\w.(])", sentence)
        if 6 <= len(words) <= 20:
            found.append(" ".join(words))
    return [each.split() for each in dict.fromkeys(found)]


def write_arpa(path: Path, texts: list[list[str]], discount: float = 0.75) -> None:
    """A trigram model by absolute discounting with back-off."""
    grams: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(3)]
    for words in texts:
        line = ["<s>", *words, "</s>"]
        for order in range(3):
            grams[order].update(zip(*(line[k:] for k in range(order + 1)), strict=False))
    total = sum(grams[0].values()) - grams[0]["<s>",]
    share = discount * (len(grams[0]) - 1) / total
    p: list[dict[tuple[str, ...], float]] = [
        {g: (n - discount) / total for g, n in grams[0].items()},
        {},
        {},
    ]
    p[0]["<s>",] = 1e-99
    p[0]["<unk>",] = share
    followers: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    backoff: dict[tuple[str, ...], float] = {}
    for order in (1, 2):
        for gram in grams[order]:
            followers.setdefault(gram[:-1], []).append(gram)
        for history in [key for key in followers if len(key) == order]:
            seen = sum(grams[order][g] for g in followers[history])
            for gram in followers[history]:
                p[order][gram] = (grams[order][gram] - discount) / seen
            rest = 1 - sum(p[order][g] for g in followers[history])
            lower = 1 - sum(p[order - 1][g[1:]] for g in followers[history])
            backoff[history] = rest / max(lower, 1e-9)
    with path.open("w") as file:
        file.write("\\data\\\n" + "".join(f"ngram {k + 1}={len(p[k])}\n" for k in range(3)))
        for order in range(3):
            file.write(f"\n\\{order + 1}-grams:\n")
            for gram, value in p[order].items():
                tail = f"\t{np.log10(backoff[gram]):.6f}" if gram in backoff else ""
                file.write(f"{np.log10(value):.6f}\t{' '.join(gram)}{tail}\n")
        file.write("\n\\end\\\n")


def emissions(words: list[str], draw: np.random.Generator, sure_from: float) -> np.ndarray:
    """Logits [frames, labels] of a sentence, as a CTC model at 20 ms per frame gives them.

    Each letter has a peak of one or two frames, with the blank between; at a peak the letter competes with
    letters that sound alike; `sure_from` is the least by which it stands out.
    """
    rows = []

    def row(label: int, height: float) -> np.ndarray:
        values = draw.normal(0, 1, len(LABELS))
        values[label] += height
        return values

    for letter in "|".join(words):
        label = LABELS.index(letter)
        rows += [row(0, draw.uniform(9, 13)) for _ in range(draw.integers(1, 4))]
        sure = sure_from + draw.gamma(4.0, 2.2)
        for frame in range(draw.integers(1, 3)):
            peak = row(label, sure)
            peak[0] += draw.uniform(1, 6) if frame == 0 else draw.uniform(3, 8)
            for group in ALIKE:
                if letter in group:
                    for other in set(group) - {letter}:
                        peak[LABELS.index(other)] += draw.uniform(0, 4.5)
            if letter != "|":
                peak[1] += draw.uniform(0, 2)
            rows.append(peak)
    rows.append(row(0, 10))
    return np.array(rows, np.float32)


def write(folder: Path, utterances: int, sure_from: float) -> list[str]:
    """Write emissions, labels, language model and hotwords; the true texts."""
    texts = sentences()
    draw = np.random.default_rng(SEED)
    order = draw.permutation(len(texts))
    held_out = [texts[k] for k in order[:utterances]]
    training = [texts[k] for k in order[utterances:]]
    write_arpa(folder / "words.arpa", training)
    (folder / "labels.json").write_text(json.dumps({x: k for k, x in enumerate(LABELS)}))
    np.savez(
        folder / "logits.npz",
        **{f"u{k:04}": emissions(words, draw, sure_from) for k, words in enumerate(held_out)},
    )
    # Rare words of the held-out texts first, then rare words of the others.
    counts = Counter(word for words in texts for word in words)
    rare = {
        word: None for words in held_out for word in words if counts[word] <= 2 and len(word) > 4
    }
    others = {word: None for words in training for word in words if counts[word] == 1}
    hotwords = [*list(rare)[:50], *(word for word in others if word not in rare)][:200]
    (folder / "hotwords.txt").write_text("\n".join(hotwords) + "\n")
    return [" ".join(words) for words in held_out]
