"""The dictionary and the language model of Debian's package pocketsphinx-en-us, as arrays.

The model is read from its binary file. `sphinx_lm_convert` of Debian's sphinxbase-utils cannot turn it
into ARPA: it stops with an assertion after the unigrams, since the file declares six bigrams more than it
holds (https://github.com/cmusphinx/pocketsphinx/issues/502).
"""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

PACKAGE = "pocketsphinx-en-us"
MODEL = Path("usr/share/pocketsphinx/model/en-us")

NAT_PER_UNIT = float(np.log(1.0001))  # the model's logarithms have base 1.0001
CODES = 1 << 16  # of a table of quantised logarithms
MAGIC = b"Trie Language Model"

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bigrams:
    """A bigram model with backoff; costs are negated natural logarithms."""

    words: list[str]
    """[W] the vocabulary, `<s>` and `</s>` among it."""
    cost: F64
    """[W] of each word alone."""
    backoff: F64
    """[W] of leaving the history of that word."""
    history: I64
    """[N] of each bigram, ascending; a position in `words`."""
    word: I64
    """[N] of each bigram, ascending for each history."""
    bigram_cost: F64
    """[N]"""
    declared: int
    """How many bigrams the file says that it holds."""


def folder(speech: Path | None) -> Path | None:
    """Where the model is: under `speech`, or installed; None if it is not there."""
    for root in ([speech] if speech else []) + [Path("/")]:
        if (root / MODEL / "en-us.lm.bin").exists():
            return root / MODEL
    return None


def install(speech: Path | None) -> None:
    """Install the package, as root; or only unpack it into `speech`, for which anybody has the right.

    Raises:
        PermissionError: if there is neither a folder nor the right to install.
        subprocess.CalledProcessError: if apt or dpkg fails.
    """
    if folder(speech):
        return
    if speech is None:
        if os.geteuid():
            raise PermissionError(f"only root may install {PACKAGE}; give a folder by --speech")
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return
    speech.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", PACKAGE], check=True, cwd=speech)
    for package in speech.glob(f"{PACKAGE}_*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(speech)], check=True)


def read_dictionary(model: Path) -> list[tuple[str, tuple[str, ...]]]:
    """(word, phones) of every pronunciation, in the order of the file; `word(2)` is `word`."""
    read = []
    for line in (model / "cmudict-en-us.dict").read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        if word.endswith(")") and "(" in word[1:]:
            word = word[: word.rindex("(")]
        read.append((word, tuple(phones)))
    return read


def read_bigrams(model: Path) -> Bigrams:
    """The unigrams and bigrams of the trigram model.

    The file: magic, order (one byte), the number of n-grams of each order, four bytes, tables of 2^16
    floats (logarithms of bigrams, their backoffs, logarithms of trigrams), unigrams (logarithm, backoff,
    first bigram), packed bigrams (word, code of the backoff, code of the logarithm, first trigram), packed
    trigrams, words. The first level of the trie is the last word of an n-gram, the next the word before.
    """
    data = (model / "en-us.lm.bin").read_bytes()
    if not data.startswith(MAGIC) or data[len(MAGIC)] != 3:
        raise ValueError(f"{model}: not a trigram model in the binary format")
    at = len(MAGIC) + 1
    counts = struct.unpack_from("<3I", data, at)
    at += 4 * len(counts) + 4
    table = np.frombuffer(data, "<f4", 3 * CODES, at)
    at += table.nbytes
    record = np.dtype([("log", "<f4"), ("backoff", "<f4"), ("next", "<u4")])
    unigrams = np.frombuffer(data, record, counts[0] + 1, at)
    at += unigrams.nbytes
    first = unigrams["next"].astype(np.int64)

    widths = (counts[0].bit_length(), 16, 16, counts[2].bit_length())
    size = ((1 + counts[1]) * sum(widths) + 7) // 8 + 8
    windows = np.ndarray((size - 7,), "<u8", data, at, (1,))  # eight bytes from every byte on
    held = int(first[-1])
    start = np.arange(held) * sum(widths)
    previous = _bits(windows, start, widths[0])
    code = _bits(windows, start + widths[0] + widths[1], widths[2])
    last = np.repeat(np.arange(counts[0]), np.diff(first))
    order = np.lexsort((last, previous))

    at += size + ((1 + counts[2]) * (widths[0] + 16) + 7) // 8 + 8
    (length,) = struct.unpack_from("<i", data, at)
    words = data[at + 4 : at + 4 + length].decode().split("\0")[: counts[0]]
    return Bigrams(
        words,
        -NAT_PER_UNIT * unigrams["log"][:-1].astype(np.float64),
        -NAT_PER_UNIT * unigrams["backoff"][:-1].astype(np.float64),
        previous[order],
        last[order],
        -NAT_PER_UNIT * table[code[order]].astype(np.float64),
        counts[1],
    )


def _bits(windows: npt.NDArray[np.uint64], start: I64, width: int) -> I64:
    shift = (start & 7).astype(np.uint64)
    mask = np.uint64((1 << width) - 1)
    return ((windows[start >> 3] >> shift) & mask).astype(np.int64)
