"""Scores of n-gram models beside those of KenLM and of the definition; damaged files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.speech.recognize import LanguageModel

TRIGRAMS = """\
\\data\\
ngram 1=6
ngram 2=5
ngram 3=2

\\1-grams:
-1.2\t<unk>
-99\t<s>\t-0.31
-0.9\t</s>
-0.7\tthe\t-0.25
-1.1\tcat\t-0.12
-1.3\tsat\t-0.4

\\2-grams:
-0.4\t<s> the\t-0.15
-0.6\tthe cat\t-0.22
-0.5\tcat sat
-0.8\tsat the\t-0.05
-0.3\tsat </s>

\\3-grams:
-0.2\t<s> the cat
-0.1\tcat sat </s>

\\end\\
"""


def read(folder: Path, text: str | bytes) -> LanguageModel:
    path = folder / "lm.arpa"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return LanguageModel.read(path)


# log10 of each word and of the end, by kenlm 0.3.0 (`full_scores`).
KENLM = {
    "": [-1.21],
    "the cat sat": [-0.4, -0.2, -0.72, -0.1],
    "the dog sat the cat": [-0.4, -1.6, -1.3, -0.8, -0.65, -1.24],
    "sat sat cat": [-1.61, -1.7, -1.5, -1.02],
    "cat sat": [-1.41, -0.5, -0.1],
    "dog dog": [-1.51, -1.2, -0.9],
}


@pytest.mark.parametrize("sentence", KENLM)
def test_scores_are_those_of_kenlm(sentence: str, tmp_path: Path) -> None:
    found = read(tmp_path, TRIGRAMS).score(sentence.split())
    assert np.array(found) / math.log(10) == pytest.approx(KENLM[sentence], abs=1e-5)


def test_scores_are_those_of_the_definition_in_any_pruned_model(tmp_path: Path) -> None:
    """Of n-grams up to order 4, some shorter ones of which are missing: histories never, suffixes often."""
    draw = np.random.default_rng(2)
    words = ["<s>", "</s>", "<unk>", *"abcd"]
    grams: list[dict[tuple[str, ...], tuple[float, float]]] = [{} for _ in range(4)]
    for word in words:
        grams[0][word,] = tuple((-draw.uniform(0, 2, 2)).tolist())
    for order in (1, 2, 3):
        for history in list(grams[order - 1]):
            for word in words[1:]:
                if history[-1] != "</s>" and draw.uniform() < 0.4:
                    grams[order][*history, word] = tuple((-draw.uniform(0, 2, 2)).tolist())
    text = "\\data\\\n" + "\n".join(f"ngram {k}={len(g)}" for k, g in enumerate(grams, 1))
    for order, part in enumerate(grams, 1):
        text += f"\n\n\\{order}-grams:\n"
        for gram, (p, backoff) in part.items():
            text += f"{p!r} {' '.join(gram)}" + (f" {backoff!r}\n" if order < 4 else "\n")
    model = read(tmp_path, text + "\n\\end\\\n")

    def log10(history: tuple[str, ...], word: str) -> float:
        if (gram := (*history, word)) in grams[len(history)]:
            return grams[len(history)][gram][0]
        backoff = grams[len(history) - 1].get(history, (0.0, 0.0))[1]
        return backoff + log10(history[1:], word)

    for _ in range(50):
        sentence = [str(each) for each in draw.choice(list("abcdx"), draw.integers(0, 9))]
        known = ["<s>", *(each if each != "x" else "<unk>" for each in sentence), "</s>"]
        expected = [log10(tuple(known[max(0, k - 3) : k]), known[k]) for k in range(1, len(known))]
        assert np.array(model.score(sentence)) / math.log(10) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (TRIGRAMS, "", "unknown-format"),
        (TRIGRAMS, "some words\n", "unknown-format"),
        (TRIGRAMS, TRIGRAMS[:-60], "damaged"),
        ("\\end\\", "", "damaged"),
        ("ngram 3=2\n", "", "damaged"),
        ("ngram 2=5", "ngram 2=6", "damaged"),
        ("-0.6\tthe cat", "0.6\tthe cat", "damaged"),
        ("-0.6\tthe cat", "nan\tthe cat", "damaged"),
        ("-0.6\tthe cat", "x\tthe cat", "damaged"),
        ("-0.6\tthe cat\t-0.22", "-0.6\tthe cat\tinf", "damaged"),
        ("the cat\t-0.22", "the cat sat sat\t-0.22", "damaged"),
        ("-0.6\tthe cat\t", "-0.6\tthe dog\t", "damaged"),
        ("-0.6\tthe cat\t", "-0.6\tsat the\t", "damaged"),
        ("-0.1\tcat sat", "-0.1\tcat the", "damaged"),
        ("</s>\n-0.7", "<end>\n-0.7", "missing-key"),
        (TRIGRAMS, b"mmap lm http://kheafield.com/code format version 5\n\0", "unsupported"),
        ("the cat", b"the c\xff\xfet", "invalid-encoding"),
    ],
)
def test_damaged_models_are_refused(
    before: str, after: str | bytes, code: str, tmp_path: Path
) -> None:
    new = after if isinstance(after, bytes) else after.encode()
    with pytest.raises(InputError) as caught:
        read(tmp_path, TRIGRAMS.encode().replace(before.encode(), new, 1))
    assert caught.value.code == code
    assert caught.value.path == str(tmp_path / "lm.arpa")
