"""Syntax features by Python's parser, and a learned score whose models never saw what they score."""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from holdfast.data.curation.languages import language_named
from holdfast.data.curation.learned_score import Copies, LearnedScore
from holdfast.data.curation.syntax_features import BUCKETS, SyntaxFeatures, syntax_features

PYTHON = language_named("python")

# --- Features --------------------------------------------------------------------------------------

statements = st.lists(
    st.sampled_from(
        [
            "x = a[i]",
            "if a < b: f(x)",
            "while not a: f(b[0])",
            "for i in x: f(i)",
            "f((1, [2, {3}]))",
            "return = 1",
            "f(a b)",
            "x = (1",
            "y = ]",
            "def",
        ]
    ),
    max_size=5,
)


@given(statements)
def test_errors_are_there_where_python_finds_some(lines: list[str]) -> None:
    source = "\n".join(lines) + "\n"
    found = syntax_features(source.encode(), PYTHON)
    try:
        ast.parse(source)
    except SyntaxError:
        assert found.errors > 0
        assert found.measures[4] == 1
    else:
        assert (found.errors, found.measures[0], found.measures[2]) == (0, 0, 0)
    assert found.size == len(source)
    # Errors do not depend on how lines end.
    assert syntax_features(source.replace("\n", "\r\n").encode(), PYTHON).errors == found.errors


@pytest.mark.parametrize(
    ("source", "unbalanced"), [("f(1)", 0), ("f(1", 1), ("f[(1", 2), ("f)", 1), ("([{", 3), ("", 0)]
)
def test_brackets_that_lack_their_other(source: str, unbalanced: int) -> None:
    measures = syntax_features(source.encode(), PYTHON).measures
    assert np.expm1(measures[3]) == pytest.approx(unbalanced, abs=1)  # a parser may add what lacks
    assert (measures[4] > 0) == (unbalanced > 0)


def test_patterns_are_what_conditions_and_indices_look_like() -> None:
    source = b"if a < b:\n    return rows[i]\nelif not c.d(1):\n    pass\nelse:\n    x[0]\n"
    found = syntax_features(source, PYTHON).patterns

    def count(text: str) -> int:
        return found.get(zlib.crc32(f"python {text}".encode()) % BUCKETS, 0)

    assert count("if <") == count("if < of identifier b") == 1
    assert count("if not") == count("if not of call d") == 1
    assert count("[] i") == count("[] 0") == count("[] integer") == 1
    assert count("of rows[i]") == count("of x[0]") == 1
    assert count("if < then if_statement return_statement else") == 1
    other = syntax_features(source.replace(b"<", b">="), PYTHON).patterns
    assert sum((Counter(found) - Counter(other)).values()) == 4  # the four of that comparison


# --- The score -------------------------------------------------------------------------------------


def copies(index: Any, vectors: Any, errors: Any, patterns: Any = None) -> Copies:
    syntax = [
        SyntaxFeatures(
            10, int(e), (float(e),) * 5, {} if patterns is None else {int(patterns[n]): 1}
        )
        for n, e in enumerate(errors)
    ]
    return Copies(np.asarray(index), np.asarray(vectors, np.float32), syntax)


def trial(n: int, seed: int, strength: float) -> tuple[Copies, dict[Any, Copies], Any]:
    """Files of random vectors; corrupted copies are moved by so much; each file has a mark of its own."""
    rng = np.random.default_rng(seed)
    vectors, zero = rng.normal(size=(n, 4)), np.zeros(n)
    clean = copies(np.arange(n), vectors, zero, np.arange(n))
    moved = vectors + strength * np.r_[1, 0, 0, 0]
    bad = {
        ("brackets", 1.0): copies(np.arange(n), moved, zero, np.arange(n)),
        ("conditions", 1.0): copies(np.arange(n), moved, zero, np.arange(n)),
    }
    return clean, bad, rng.permutation(n) % 5


def area(made: LearnedScore, clean: Any = None) -> float:
    scores = made.clean if clean is None else clean
    values = made.corrupted["brackets", 1.0]
    return float(
        roc_auc_score(np.repeat([0, 1], [len(scores), len(values)]), np.r_[scores, values])
    )


def test_a_score_of_nothing_is_a_coin_toss() -> None:
    """The mark of a file would tell a model that saw its copies everything that there is."""
    held_out = [area(LearnedScore(*trial(150, seed, 0.0))) for seed in range(4)]
    assert np.mean(held_out) == pytest.approx(0.5, abs=0.03)


def test_the_score_is_the_sum_of_the_odds_of_two_regressions() -> None:
    rng = np.random.default_rng(3)
    n, fold = 100, np.arange(100) % 5
    vectors = rng.normal(size=(n, 3)).astype(np.float32)
    vectors /= np.abs(vectors).max()  # so that no column is scaled alike by chance
    clean = copies(np.arange(n), vectors, np.zeros(n))
    broken = copies(np.arange(0, n, 2), vectors[::2], np.ones(50))
    wrong = copies(np.arange(n), vectors + np.array([0.3, 0, 0]), np.zeros(n))
    cells: dict[Any, Copies] = {("brackets", 1.0): broken, ("indices", 0.2): wrong}
    made = LearnedScore(clean, cells, fold)
    for held_out in range(5):
        total = np.zeros(20)
        for family, c in (("syntax", 1000.0), ("content", 1.0)):
            of = broken if family == "syntax" else wrong
            rows = [each[k.index % 5 != held_out] for k in (clean, of) for each in [dense(k)]]
            x = np.concatenate(rows)
            scale = np.abs(x).max(axis=0)
            scale[scale == 0] = 1
            label = np.repeat([0, 1], [len(rows[0]), len(rows[1])])
            peer = LogisticRegression(
                C=c, solver="liblinear", class_weight="balanced", tol=1e-4
            ).fit(x / scale, label)
            p = peer.predict_proba(dense(clean)[fold == held_out] / scale)[:, 1]
            total += p / (1 - p)
        expected = total / (1 + total)
        assert made.clean[fold == held_out] == pytest.approx(expected, abs=1e-3)
    unseen = made.predict(clean)
    assert ((unseen > 0) & (unseen < 1)).all()
    assert made.predict(broken).min() > unseen.max()  # a sure sign of syntax outweighs guesses


def dense(files: Copies) -> Any:
    return np.c_[files.vectors, [one.measures for one in files.syntax]].astype(float)
