"""Text that a training wrote, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with a question mark for every character that a terminal might obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
