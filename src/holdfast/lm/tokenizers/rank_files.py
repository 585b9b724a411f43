"""tiktoken's files: a token in base64 and its rank a line; the rank is the id and the order of merging."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.tokenizers import splitting_patterns
from holdfast.lm.tokenizers.reading import check_id, pieces_in_order, read_text
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer

_PATTERN = "?pattern="


@dataclass(frozen=True)
class _Published:
    """What the file of ranks does not hold."""

    splitter: str
    end_of_text: int | None = None
    other_controls: tuple[int, ...] = field(default=())


# Source: tiktoken's `openai_public.py`.
_PUBLISHED = {
    "o200k_base": _Published(splitting_patterns.O200K, 199_999, (200_018,)),
    "cl100k_base": _Published(
        splitting_patterns.CL100K, 100_257, (100_258, 100_259, 100_260, 100_276)
    ),
    "p50k_base": _Published(splitting_patterns.GPT2, 50_256),
    "r50k_base": _Published(splitting_patterns.GPT2, 50_256),
    "gpt2": _Published(splitting_patterns.GPT2, 50_256),
}


def read_ranks(source: str, name: str) -> Tokenizer:
    """The tokenizer of a ``.tiktoken`` file; control tokens and splitter come from its name.

    Known names hold o200k_base, cl100k_base, p50k_base, r50k_base or gpt2. Any other needs its splitter
    behind the path, as in ``my.tiktoken?pattern=...``, and has no control tokens.

    Raises:
        InputError: if the file is missing or damaged, or the pattern unknown or not a regular expression.
    """
    location, mark, pattern = source.partition(_PATTERN)
    path = Path(location)
    ranks = _read(path)
    published = _Published(pattern) if mark else _published(path)
    controls = published.other_controls
    if published.end_of_text is not None:
        controls = (published.end_of_text, *controls)
    taken = next((token for token in controls if token in ranks), None)
    if taken is not None:
        raise InputError(
            "an ordinary token has the id of a control token",
            code="damaged",
            path=path,
            found=f"rank {taken} for {ranks[taken]!r}",
            expected="the ranks of the encoding that the file is named after",
            remedy=f"rename the file, and give its splitter as {_PATTERN}...",
        )
    pieces, remarks = pieces_in_order(ranks | dict.fromkeys(controls))
    return Tokenizer(
        name,
        pieces,
        _encoder(path, ranks, published.splitter),
        bos=published.end_of_text,
        eos=published.end_of_text,
        merges=merges_of_ranks({piece: rank for rank, piece in ranks.items()}),
        splitter=published.splitter,
        remarks=remarks,
    )


def _published(path: Path) -> _Published:
    """What is known of an encoding by the name of its file."""
    for encoding, published in _PUBLISHED.items():
        if encoding in path.name:
            return published
    raise InputError(
        "the pattern by which this tokenizer splits text is not known",
        code="unsupported",
        path=path,
        expected="a file named after " + ", ".join(_PUBLISHED),
        remedy=f"add the pattern to the name: tiktoken:{path.name}{_PATTERN}...",
    )


def _read(path: Path) -> dict[int, bytes]:
    """Rank -> bytes of every line."""
    ranks: dict[int, bytes] = {}
    lines: dict[bytes, int] = {}
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if not text.strip():
            continue
        place = f"line {line}"
        parts = text.split()
        if len(parts) != 2 or not parts[1].isdecimal():
            raise InputError(
                "this line is not a token and its rank",
                code="damaged",
                path=path,
                place=place,
                found=repr(text[:60]),
                expected="base64, a space and a whole number, such as 'IQ== 0'",
            )
        try:
            piece = base64.b64decode(parts[0], validate=True)
        except binascii.Error as error:
            raise InputError(
                "this token is not base64",
                code="damaged",
                path=path,
                place=place,
                found=f"{parts[0][:60]!r} ({error})",
                expected="base64, such as 'IQ==' for '!'",
            ) from error
        rank = check_id(int(parts[1]), path=path, place=place)
        if rank in ranks or piece in lines:
            raise InputError(
                "duplicate rank or token",
                code="duplicate",
                path=path,
                place=place,
                found=repr(text[:60]),
                expected="every rank and every token once",
            )
        ranks[rank] = piece
        lines[piece] = line
    missing = [byte for byte in range(256) if bytes([byte]) not in lines]
    if missing:
        raise InputError(
            "not every byte has a token, so that some texts could not be encoded",
            code="damaged",
            path=path,
            found=f"{len(missing)} bytes without one, such as 0x{missing[0]:02X}",
            expected="the 256 single bytes among the tokens",
            remedy="fetch the file again; a download may have been cut short",
        )
    return ranks


def merges_of_ranks(ranks: Mapping[bytes, int]) -> Merges:
    """Every pair of tokens that stands for a third when joined; its rank is that of the result.

    Args:
        ranks: bytes -> id of every ordinary token.
    """
    left: list[int] = []
    right: list[int] = []
    merged: list[int] = []
    find = ranks.get
    for piece, rank in ranks.items():
        for cut in range(1, len(piece)):
            head = find(piece[:cut])
            if head is not None and (tail := find(piece[cut:])) is not None:
                left.append(head)
                right.append(tail)
                merged.append(rank)
    return Merges(
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        merged=np.array(merged, np.int32),
        rank=np.array(merged, np.int32),
    )


def _encoder(path: Path, ranks: Mapping[int, bytes], splitter: str) -> Callable[[bytes], list[int]]:
    """The encoder of tiktoken of these ranks."""
    import tiktoken

    try:
        encoding = tiktoken.Encoding(
            path.name,
            pat_str=splitter,
            mergeable_ranks={piece: rank for rank, piece in ranks.items()},
            special_tokens={},
        )
    except ValueError as error:
        raise InputError(
            "this pattern to split text by is not a regular expression",
            code="invalid-value",
            path=path,
            found=f"{splitter!r} ({error})",
            expected="a pattern such as " + splitting_patterns.GPT2,
        ) from error
    return lambda text: encoding.encode_ordinary(text.decode())
