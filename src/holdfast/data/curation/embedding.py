"""Texts as unit vectors, by any embedder; computed once per content where there is a cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from holdfast.arrays import read_arrays
from holdfast.errors import InputError
from holdfast.files import atomic_file
from holdfast.progress import track

Vectors = npt.NDArray[np.float32]

BLOCK = 256
"""Texts that are embedded, and stored, at a time."""


class Embedder(Protocol):
    """Any callable from texts to vectors ``[texts, d]``.

    An attribute `identity` (a text that names the model and its version) allows its vectors to be cached.
    """

    def __call__(self, texts: Sequence[str], /) -> npt.ArrayLike:
        """Vectors of texts."""


class TfidfEmbedder:
    """Frequencies of tokens and of pairs of them, weighted by their rarity, in a few dimensions.

    Needs no model and no network; fitted to a corpus: TF-IDF, then truncated SVD.

    Args:
        texts: of the corpus, or a sample of it.
        dimensions: at most this many.
        seed: of the randomized SVD.
    """

    def __init__(self, texts: Sequence[str], dimensions: int = 128, seed: int = 0) -> None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._tfidf = TfidfVectorizer(
            token_pattern=r"\w+|[^\w\s]",
            ngram_range=(1, 2),
            max_features=20_000,
            sublinear_tf=True,
            dtype=np.float32,
        )
        counts = self._tfidf.fit_transform(texts)
        dimensions = min(dimensions, *counts.shape)
        self._svd = None  # one text has no variance to decompose
        if dimensions > 1:
            self._svd = TruncatedSVD(dimensions, random_state=seed).fit(counts)
        digest = hashlib.sha256(f"tfidf {dimensions} {seed}".encode())
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        self.identity = f"tfidf-{digest.hexdigest()}"

    def __call__(self, texts: Sequence[str], /) -> Vectors:
        """Vectors of texts."""
        counts = self._tfidf.transform(texts)
        vectors = counts.toarray() if self._svd is None else self._svd.transform(counts)
        return np.asarray(vectors, np.float32)


class SentenceEmbedder:
    """A model of sentence-transformers in a local folder; nothing is downloaded.

    Raises:
        InputError: no such folder, or sentence-transformers is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "modules.json").is_file():
            expected = "the folder of a model of sentence-transformers, with modules.json"
            raise InputError("not a model", code="not-found", path=folder, expected=expected)
        try:
            library = import_module("sentence_transformers")
        except ModuleNotFoundError as error:
            remedy = "pip install sentence-transformers"
            raise InputError(str(error), code="unsupported", path=folder, remedy=remedy) from error
        self._model = library.SentenceTransformer(str(folder), local_files_only=True)
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        self.identity = f"sentence-transformers-{digest.hexdigest()}"

    def __call__(self, texts: Sequence[str], /) -> Vectors:
        """Vectors of texts."""
        return np.asarray(self._model.encode(list(texts), batch_size=32), np.float32)


def embed(
    texts: Iterable[str], count: int, embedder: Embedder, cache: Path | None = None
) -> Vectors:
    """Unit vectors of texts ``[texts, d]``; zero where the embedder gives zero.

    Vectors are stored block by block as they are computed: an interrupted run resumes where it was.

    Args:
        texts: one after another; they need not fit into memory.
        count: how many.
        embedder: any.
        cache: a folder; used if the embedder has an identity.

    Raises:
        InputError: vectors of other shapes, or that are not finite.
    """
    identity = getattr(embedder, "identity", None)
    stored = None if cache is None or identity is None else _Stored(cache, identity)
    blocks: list[Vectors] = []
    with track("Embedding", count, "texts") as bar:
        for block in _blocks(texts):
            vectors = (
                _vectors(block, embedder) if stored is None else stored.vectors(block, embedder)
            )
            if blocks and vectors.shape[1] != blocks[0].shape[1]:
                raise _unusable(f"{vectors.shape[1]} and {blocks[0].shape[1]} dimensions")
            blocks.append(vectors)
            bar.advance(len(block))
    if not blocks:
        return np.zeros((0, 0), np.float32)
    everything = np.concatenate(blocks)
    # [texts, 1]; squares of float32 leave its range from 1e19 on
    length = np.sqrt(np.einsum("nd,nd->n", everything, everything, dtype=float))[:, None]
    return np.divide(everything, length, out=everything, where=length > 0)


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(texts)
    while block := list(islice(iterator, BLOCK)):
        yield block


class _Stored:
    """Vectors of one embedder by the hash of their texts, in a folder of small archives."""

    def __init__(self, cache: Path, identity: str) -> None:
        self._folder = cache / hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[bytes, Vectors] = {}
        for path in sorted(self._folder.glob("*.npz")):
            arrays = read_arrays(path, ("digests", "vectors"))
            self._known.update(
                (digest.tobytes(), row)
                for digest, row in zip(arrays["digests"], arrays["vectors"], strict=True)
            )

    def vectors(self, block: list[str], embedder: Embedder) -> Vectors:
        """Look up the vectors of a block of texts; compute and store those that are missing."""
        digests = [hashlib.sha256(text.encode()).digest() for text in block]
        missing = {
            digest: text
            for digest, text in zip(digests, block, strict=True)
            if digest not in self._known
        }
        if missing:
            fresh = _vectors(list(missing.values()), embedder)
            self._known.update(zip(missing, fresh, strict=True))
            name = hashlib.sha256(b"".join(missing)).hexdigest()
            with atomic_file(self._folder / f"{name}.npz") as file:
                keys = np.frombuffer(b"".join(missing), np.uint8).reshape(len(missing), -1)
                np.savez(file, digests=keys, vectors=fresh)
        return np.array([self._known[digest] for digest in digests], np.float32)


def _vectors(block: list[str], embedder: Embedder) -> Vectors:
    vectors = np.asarray(embedder(block), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(block) or not vectors.shape[1]:
        raise _unusable(f"shape {list(vectors.shape)} for {len(block)} texts")
    if not np.isfinite(vectors).all():
        raise _unusable("values that are not finite")
    return vectors


def _unusable(shape: str) -> InputError:
    return InputError(
        "vectors that cannot be used",
        code="invalid-value",
        place="embedder",
        found=shape,
        expected="finite numbers [texts, dimensions]",
    )
