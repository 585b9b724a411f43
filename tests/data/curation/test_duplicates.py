"""Near duplicates: MinHash against the similarity of all pairs, and files that differ in form alone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from holdfast.data.curation.duplicates import SIMILAR, duplicates, shingles
from holdfast.data.curation.source_files import SourceFolder


def folder_of(texts: dict[str, bytes], folder: Path) -> SourceFolder:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return SourceFolder.scan(folder)


def jaccard(one: bytes, other: bytes) -> float:
    """Of the sets of five consecutive tokens, by scikit-learn's counts."""
    texts = [text.decode() for text in (one, other)]
    words = CountVectorizer(
        token_pattern=r"(?a:\w+|[^\w\s])", ngram_range=(5, 5), binary=True, lowercase=False
    )
    a, b = words.fit_transform(texts).toarray()
    return float((a & b).sum() / (a | b).sum())


def family(rng: np.random.Generator, size: int) -> list[bytes]:
    """A file, and copies of which ever more tokens are others."""
    tokens = [f"w{n}" for n in rng.integers(0, 90, 150)]
    copies = []
    for changed in rng.integers(0, 12, size):
        copy = list(tokens)
        for place in rng.choice(150, changed, replace=False):
            copy[place] = f"x{rng.integers(999)}"
        copies.append(" ".join(copy).encode())
    return copies


def test_what_goes_is_similar_to_what_stays_and_what_stays_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    files = [text for _ in range(6) for text in family(rng, 5)]
    texts = {f"{n:02}.py": files[place] for n, place in enumerate(rng.permutation(30))}
    found = duplicates(folder_of(texts, tmp_path))
    similarity = {(a, b): jaccard(texts[a], texts[b]) for a, b in combinations(texts, 2)}
    for path, (original, claimed) in found.items():
        assert original < path  # the first one stays
        assert original not in found
        assert claimed == pytest.approx(similarity[original, path])
        assert claimed >= SIMILAR
    stay = [path for path in texts if path not in found]
    missed = [pair for pair in combinations(stay, 2) if similarity[pair] >= SIMILAR]
    assert all(similarity[pair] < SIMILAR + 0.05 for pair in missed)  # MinHash may miss at the edge
    # Exact copies are never missed; files of other families never go.
    graph = nx.Graph(pair for pair, value in similarity.items() if value > 0)
    assert nx.number_connected_components(graph) == 6
    assert sum(stay.count(min(part)) for part in nx.connected_components(graph)) == 6


ONE = b"def f(x):\n    return [x + 1 for y in x if y > 2]\n"


@pytest.mark.parametrize(
    "other",
    [
        ONE,
        ONE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + ONE,
        ONE.replace(b"    ", b"\t"),
        ONE.replace(b" ", b"   ") + b"\n\n",
        b"\x0c" + ONE,
    ],
)
def test_the_same_tokens_in_another_form_are_a_copy(other: bytes, tmp_path: Path) -> None:
    found = duplicates(folder_of({"a.py": ONE, "b/c.py": other}, tmp_path))
    assert found == {"b/c.py": ("a.py", 1.0)}


@pytest.mark.parametrize(
    "other", [ONE.upper(), ONE[:20], ONE.replace(b"x", b"xx"), "d\u00e9f".encode() + ONE[3:], b"f"]
)
def test_other_tokens_are_no_copy(other: bytes, tmp_path: Path) -> None:
    assert duplicates(folder_of({"a.py": ONE, "b.py": other}, tmp_path)) == {}


@given(st.lists(st.sampled_from(["a", "bc", "1", "+", "(", "\u00e9"]), max_size=12))
def test_shingles_are_all_runs_of_five_tokens(tokens: list[str]) -> None:
    source = " ".join(tokens).encode()
    parts = [token.encode() for token in tokens]
    if "\u00e9" in tokens:  # two bytes that are no word are two tokens
        parts = [p for t in parts for p in ([t[:1], t[1:]] if len(t) == 2 and t != b"bc" else [t])]
    runs = {b" ".join(parts[n : n + 5]) for n in range(max(1, len(parts) - 4))}
    assert shingles(source) == runs
    assert shingles(b"\n".join(source.split(b" "))) == runs


@pytest.mark.parametrize("text", [b"x", b"x = 1", b"1 2 3 4", b"1 2 3 4 5"])
def test_files_shorter_than_a_run_are_compared_whole(text: bytes, tmp_path: Path) -> None:
    texts: dict[str, Any] = {"a.py": text, "b.py": text + b"\n", "c.py": text + b" 7"}
    assert duplicates(folder_of(texts, tmp_path)) == {"b.py": ("a.py", 1.0)}
