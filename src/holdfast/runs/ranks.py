"""How a set of ranks reads, in a sentence and for a program."""

from __future__ import annotations

from collections.abc import Iterable

MOST_PIECES = 6


def ranges(ranks: Iterable[int], most: int = MOST_PIECES) -> str:
    """``"0-3, 7 and 9"``; with more than `most` pieces ``"0-3, 7, … (12 ranks)"``."""
    pieces = _pieces(ranks)
    told = [text for piece in pieces for text in _ends(piece)]
    if len(told) > most:
        return f"{', '.join(told[:most])}, … ({sum(map(len, pieces)):,} ranks)"
    return " and ".join(text for text in (", ".join(told[:-1]), *told[-1:]) if text) or "none"


def named(ranks: Iterable[int]) -> str:
    """``"rank 3"``, ``"ranks 0-7 and 12"``."""
    text = ranges(ranks)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def compact(ranks: Iterable[int]) -> str:
    """For programs, all of them: ``"0-7,12"``; empty for none."""
    return ",".join(
        f"{piece[0]}-{piece[-1]}" if len(piece) > 1 else f"{piece[0]}" for piece in _pieces(ranks)
    )


def _pieces(ranks: Iterable[int]) -> list[list[int]]:
    """Runs of neighbours, in order."""
    pieces: list[list[int]] = []
    for rank in sorted({int(rank) for rank in ranks}):
        if pieces and rank == pieces[-1][-1] + 1:
            pieces[-1].append(rank)
        else:
            pieces.append([rank])
    return pieces


def _ends(piece: list[int]) -> list[str]:
    return [f"{piece[0]}-{piece[-1]}"] if len(piece) > 2 else [str(rank) for rank in piece]
