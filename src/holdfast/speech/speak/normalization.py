"""English text as the words that are said: numbers, money, times, abbreviations, acronyms, addresses.

One pattern divides the text into such forms. Where a form has two readings, the usual one is taken: 1984 is
a year, 5-10 a range, 1,984 a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.errors import InputError

PAUSES = ",;:.!?()-"
"""Marks that are kept as pauses; the last stands for a dash."""
LONGEST_WORD = 60
"""Letters of a word."""


def _table(rows: str) -> dict[str, str]:
    """What the first word of each row, between commas, stands for."""
    return {key: " ".join(words) for key, *words in map(str.split, rows.split(","))}


_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen
"""
_ROUND = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
_ONES, _TENS = _SMALL.split(), _ROUND.split()
_SCALES = {"trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 10**3}
_MOST_DIGITS = 15
_IRREGULAR = _table(
    "one first, two second, three third, five fifth, eight eighth, nine ninth, twelve twelfth"
)
_CURRENCIES = _table(
    "$ dollar dollars cent cents, £ pound pounds penny pence, € euro euros cent cents"
)
_FRACTIONS = _table(
    "1/2 one half, 1/3 one third, 2/3 two thirds, 1/4 one quarter, 3/4 three quarters"
)
_SYMBOLS = _table(
    """& and, @ at, % percent, + plus, = equals, # number, ° degrees, $ dollars, £ pounds, € euros,
    × times, / slash, _ underscore, * star, < less than, > greater than"""
)
_ADDRESS = _SYMBOLS | _table(". dot, - dash, : colon, ? question mark, ~ tilde")
_ABBREVIATIONS = _table(
    """
mr mister, mrs missus, ms ms, dr doctor, prof professor, etc et cetera, e.g for example, i.e that is,
vs versus, jr junior, sr senior, inc incorporated, ltd limited, approx approximately, dept department,
mt mount, ave avenue, blvd boulevard, gen general, col colonel, capt captain, lt lieutenant, sgt sergeant,
rev reverend, gov governor, sen senator, jan january, feb february, aug august, sept september,
oct october, nov november, dec december, tel telephone, fig figure, st street
"""
)
"""Without the last dot, which they must have."""
_SPELLED = {"US", "IT"}
"""Upper-case words that are read as letters although the word in lower case means something else."""
_LETTERS = _table("ß ss, æ ae, œ oe, ø o, ł l, đ d, ð th, þ th")
_SAME = {"⁄": "/", "·": " ", "•": " "}
_SAME |= dict.fromkeys("‘’ʼ′`´", "'") | dict.fromkeys("“”„«»‹›″‚¿¡", '"')
_SAME |= dict.fromkeys("–−‐‑‒", "-") | dict.fromkeys("—―", "--")

_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+"
_PATTERN = re.compile(
    rf"""
    (?P<address> https?://\S+ | www\.\S+ | [\w.+-]{{1,64}}@[\w-]+\.[\w.-]*\w )
  | (?P<saint> \bSt\.(?=\s+(?-i:[A-Z])) )
  | (?P<digits> (?:\(\d{{3}}\)\s?|\d{{3}}[-.])?\d{{3}}[-.]\d{{4}}\b | \d(?:-\d+){{3,}} )
  | (?P<abbreviation> \b(?:{"|".join(map(re.escape, _ABBREVIATIONS))})\. | \bNo\.(?=\s*\d) )
  | (?P<money> [$£€](?:{_NUMBER})(?:\s+(?:{"|".join(_SCALES)})\b)? )
  | (?P<fraction> \b(?:{"|".join(_FRACTIONS)})\b )
  | (?P<time> \b(?:[01]?\d|2[0-3]):[0-5]\d\b | \b(?:[01]?\d|2[0-3]):[0-5]\d(?=\s?[ap]m\b) )
  | (?P<half> (?<=\d)\s?[ap]m\b )
  | (?P<ordinal> \b\d+(?:,\d{{3}})*(?:st|nd|rd|th)\b )
  | (?P<decade> \b(?:(?:1[1-9]|20)\d|[1-9])0'?s\b )
  | (?P<year> \b(?:1[1-9]|20)\d\d\b(?!,\d|\.\d) )
  | (?P<number> (?:(?<!\w)-)?(?:{_NUMBER}) )
  | (?P<range> (?<=\d)-(?=\d) )
  | (?P<letters> \b(?:[a-z]\.){{2,}} )
  | (?P<word> '?[a-z]+(?:['-][a-z]+)* )
  | (?P<dot> (?<=\w)\.(?=\w) )
  | (?P<dash> --+ | (?<=\s)-(?=\s) )
  | (?P<mark> \S )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Token:
    """A word to say, or a pause."""

    word: str
    """Of a-z and apostrophes; a letter that is named ends with a dot (``a.``); or one of `PAUSES`."""
    written: str
    """The piece of the text that it comes from."""
    place: int
    """Where this piece begins in the text, in characters."""


def tokens(text: str, known: Callable[[str], bool] = lambda word: False) -> list[Token]:
    """The words of an English text in the order in which they are said, with pauses.

    Args:
        text: any Unicode text; accents and ligatures are read as plain letters.
        known: whether a dictionary has a word: upper-case words that it has are not spelled.

    Raises:
        InputError: ``unknown-character`` for another script or a symbol without a name;
            ``out-of-range`` for a word of more than 60 letters; ``empty-input`` without a word.
    """
    folded, places = _fold(text)
    found: list[Token] = []
    for match in _PATTERN.finditer(folded):
        begin, end = places[match.start()], places[match.end() - 1] + 1
        written = text[begin:end]
        for word in _words(match.lastgroup or "", match.group(), known):
            if word in PAUSES and (not found or found[-1].word in PAUSES):
                continue  # one pause is enough, and none comes first
            if len(word) > LONGEST_WORD:
                raise InputError(
                    "word too long to pronounce",
                    code="out-of-range",
                    place=_place(text, begin),
                    found=f"{len(word)} letters",
                    expected=f"at most {LONGEST_WORD}",
                )
            found.append(Token(word, written, begin))
    if all(each.word in PAUSES for each in found):
        shown = repr(text[:40])
        raise InputError(
            "the text has no words", code="empty-input", found=shown, expected="English"
        )
    return found


def cardinal(number: int) -> list[str]:
    """Words of a number of at most 15 digits."""
    for name, value in [*_SCALES.items(), ("hundred", 100)]:
        if number >= value:
            most, rest = divmod(number, value)
            return [*cardinal(most), name, *(cardinal(rest) if rest else [])]
    if number < 20:
        return [_ONES[number]]
    return [_TENS[number // 10], *(cardinal(number % 10) if number % 10 else [])]


def ordinal(number: int) -> list[str]:
    """Words of 1st, 2nd, 3rd ..."""
    *words, last = cardinal(number)
    return [
        *words,
        _IRREGULAR.get(last) or last.removesuffix("y") + ("ieth" if last[-1] == "y" else "th"),
    ]


def year(number: int) -> list[str]:
    """Words of a year of four digits: nineteen oh five, two thousand nine."""
    century, rest = divmod(number, 100)
    if century == 20 and rest < 10:
        return cardinal(number)
    if not rest:
        return [*cardinal(century), "hundred"]
    return [*cardinal(century), *(["oh"] if rest < 10 else []), *cardinal(rest)]


def _fold(text: str) -> tuple[str, list[int]]:
    """Text in ASCII and currency signs, and the place in the text that each character comes from."""
    folded: list[str] = []
    places = []
    for place, character in enumerate(text):
        plain = _SAME.get(character) or unicodedata.normalize("NFKD", character)
        if len(plain) > 1 and "⁄" in plain:
            plain = f" {plain}"  # 2½ is two, one half
        for each in plain:
            # Marks of accents and invisible characters say nothing.
            if unicodedata.category(each) in ("Mn", "Cf"):
                continue
            ascii_text = _SAME.get(each) or _LETTERS.get(each.lower(), each)
            visible = ascii_text.isascii() and ascii_text.isprintable()
            if not (visible or ascii_text.isspace() or ascii_text in _SYMBOLS):
                raise InputError(
                    "character that cannot be pronounced",
                    code="unknown-character",
                    place=_place(text, place),
                    found=f"{character!r} ({unicodedata.name(character, 'no name')})",
                    expected="English text in Latin letters",
                )
            folded += ascii_text
            places += [place] * len(ascii_text)
    return "".join(folded), places


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
            return [*(["minus"] if piece[0] == "-" else []), *_amount(piece.lstrip("-"))]
        case "mark":
            return [piece] if piece in PAUSES[:-1] else _SYMBOLS.get(piece, "").split()
        case "year":
            return year(int(piece))
        case "ordinal":
            return ordinal(int(digits)) if len(digits) <= _MOST_DIGITS else _spelled_digits(digits)
        case "decade":
            *words, last = year(int(digits)) if len(digits) == 4 else cardinal(int(digits))
            return [*words, last.removesuffix("y") + ("ies" if last[-1] == "y" else "s")]
        case "money":
            return _money(piece)
        case "digits":
            groups = [_spelled_digits(each) for each in re.findall(r"\d+", piece)]
            return [word for group in groups for word in (*group, ",")][:-1]
        case "time":
            hour, minute = map(int, piece.split(":"))
            late = [*(["oh"] if minute < 10 else []), *cardinal(minute)] if minute else ["o'clock"]
            return [*cardinal(hour), *late]
        case "abbreviation":
            return _ABBREVIATIONS.get(piece[:-1].lower(), "number").split()
        case "letters" | "half":
            return [f"{letter}." for letter in piece.lower() if letter.isalpha()]
        case "address":
            parts = re.findall(
                r"[A-Za-z]+|\d|\S", re.sub(r"^\w+://", "", piece.rstrip(".,;:!?)'\""))
            )
            words = []
            for each in parts:
                if each.isalpha():
                    words += _word(each, known)
                else:
                    words += (
                        [_ONES[int(each)]] if each.isdigit() else _ADDRESS.get(each, "").split()
                    )
            return words
        case "fraction":
            return _FRACTIONS[piece].split()
        case _:
            return [{"saint": "saint", "range": "to", "dot": "dot", "dash": "-"}[form]]


def _word(piece: str, known: Callable[[str], bool]) -> list[str]:
    """A word, its parts between hyphens, or the names of its letters."""
    name = piece.lower()
    if known(name) and piece not in _SPELLED:
        return [name]
    if name[0] == "'":
        return _word(piece[1:], known)
    if "-" in piece:
        return [word for part in piece.split("-") for word in _word(part, known)]
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


def _money(piece: str) -> list[str]:
    amount, *scale = piece[1:].lower().split()
    one, many, cent, cents = _CURRENCIES[piece[0]].split()
    whole, _, decimals = amount.partition(".")
    if scale or len(decimals) not in (0, 2):
        return [*_amount(amount), *scale, many]
    small = [*cardinal(int(decimals or 0)), cent if decimals == "01" else cents]
    if whole in ("", "0") and int(decimals or 0):
        return small
    words = [*_amount(whole), one if whole == "1" else many]
    return [*words, "and", *small] if int(decimals or 0) else words
