"""English text as the words that are said: numbers, money, times, abbreviations, acronyms, addresses.

A piece of text between spaces is read by its form, and a few by their neighbor: "$5 million", "No. 7".
Where a form has two readings, the usual one is taken: 1984 is a year, 5-10 a range, 1,984 a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.errors import InputError

PAUSES = ",;:.!?()-"
"""Marks that are kept as pauses."""
LONGEST_WORD, LONGEST_PIECE = 60, 2000
"""Letters of a word, and characters between two spaces."""

_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen
"""
_ONES = _SMALL.split()
_TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ("", "thousand", "million", "billion", "trillion")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
}
_FRACTIONS = {"1/2": "one half", "1/3": "one third", "2/3": "two thirds"}
_FRACTIONS |= {"1/4": "one quarter", "3/4": "three quarters"}
_SYMBOLS = {"&": "and", "@": "at", "%": "percent", "+": "plus", "=": "equals", "#": "number"}
_SYMBOLS |= {"°": "degrees", "$": "dollars", "£": "pounds", "€": "euros", "×": "times"}
_SYMBOLS |= {"/": "slash", "_": "underscore", "*": "star", "<": "less than", ">": "greater than"}
_ADDRESS = {".": "dot", "-": "dash", ":": "colon", "?": "question mark", "~": "tilde", ",": "comma"}
_ABBREVIATIONS = {
    "mr": "mister",
    "mrs": "missus",
    "ms": "ms",
    "prof": "professor",
    "etc": "et cetera",
    "e.g": "for example",
    "i.e": "that is",
    "vs": "versus",
    "jr": "junior",
    "sr": "senior",
    "inc": "incorporated",
    "ltd": "limited",
    "approx": "approximately",
    "dept": "department",
    "mt": "mount",
    "ave": "avenue",
    "blvd": "boulevard",
    "gen": "general",
    "col": "colonel",
    "capt": "captain",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "rev": "reverend",
    "gov": "governor",
    "sen": "senator",
    "jan": "january",
    "feb": "february",
    "aug": "august",
    "sept": "september",
    "oct": "october",
    "nov": "november",
    "dec": "december",
    "tel": "telephone",
    "fig": "figure",
}
"""Without the last dot, which they must have."""
_BY_NEXT = {"dr": ("doctor", "drive"), "st": ("saint", "street"), "no": ("number", "")}
"""Before a capital letter (No. before a digit), and elsewhere; empty: no abbreviation there."""
_SPELLED = {"US", "IT", "AM", "PM"}
"""Upper-case words that are read as letters although the word in lower case means something else."""
_LETTERS = {
    "ß": "ss",
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "th",
    "þ": "th",
    "ı": "i",
}
_SAME = {
    **dict.fromkeys("‘’ʼ′`´", "'"),
    **dict.fromkeys("“”„«»‹›″‚", '"'),
    **dict.fromkeys("–−‐‑‒", "-"),
    **dict.fromkeys("—―", "--"),
    "⁄": "/",
    "·": " ",
    "•": " ",
    "¿": " ",
    "¡": " ",
}
_DROPPED = "\"'[]{}|\\^~"
"""Marks that are not said; an apostrophe within a word is a letter."""


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
    # 1. Each piece as words; a neighbor decides some.
    pieces = list(re.finditer(r"\S+", folded))
    found: list[Token] = []
    for number, piece in enumerate(pieces):
        following = pieces[number + 1].group() if number + 1 < len(pieces) else ""
        before = pieces[number - 1].group() if number else ""
        begin, end = places[piece.start()], places[piece.end() - 1] + 1
        written = text[begin:end]
        if end - begin > LONGEST_PIECE:
            raise _too_long(text, begin, f"{end - begin} characters without a space", LONGEST_PIECE)
        for word in _piece(piece.group(), before, following, known):
            pause = word in PAUSES
            if pause and (not found or found[-1].word in PAUSES):
                continue  # one pause is enough, and none comes first
            if len(word) > LONGEST_WORD:
                raise _too_long(text, begin, f"{len(word)} letters", LONGEST_WORD)
            found.append(Token(word, written, begin))
    if all(each.word in PAUSES for each in found):
        raise InputError(
            "the text has no words",
            code="empty-input",
            found=repr(text[:40]),
            expected="English text",
        )
    return found


def cardinal(number: int) -> list[str]:
    """Words of a number of at most 15 digits."""
    if number < 20:
        return [_ONES[number]]
    if number < 100:
        return [_TENS[number // 10], *([_ONES[number % 10]] if number % 10 else [])]
    if number < 1000:
        return [_ONES[number // 100], "hundred", *(cardinal(number % 100) if number % 100 else [])]
    words, scale = [], len(_SCALES) - 1
    for scale in range(len(_SCALES) - 1, -1, -1):
        part, number = divmod(number, 1000**scale)
        if part:
            words += [*cardinal(part), *_SCALES[scale].split()]
    return words


def ordinal(number: int) -> list[str]:
    """Words of 1st, 2nd, 3rd ..."""
    *words, last = cardinal(number)
    if last in _ORDINALS:
        return [*words, _ORDINALS[last]]
    return [*words, (last[:-1] + "ie" if last.endswith("y") else last) + "th"]


def year(number: int) -> list[str]:
    """Words of a year of four digits: nineteen oh five, two thousand nine."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
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
        for each in plain:
            each = _LETTERS.get(each.lower(), _SAME.get(each, each))
            # Marks of accents and invisible characters say nothing.
            if unicodedata.category(each[0]) in ("Mn", "Cf"):
                continue
            if not (each.isspace() or each in _SYMBOLS or (each.isascii() and each.isprintable())):
                raise InputError(
                    "character that cannot be pronounced",
                    code="unknown-character",
                    place=_place(text, place),
                    found=f"{character!r} ({unicodedata.name(character, 'no name')})",
                    expected="English text in Latin letters",
                )
            if each == "1" and len(plain) > 1 and folded and folded[-1].isdigit():
                folded.append(" ")  # 2½ is two, one half
                places.append(place)
            folded += each if character.lower() == character else each.upper()
            places += [place] * len(each)
    return "".join(folded), places


def _too_long(text: str, begin: int, found: str, most: int) -> InputError:
    return InputError(
        "word too long to pronounce",
        code="out-of-range",
        place=_place(text, begin),
        found=found,
        expected=f"at most {most}",
    )


def _place(text: str, offset: int) -> str:
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"line {before.count(chr(10)) + 1}, column {column}"


def _piece(piece: str, before: str, following: str, known: Callable[[str], bool]) -> Iterable[str]:
    """Words and pauses of a piece between spaces."""
    core = piece.lstrip("\"'([{")
    opening = "(" if "(" in piece[: len(piece) - len(core)] else ""
    if piece.lstrip('"([{')[:1] == "'" and known(
        piece.lstrip('"([{').rstrip(".,;:!?\"')]}").lower()
    ):
        core = "'" + core  # 'em, 'tis
    end = len(core.rstrip(".,;:!?\"')]}-"))
    core, closing = core[:end], core[end:]
    pause = next((mark for mark in closing if mark in PAUSES), "")
    words = None
    if closing.startswith("."):
        words = _abbreviation(core, following)
        initials = "." in core and following[:1].islower()
        if (words is not None or initials) and not closing[1:] and following:
            pause = ""  # the dot belongs to the abbreviation
    if words is None:
        words = _form(core, before, following, known)
    return [*opening, *words, *pause]


def _abbreviation(core: str, following: str) -> list[str] | None:
    """Words of an abbreviation whose last dot was removed; None: it is none."""
    name = core.lower()
    if name in _BY_NEXT:
        near, elsewhere = _BY_NEXT[name]
        first = following.lstrip("\"'(")[:1]
        fits = first.isdigit() if name == "no" else first.isupper()
        return (near if fits else elsewhere).split() or None
    if name in _ABBREVIATIONS:
        return _ABBREVIATIONS[name].split()
    return None


def _form(core: str, before: str, following: str, known: Callable[[str], bool]) -> list[str]:
    """Words of a piece without the marks around it."""
    if not core:
        return []
    if (
        "://" in core
        or core.lower().startswith("www.")
        or re.fullmatch(r"[^@]+@[^@.]+\.[^@]+", core)
    ):
        return _address(core, known)
    if any(character.isdigit() for character in core):
        words = _number(core, before, following)
        if words is not None:
            return words
    if re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]", core):  # U.S.A, p.m
        return [f"{letter.lower()}." for letter in core if letter != "."]
    if core.lower() in _SCALES[1:] and re.fullmatch(r"[$£€][\d,.]*\d", before):
        return []  # said with the sum of money before it
    if known(core.lower()) and core not in _SPELLED and re.fullmatch(r"[A-Za-z'.-]+", core):
        return [core.lower()]
    # Runs of letters, of digits with their separators, and single marks.
    words = []
    runs = re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)*|\d+(?:,\d{3})*(?:\.\d+)?|[^A-Za-z\d]", core)
    for run in runs:
        if run[0].isalpha():
            words += _word(run, known)
        elif run[0].isdigit():
            words += _number(run, "", "") or []
        elif run in _SYMBOLS:
            words += _SYMBOLS[run].split()
        elif run == "-" and core.strip("-"):
            # Two hyphens are a dash; one joins words.
            words += ["-"] if "--" in core else []
        elif run in PAUSES:
            words.append(run)
        elif run not in _DROPPED:
            raise AssertionError(f"{run!r} is folded to something else")
    return words


def _word(run: str, known: Callable[[str], bool]) -> list[str]:
    """A word, or the names of its letters."""
    name = run.lower()
    stem, mark, ending = run.partition("'")
    spelled = stem.isupper() and 2 <= len(stem) <= 5 and ending.lower() in ("", "s")
    if spelled and (stem in _SPELLED or not known(name)):
        letters = [f"{letter.lower()}." for letter in stem]
        return [*letters[:-1], letters[-1] + mark + ending.lower()]
    # Without a vowel it cannot be said as a word.
    if not known(name) and len(name) > 1 and not set(name) & set("aeiouy"):
        return [f"{letter}." for letter in name if letter != "'"]
    return [name]


def _digits(text: str) -> list[str]:
    """Digits one by one; each group but the first begins with a pause."""
    words = []
    for group in re.findall(r"\d+", text):
        words += [*([","] if words else []), *(_ONES[int(digit)] for digit in group)]
    return words


def _amount(text: str) -> list[str]:
    """A whole or decimal number such as 1,234.5 or .5; digits one by one where it is an identifier."""
    whole, _, decimals = text.replace(",", "").partition(".")
    if len(whole) > 15 or (len(whole) > 1 and whole[0] == "0"):
        words = _digits(whole)
    else:
        words = cardinal(int(whole or 0))
    return [*words, "point", *_digits(decimals)] if decimals else words


def _number(core: str, before: str, following: str) -> list[str] | None:
    """Words of a piece that is a number in one of the usual forms; None: it is not."""
    amount = r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+"
    if core in _FRACTIONS:
        return _FRACTIONS[core].split()
    if re.fullmatch(r"\+?\d+(?:[-.]\d+){1,6}", core) and not re.fullmatch(r"\d+\.\d+", core):
        digits = sum(character.isdigit() for character in core)
        if digits >= 7 and not re.fullmatch(r"\d{4}-\d{4}", core):  # 1914-1918
            return _digits(core)
    if re.fullmatch(r"\d+(?:\.\d+){2,}", core):  # a version
        return [word for part in core.split(".") for word in ("point", *_amount(part))][1:]
    if re.fullmatch(r"\d{3}", core) and re.match(r"\d{3}-\d{4}\b", following):
        return [*_digits(core), ","]  # (555) 123-4567
    if match := re.fullmatch(rf"([-+]?)({amount})(%?)", core):
        sign, value, percent = match.groups()
        words = _amount(value)
        if re.fullmatch(r"1[1-9]\d\d|20\d\d", value) and not sign and not percent:
            words = year(int(value))
        signs = {"-": ["minus"], "+": ["plus"], "": []}[sign]
        return [*signs, *words, *(["percent"] if percent else [])]
    if match := re.fullmatch(rf"(-?)([$£€])({amount})", core):
        sign, currency, value = match.groups()
        scale = following.rstrip(".,;:!?)\"'").lower()
        words = _money(currency, value, scale if scale in _SCALES[1:] else "")
        return ["minus", *words] if sign else words
    if match := re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th)", core, re.IGNORECASE):
        return ordinal(int(match[1].replace(",", "")))
    if match := re.fullmatch(r"((?:1[1-9]|20)?\d)0'?s", core):  # 1990s, 90s
        *words, last = (
            year(int(match[1] + "0")) if len(match[1]) == 3 else cardinal(int(match[1] + "0"))
        )
        return [*words, last[:-1] + "ies" if last.endswith("y") else last + "s"]
    if match := re.fullmatch(r"(\d\d?):([0-5]\d)(?::([0-5]\d))?([AaPp][Mm])?", core):
        return _time(*match.groups())
    if match := re.fullmatch(rf"({amount})-({amount})", core):
        first, last = (_number(each, "", "") or [] for each in match.groups())
        return [*first, "to", *last]
    if match := re.fullmatch(r"(\d+)/(\d+)", core):
        return [*_amount(match[1]), "over", *_amount(match[2])]
    return None


def _money(currency: str, value: str, scale: str) -> list[str]:
    one, many, cent, cents = _CURRENCIES[currency]
    if scale:
        return [*_amount(value), scale, many]
    whole, _, decimals = value.replace(",", "").partition(".")
    if len(decimals) not in (0, 2) or len(whole) > 15:
        return [*_amount(value), many]
    words = [*_amount(whole or "0"), one if whole == "1" else many]
    if not int(decimals or 0):
        return words
    small = [*cardinal(int(decimals)), cent if int(decimals) == 1 else cents]
    return [*words, "and", *small] if int(whole or 0) else small


def _time(hour: str, minute: str, second: str | None, half: str | None) -> list[str]:
    words = cardinal(int(hour))
    if int(minute):
        words += [*(["oh"] if minute[0] == "0" else []), *cardinal(int(minute))]
    elif not half and 0 < int(hour) <= 12:
        words.append("o'clock")
    elif not half:
        words += ["hundred"]
    if second:
        words += ["and", *cardinal(int(second)), "seconds"]
    return [*words, *(f"{letter.lower()}." for letter in half or "")]


def _address(core: str, known: Callable[[str], bool]) -> list[str]:
    """Words of a web or mail address, with its marks by name."""
    words = []
    for run in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]", re.sub(r"^[A-Za-z]+://", "", core)):
        if run[0].isdigit():
            words += _digits(run)
        elif run[0].isalpha():
            words += _word(run.upper() if run.lower() == "www" else run, known)
        else:
            words += {**_SYMBOLS, **_ADDRESS}.get(run, "").split()
    return words
