"""Near-duplicates among source files: MinHash with locality-sensitive hashing, then their similarity."""

from __future__ import annotations

import re

from holdfast.data.curation.source_files import SourceFolder
from holdfast.progress import track

SIMILAR = 0.8
"""Jaccard similarity of near duplicates."""
_SHINGLE = 5
_HASHES = 128
_TOKEN = re.compile(rb"\w+|[^\w\s]")


def duplicates(corpus: SourceFolder) -> dict[str, tuple[str, float]]:
    """Files that are copies of others: path -> (the file that stays, Jaccard similarity).

    Found by MinHash with locality-sensitive hashing on five consecutive tokens (Broder 1997), and then by
    the similarity itself, which is 1 of exact copies. The first path of each group stays.
    """
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=SIMILAR, num_perm=_HASHES)
    copies: dict[str, tuple[str, float]] = {}
    by_path = {file.path: file for file in corpus.files}
    with track("Comparing", len(corpus.files), "files") as bar:
        for file in corpus.files:
            bar.advance(1)
            parts = shingles(corpus.read(file))
            signature = MinHash(num_perm=_HASHES)
            signature.update_batch(parts)
            for other in sorted(index.query(signature)):
                theirs = shingles(corpus.read(by_path[other]))
                similarity = len(parts & theirs) / len(parts | theirs)
                if similarity >= SIMILAR:
                    copies[file.path] = (other, similarity)
                    break
            else:
                index.insert(file.path, signature)
    return copies


def shingles(source: bytes) -> set[bytes]:
    """Every five consecutive tokens; of a shorter text, all of it."""
    tokens = _TOKEN.findall(source)
    starts = range(max(1, len(tokens) - _SHINGLE + 1))
    return {b" ".join(tokens[start : start + _SHINGLE]) for start in starts}
