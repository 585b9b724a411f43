"""Text to phonemes: normalization, the dictionary, the network's beam against brute force."""

from __future__ import annotations

import time
import unicodedata
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.speech import speak
from holdfast.speech.speak import normalization
from holdfast.speech.speak.dictionary import PHONES, part_of, read_dictionary
from holdfast.speech.speak.g2p import LETTERS, MARK, Guess, LettersToPhones, PhonemizerSettings
from holdfast.speech.speak.g2p_training import score_words, train_phonemizer

KNOWN = {"us", "nasa", "co-op", "'tis", "the", "it", "tvs", "i'm", "am"}


def said(text: str) -> str:
    return " ".join(normalization.words_of(text, KNOWN.__contains__))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("In 1984, 1,984.", "in nineteen eighty four , one thousand nine hundred eighty four ."),
        ("1905 1900 2000", "nineteen oh five nineteen hundred two thousand"),
        ("2009 2015", "two thousand nine twenty fifteen"),
        ("$5.20 $1", "five dollars and twenty cents one dollar"),
        ("$0.99 £3.50", "ninety nine cents three pounds and fifty pence"),
        ("€5 million now", "five million euros now"),
        (
            "-$5 £-1.50 5-$2",
            "minus five dollars minus one pound and fifty pence five to two dollars",
        ),
        ("x² m³ №5 ±2 2^8", "x. squared m. cubed number five plus or minus two two caret eight"),
        ("3.14 -5 5%", "three point one four minus five five percent"),
        (".5 007", "point five zero zero seven"),
        ("5:30pm 7:00 7:05", "five thirty p. m. seven o'clock seven oh five"),
        ("21st 12th 1,000th 40th", "twenty first twelfth one thousandth fortieth"),
        ("the 1990s and 90s", "the nineteen nineties and nineties"),
        ("5-10 1914-1918", "five to ten nineteen fourteen to nineteen eighteen"),
        ("1/2 2½ 7/8 3 1/4", "one half two and a half seven eighths three and a quarter"),
        ("2024-12-25", "december twenty fifth , twenty twenty four"),
        ("25.12.2024 25/12/2024", " ".join(["december twenty fifth , twenty twenty four"] * 2)),
        ("4/5/2024 3/3/2009", "four five twenty twenty four march third , two thousand nine"),
        ("2024-12-25T08:05", "december twenty fifth , twenty twenty four eight oh five"),
        (
            "+44 20 7946 0958",
            "plus four four , two zero , seven nine four six , zero nine five eight",
        ),
        ("5 + 1 7", "five plus one seven"),
        ("2024-13-45", "two thousand twenty four , thirteen , forty five"),
        (
            "$5M £2.5bn $100k",
            "five million dollars two point five billion pounds one hundred thousand dollars",
        ),
        ("1e-3 2.5E6", "one times ten to the minus three two point five times ten to the six"),
        ("3:00:15 7:05:01", "three o'clock and fifteen seconds seven oh five and one seconds"),
        (
            "5 km 20mg 100 km/h 5 kmx",
            "five kilometers twenty milligrams one hundred kilometers an hour five k. m. x.",
        ),
        ("555-1234", "five five five , one two three four"),
        ("a (555) 123-4567", "a five five five , one two three , four five six seven"),
        ("Dr. Who, Elm St. near St. Paul", "doctor who , elm street near saint paul"),
        ("No. 7 no. Etc. and etc.", "number seven no . et cetera and et cetera"),
        ("NASA, the FBI's USB, US; it is us", "nasa , the f. b. i.'s u. s. b. , u. s. ; it is us"),
        ("U.S.A. p.m. now", "u. s. a. p. m. now"),
        ("'Tis a co-op (well-known)", "'tis a co-op ( well known )"),
        ("https://a-b.com/x?y=1", "a dash b. dot com slash x. question mark y equals one"),
        ("me@host.org", "me at host dot org"),
        (
            "AT&T @ 20°C 10.5.2 x86",
            "a. t. and t. at twenty degrees c. ten point five point two x. eighty six",
        ),
        ("so—yes ?! no", "so - yes ? no"),
    ],
)
def test_text_is_read_as_words(text: str, words: str) -> None:
    assert said(text) == words


def test_numbers_read_back() -> None:
    """Each cardinal, read by its grammar, is the number; an ordinal differs in its last word."""
    units = {word: k for k, word in enumerate(normalization._ONES)}
    units |= {word: 10 * k for k, word in enumerate(normalization._TENS) if k > 1}
    scales = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
    rng = np.random.default_rng(0)
    numbers = [*range(1000), *(int(10 ** rng.uniform(0, 15)) for _ in range(500)), 10**15 - 1]
    for number in numbers:
        total = part = 0
        words = normalization.cardinal(number)
        for word in words:
            if word in scales:
                total, part = total + part * scales[word], 0
            else:
                part = part * 100 if word == "hundred" else part + units[word]
        assert total + part == number
        assert normalization.ordinal(number)[:-1] == words[:-1]


def test_the_same_text_in_other_forms() -> None:
    text = "The caf\u00e9's \u201cfine\u201d pi\u00f1ata\r\ncosts $5.20 - don't!"
    plain = said("The cafe's \"fine\" pinata costs $5.20 - don't!")
    wide = "".join(chr(ord(c) + 0xFEE0) if "a" <= c <= "z" else c for c in text)
    forms = [text, unicodedata.normalize("NFD", text), text.replace("'", "\u2019"), wide]
    forms += [
        text.replace("fi", "\ufb01"),
        "\ufeff" + text.replace(" ", " \u200b"),
        text.replace("\r", ""),
    ]
    assert {said(each) for each in forms} == {plain}


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a\r\nb \u041f", "unknown-character", "line 2, column 3"),
        ("hi \U0001f600", "unknown-character", "line 1, column 4"),
        ("10⁵", "unknown-character", "line 1, column 3"),
        ("a\x00", "unknown-character", "line 1, column 2"),
        ("\ud800", "unknown-character", "line 1, column 1"),
        ("a " + "ba" * 31, "out-of-range", "line 1, column 3"),
    ],
)
def test_what_cannot_be_said_is_refused(text: str, code: str, place: str | None) -> None:
    with pytest.raises(InputError) as error:
        normalization.words_of(text)
    assert (error.value.code, error.value.place) == (code, place)


@pytest.mark.parametrize("piece", ["1,", "-", "1-", "1,111", "((", "a.b.", "1:", "'a", "a@"])
def test_long_pieces_take_no_time(piece: str) -> None:
    started = time.process_time()
    with suppress(InputError):
        normalization.words_of(piece * (10_000 // len(piece)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize("text", ["", "... !", "\u200b", '" "'])
def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(InputError) as error:
        speak.phonemes(text)
    assert error.value.code == "empty-input"


def test_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes(
        b";;; comment\r\nread R EH1 D\r\nread(2) R IY1 D # now\r\nreader R IY1 D ER0\r\nzoo Z UW1\r\n"
    )
    assert read_dictionary(path) == {
        "read": [("R", "EH1", "D"), ("R", "IY1", "D")],
        "reader": [("R", "IY1", "D", "ER0")],
        "zoo": [("Z", "UW1")],
    }
    path.write_text("a AH0\nb B IY3\n")
    with pytest.raises(InputError) as error:
        read_dictionary(path)
    assert (error.value.code, error.value.place) == ("unknown-name", "line 2")


def test_alternates_of_a_word_are_in_one_part(shared_data: Path) -> None:
    words = read_dictionary(shared_data / "speech" / "cmudict" / "cmudict.dict.gz")
    parts: dict[str, set[str]] = {"train": set(), "test": set()}
    for word in words:
        parts[part_of(word)].add(word)
    assert not any("(" in word for word in words)
    assert sum(map(len, parts.values())) == len(words) == len(set().union(*parts.values()))
    assert len(parts["test"]) / len(words) == pytest.approx(0.1, abs=0.005)


@pytest.fixture(scope="module")
def network() -> LettersToPhones:
    """Random weights; short words are likely."""
    torch.manual_seed(1)
    made = LettersToPhones(PhonemizerSettings(units=16, embedding=8)).eval()
    for each in made.parameters():
        torch.nn.init.normal_(each, 0, 0.7)
    with torch.no_grad():
        made.outputs.bias[MARK] += 3
    return made


def log_prob(network: LettersToPhones, word: str, phones: tuple[int, ...]) -> float:
    letters = torch.tensor([[LETTERS.index(each) for each in word]])
    with torch.no_grad():
        logits = network(letters, torch.tensor([[MARK, *phones]]))[0].double().log_softmax(1)
    return float(logits[range(len(phones) + 1), [*phones, MARK]].sum())


def test_steps_give_the_score_of_the_whole_word(network: LettersToPhones) -> None:
    for word in ("a", "it's", "longer"):
        for guess in network.best(word, 3):
            indices = tuple(PHONES.index(phone) + 1 for phone in guess.phones)
            assert guess.log_prob == pytest.approx(log_prob(network, word, indices), abs=1e-4)


def test_beam_finds_the_best_of_all_short_words(network: LettersToPhones) -> None:
    count = len(PHONES)
    for word in ("ab", "q"):
        every = [(k + 1,) for k in range(count)]
        scores = {each: log_prob(network, word, each) for each in every}
        # Two phones: all 69 * 69 at once.
        letters = torch.tensor([[LETTERS.index(each) for each in word]]).repeat(count, 1)
        pairs = list(product(range(1, count + 1), repeat=2))
        phones = torch.tensor([[MARK, *each] for each in pairs])
        with torch.no_grad():
            logits = network(letters[:1].repeat(len(pairs), 1), phones)
        steps = logits.double().log_softmax(2).numpy()  # [69 * 69, 3, P]
        for step, (a, b) in zip(steps, pairs, strict=True):
            scores[a, b] = float(step[0, a] + step[1, b] + step[2, MARK])
        best = [guess for guess in network.best(word, 100) if len(guess.phones) <= 2][:5]
        expected = sorted(scores.values(), reverse=True)[: len(best)]
        assert [each.log_prob for each in best] == pytest.approx(expected, abs=1e-4)


def test_training_learns_a_regular_spelling(tmp_path: Path) -> None:
    """Where every letter is one phone, words that training did not have are pronounced right."""
    sounds = {"b": "B", "d": "D", "k": "K", "m": "M", "a": "AA1", "i": "IY1", "o": "OW1"}
    words = ["".join(each) for each in product("bdkm", "aio", "bdkm", "aio")]
    path = tmp_path / "words"
    path.write_text("".join(f"{each} {' '.join(sounds[c] for c in each)}\n" for each in words))
    settings = PhonemizerSettings(
        units=32, embedding=16, epochs=40, batch=16, anneal=1.0, dropout=0.0
    )
    result = train_phonemizer(path, tmp_path / "model", settings)
    assert result.words == sum(part_of(each) == "test" for each in words)
    assert result.per < 0.05
    found = speak.phonemes("Bado!", tmp_path / "model").words
    assert [each.phones for each in found] == [("B", "AA1", "D", "OW1"), ("SIL",)]
    with pytest.raises(InputError) as error:
        train_phonemizer(path, tmp_path / "model", settings)
    assert error.value.code == "output-exists"
    # Weights that are not numbers, or not those of the network.
    weights = tmp_path / "model" / "weights.safetensors"
    from safetensors.numpy import load_file, save_file

    content = load_file(weights)
    save_file({**content, "query.bias": np.full_like(content["query.bias"], np.nan)}, weights)
    with pytest.raises(InputError) as error:
        speak.phonemes("b", tmp_path / "model")
    assert error.value.code == "not-finite"
    weights.write_bytes(b"nothing")
    with pytest.raises(InputError) as error:
        speak.phonemes("b", tmp_path / "model")
    assert error.value.code == "damaged"


def test_scores_count_the_nearest_alternate() -> None:
    """By hand: one word right, one whose nearest alternate is one edit of four away."""

    class Fixed(LettersToPhones):
        def __init__(self) -> None: ...

        def best(self, word: str, beam: int = 8) -> list:  # type: ignore[type-arg]

            return [Guess({"a": ("AH0",), "hello": ("HH", "AH0", "L", "OW0")}[word], 0.0)]

    words = {
        "a": [("EY1",), ("AH0",)],
        "hello": [("HH", "EH0", "L", "OW1"), ("HH", "AH0", "L", "OW1")],
    }
    result = score_words(Fixed(), words)
    assert (result.wer, result.per) == (0.5, 0.2)
    assert (result.wer_without_stress, result.per_without_stress) == (0.0, 0.0)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("".join(f"{a}{b}{c} B D AH0\n" for a, b, c in product("abcd", repeat=3)))
    runs = [(tmp_path / "whole", 2, False), (tmp_path / "parts", 1, False)]
    for output, epochs, resume in [*runs, (tmp_path / "parts", 2, True)]:
        settings = PhonemizerSettings(units=8, embedding=4, epochs=epochs, batch=16)
        train_phonemizer(path, output, settings, resume)
    whole, parts = (tmp_path / name / "weights.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
    with pytest.raises(InputError) as error:
        train_phonemizer(path, tmp_path / "parts", PhonemizerSettings(units=9), resume=True)
    assert error.value.code == "conflict"
