"""English text as the words that are said: numbers, money, times, abbreviations, acronyms, addresses.

One pattern divides the text into such forms. Where a form has two readings, the usual one is taken: 1984 is
a year, 5-10 a range, 1,984 a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.config import parse_config
from holdfast.errors import InputError

PAUSES = ",;:.!?()-"
"""Marks that are kept as pauses; the last stands for a dash."""
LONGEST_WORD = 60
"""Letters of a word."""


def _any(names: Iterable[str]) -> str:
    """A pattern of any of some names."""
    return "|".join(map(re.escape, names))


_ENGLISH = parse_config(Path(__file__).with_name("english.toml"), "the words of English")
_ONES, _TENS = _ENGLISH["ones"].split(), _ENGLISH["tens"].split()
_SCALES, _SYMBOLS = _ENGLISH["scales"], _ENGLISH["symbols"]
_ABBREVIATIONS, _FRACTIONS = _ENGLISH["abbreviations"], _ENGLISH["fractions"]
_ADDRESS = _SYMBOLS | _ENGLISH["address"]
_SAME = {each: text for text, several in _ENGLISH["characters"].items() for each in several}
_SHORT, _UNITS = _ENGLISH["scales_in_short"], _ENGLISH["units"]
_MOST_DIGITS = 15

_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+"
_PATTERN = re.compile(
    rf"""
    (?P<address> https?://\S+ | www\.\S+ | [\w.+-]{{1,64}}@[\w-]+\.[\w.-]*\w )
  | (?P<saint> \bSt\.(?=\s+(?-i:[A-Z])) )
  | (?P<digits> (?:\(\d{{3}}\)\s?|\d{{3}}[-.])?\d{{3}}[-.]\d{{4}}\b | \d(?:-\d+){{3,}}
        | \+\d{{1,3}}(?:[ -]\(?\d{{1,4}}\b\)?){{2,6}} )
  | (?P<abbreviation> \b(?!No\.(?!\s*\d))(?:{_any(_ABBREVIATIONS)})\. )
  | (?P<date> \b\d{{4}}-\d\d?-\d\d?(?:T(?=\d)|\b) | \b\d\d?\.\d\d?\.\d{{4}}\b | \b\d\d?/\d\d?/\d{{4}}\b )
  | (?P<money> (?:(?<!\w)-)?[$£€]-?(?:{_NUMBER})(?:\s+(?:{_any(_SCALES)})\b|(?:{_any(_SHORT)})\b)? )
  | (?P<mixed> \b\d+\s+(?:{_any(_FRACTIONS)})(?![\d/]) )
  | (?P<fraction> \b(?:{_any(_FRACTIONS)})(?![\d/]) )
  | (?P<time> (?<![\d.:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?=\s?[ap]m\b|\b(?!:)) )
  | (?P<half> (?<=\d)\s?[ap]m\b )
  | (?P<unit> (?<=\d)\s?(?:{_any(_UNITS)})(?![\w/]) )
  | (?P<ordinal> \b\d+(?:,\d{{3}})*(?:st|nd|rd|th)\b )
  | (?P<decade> \b(?:(?:1[1-9]|20)\d|[1-9])0'?s\b )
  | (?P<year> \b(?:1[1-9]|20)\d\d\b(?!,\d|\.\d) )
  | (?P<number> (?:(?<!\w)-)?(?:{_NUMBER})(?:e[-+]?\d+\b)? )
  | (?P<range> (?<=\d)-(?=[$£€]?\d) )
  | (?P<letters> \b(?:[a-z]\.){{2,}} )
  | (?P<word> '?[a-z]+(?:['-][a-z]+)* )
  | (?P<dot> (?<=\w)\.(?=\w) )
  | (?P<dash> --+ | (?<=\s)-(?=\s) )
  | (?P<mark> \S )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def words_of(text: str, known: Callable[[str], bool] = lambda word: False) -> list[str]:
    """The words of an English text in the order in which they are said, with pauses.

    Args:
        text: any Unicode text; accents and ligatures are read as plain letters.
        known: whether a dictionary has a word: upper-case words that it has are not spelled.

    Returns:
        Words of a-z and apostrophes; a letter that is named ends with a dot (``a.``); `PAUSES`.

    Raises:
        InputError: ``unknown-character`` for another script or a symbol without a name;
            ``out-of-range`` for a word of more than 60 letters.
    """
    folded = _fold(text)
    words: list[str] = []
    for match in _PATTERN.finditer(folded):
        for word in _words(match.lastgroup or "", match.group(), known):
            if len(word) > LONGEST_WORD:
                raise InputError(
                    "word too long to pronounce",
                    code="out-of-range",
                    place=_place(folded, match.start()),
                    found=f"{len(word)} letters",
                    expected=f"at most {LONGEST_WORD}",
                )
            if word in PAUSES and words and words[-1] in PAUSES:
                continue  # one pause is enough
            words.append(word)
    return words


def cardinal(number: int) -> list[str]:
    """Words of a number of at most 15 digits."""
    return _cardinal(number) or ["zero"]


def _cardinal(number: int) -> list[str]:
    """The same; none of zero."""
    for name, value in _SCALES.items():
        if number >= value:
            most, rest = divmod(number, value)
            return [*_cardinal(most), name, *_cardinal(rest)]
    if number < 20:
        return [_ONES[number]] if number else []
    return [_TENS[number // 10], *_cardinal(number % 10)]


def ordinal(number: int) -> list[str]:
    """Words of 1st, 2nd, 3rd ..."""
    *words, last = cardinal(number)
    return [*words, _ENGLISH["ordinals"].get(last) or re.sub("y$", "ie", last) + "th"]


def year(number: int) -> list[str]:
    """Words of a year of four digits: nineteen oh five, two thousand nine."""
    century, rest = divmod(number, 100)
    if century == 20 and rest < 10:
        return cardinal(number)
    return [*cardinal(century), *(_two_digits(rest) if rest else ["hundred"])]


def _two_digits(number: int) -> list[str]:
    """Words of 05, 10 or 59."""
    return [*(["oh"] if number < 10 else []), *cardinal(number)]


def _fold(text: str) -> str:
    """Text in ASCII and currency signs."""
    folded: list[str] = []
    for place, character in enumerate(text):
        plain = _SAME.get(character.lower()) or unicodedata.normalize("NFKD", character)
        if len(plain) > 1 and "⁄" in plain:
            plain = f" {plain}"  # 2½ is two, one half
        for each in plain:
            # Marks of accents and invisible characters say nothing.
            if unicodedata.category(each) in ("Mn", "Cf"):
                continue
            ascii_text = _SAME.get(each.lower(), each)
            visible = ascii_text.isascii() and ascii_text.isprintable()
            if not (visible or ascii_text.isspace() or ascii_text in _SYMBOLS):
                raise InputError(
                    "character that cannot be pronounced",
                    code="unknown-character",
                    place=_place(text, place),
                    found=f"{character!r} ({unicodedata.name(character, 'no name')})",
                    expected="English text in Latin letters",
                )
            folded.append(ascii_text)
    return "".join(folded)


def _place(text: str, offset: int) -> str:
    lines = re.split(r"\r\n|\r|\n", text[:offset])
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"


def _words(form: str, piece: str, known: Callable[[str], bool]) -> Iterable[str]:
    """Words and pauses of a piece of the text, by the name of its form in the pattern."""
    digits = re.sub(r"\D", "", piece)
    match form:
        case "word":
            return _word(piece, known)
        case "number":
            amount, _, power = piece.lstrip("-").lower().partition("e")
            words = [*(["minus"] if piece[0] == "-" else []), *_amount(amount)]
            if power:
                words += ["times", "ten", "to", "the", *_words("number", power.lstrip("+"), known)]
            return words
        case "mark":
            return [piece] if piece in PAUSES[:-1] else _SYMBOLS.get(piece, "").split()
        case "year":
            return year(int(piece))
        case "ordinal":
            return ordinal(int(digits)) if len(digits) <= _MOST_DIGITS else _spelled_digits(digits)
        case "decade":
            *words, last = year(int(digits)) if len(digits) == 4 else cardinal(int(digits))
            return [*words, re.sub("y$", "ie", last) + "s"]
        case "money":
            return _money(piece)
        case "digits":
            groups = [_spelled_digits(each) for each in re.findall(r"\d+", piece)]
            said = [word for group in groups for word in (*group, ",")][:-1]
            return ["plus", *said] if piece[0] == "+" else said
        case "time":
            hour, minute, *seconds = map(int, piece.split(":"))
            words = [*cardinal(hour), *(_two_digits(minute) if minute else ["o'clock"])]
            return [*words, *(w for s in seconds for w in ("and", *cardinal(s), "seconds"))]
        case "date":
            return _date(piece)
        case "mixed":
            whole, part = piece.split()
            return [
                *cardinal(int(whole)),
                "and",
                *str(_FRACTIONS[part]).replace("one", "a").split(),
            ]
        case "abbreviation":
            return str(_ABBREVIATIONS[piece[:-1].lower()]).split()
        case "letters" | "half":
            return [f"{letter}." for letter in piece.lower() if letter.isalpha()]
        case "address":
            address = re.sub(r"^\w+://", "", piece.rstrip(".,;:!?)'\""))
            parts = [
                _word(each, known) if each.isalpha() else _ADDRESS.get(each, "").split()
                for each in re.findall(r"[A-Za-z]+|\d|\S", address)
            ]
            return [word for part in parts for word in part]
        case "unit":
            return str(_UNITS[piece.strip().lower()]).split()
        case "fraction":
            return str(_FRACTIONS[piece]).split()
        case _:
            return [{"saint": "saint", "range": "to", "dot": "dot", "dash": "-"}[form]]


def _word(piece: str, known: Callable[[str], bool]) -> list[str]:
    """A word, its parts between hyphens, or the names of its letters."""
    name = piece.lower()
    if known(name) and piece not in _ENGLISH["spelled"]:
        return [name]
    if name[0] == "'" or "-" in name:
        parts = piece.lstrip("'").split("-")
        return [word for part in parts for word in _word(part, known)]
    stem, mark, ending = piece.partition("'")
    # An acronym, or without a vowel that would make it a word.
    if (stem.isupper() and 2 <= len(stem) <= 5) or not set(stem.lower()) & set("aeiouy"):
        letters = [f"{letter}." for letter in stem.lower()]
        return [*letters[:-1], letters[-1] + mark + ending.lower()]
    return [name]


def _spelled_digits(digits: str) -> list[str]:
    return [_ONES[int(digit)] for digit in digits]


def _amount(text: str) -> list[str]:
    """A whole or decimal number such as 1,234.5 or .5; digits one by one where it is an identifier."""
    whole, _, decimals = text.replace(",", "").partition(".")
    if len(whole) > _MOST_DIGITS or (whole[:1] == "0" and len(whole) > 1):
        words = _spelled_digits(whole)
    else:
        words = cardinal(int(whole)) if whole else []
    return [*words, "point", *_spelled_digits(decimals)] if decimals else words


def _date(piece: str) -> list[str]:
    """A date in figures; where day and month cannot be told apart, its numbers in their order."""
    numbers = [int(each) for each in re.findall(r"\d+", piece)]
    first, second, year_ = numbers[1:] + numbers[:1] if "-" in piece else numbers
    # Of 2024-12-25 the month comes first, of 25.12.2024 the day; in 4/5/2024 either may.
    month, day = (second, first) if "." in piece or first > 12 else (first, second)
    if "/" in piece and first <= 12 and second <= 12 and first != second:
        return [*cardinal(first), *cardinal(second), *year(year_)]
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return [word for number in numbers for word in (*cardinal(number), ",")][:-1]
    return [_ENGLISH["months"].split()[month - 1], *ordinal(day), ",", *year(year_)]


def _money(piece: str) -> list[str]:
    if "-" in piece:
        return ["minus", *_money(piece.replace("-", ""))]
    short = piece.lower().lstrip("-$£€.,0123456789")
    if short in _SHORT:
        piece = f"{piece[: -len(short)]} {_SHORT[short]}"
    amount, *scale = piece[1:].lower().split()
    one, many, cent, cents = _ENGLISH["currencies"][piece[0]].split()
    whole, _, decimals = amount.partition(".")
    if scale or len(decimals) not in (0, 2):
        return [*_amount(amount), *scale, many]
    words = [*_amount(whole), one if whole == "1" else many]
    if not int(decimals or 0):
        return words
    small = [*cardinal(int(decimals)), cent if decimals == "01" else cents]
    return small if whole in ("", "0") else [*words, "and", *small]
