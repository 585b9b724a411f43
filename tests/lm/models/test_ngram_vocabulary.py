"""What the words of an n-gram model spell."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.lm.models.vocabulary import tokenizer_of_words


def words(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


def test_plain_words_are_joined_or_spaced() -> None:
    tokenizer = tokenizer_of_words(words("<s>", "the", "cat", "thecat", "</s>", "<unk>"), "m")
    assert tokenizer.pieces == (None, b"the", b"cat", b"thecat", None, None)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.lead) == (0, 4, b"")
    assert tokenizer.encode(b"thecatthe") == [3, 1]
    spaced = tokenizer.spaced
    assert spaced is not None
    assert spaced.pieces == (None, b" the", b" cat", b" thecat", None, None)
    assert (spaced.bos, spaced.eos, spaced.lead, spaced.spaced) == (0, 4, b" ", None)
    assert spaced.encode(b"the cat thecat") == [1, 2, 3]
    assert spaced.spell([1, 2]) == b"the cat"
    assert spaced.encode(b"") == []


@pytest.mark.parametrize("reading", ["words", "pieces"])
def test_the_reading_can_be_forced(reading: str) -> None:
    tokenizer = tokenizer_of_words(words("a", "b"), "m", reading)  # type: ignore[arg-type]
    assert tokenizer.spaced is None
    assert tokenizer.spell([0, 1]) == (b"a b" if reading == "words" else b"ab")


def test_sentencepiece_pieces() -> None:
    tokenizer = tokenizer_of_words(words("<s>", "▁the", "cat", "▁", "<0x0A>", "</s>"), "m")
    assert tokenizer.pieces == (None, b" the", b"cat", b" ", b"\n", None)
    assert tokenizer.lead == b" "
    assert tokenizer.encode(b"the\ncat") == [1, 4, 2]
    assert tokenizer.encode(b"cat") == [3, 2]
    assert tokenizer.spell([1, 2]) == b"thecat"


def test_byte_level_pieces() -> None:
    tokenizer = tokenizer_of_words(words("<s>", "the", "Ġcat", "Ã©", "Ċ"), "m")
    assert tokenizer.pieces == (None, b"the", b" cat", "é".encode(), b"\n")
    assert tokenizer.encode("the caté".replace("caté", "cat").encode()) == [1, 2]
    # One word outside the alphabet, and they are words of a language that has Ġ.
    assert tokenizer_of_words(words("Ġurġ", "語"), "m").pieces == ("Ġurġ".encode(), "語".encode())


def test_the_fewest_pieces_then_the_longest_first() -> None:
    tokenizer = tokenizer_of_words(words("a", "b", "ab", "ba", "aba", "bab"), "m")
    assert tokenizer.encode(b"abab") == [2, 2] or tokenizer.encode(b"abab") == [4, 1]
    assert tokenizer.encode(b"abab") == [4, 1]
    assert tokenizer.encode(b"ababa") == [4, 3]


def test_texts_that_no_words_spell() -> None:
    tokenizer = tokenizer_of_words(words("the", "<unk>"), "m")
    with pytest.raises(InputError, match="do not spell"):
        tokenizer.encode(b"thecat")
