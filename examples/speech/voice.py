"""Training set of a voice: sentences spoken by flite, with the times of their phones.

    python examples/speech/voice.py CMUDICT WORK [SENTENCES]

CMUDICT is the CMU pronouncing dictionary (cmudict.dict or cmudict.dict.gz). flite (a Debian package)
speaks each sentence and prints its phones with their end times; the dictionary adds the stress. A sentence
whose phones are not those of the dictionary is left out. Writes WORK/train.jsonl and WORK/test.jsonl, and
the sound beside them. flite is needed here only: a trained voice speaks without it.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SLOTS = {
    "a": """old young small large quiet loud heavy light early late strong weak yellow green blue broken
    frozen gentle careful famous foreign usual thick thin rough smooth royal joyful casual genuine
    modern ancient narrow wide southern northern curious precious dangerous simple perfect""",
    "n": """river mountain garden window doctor teacher engine market letter picture village machine winter
    summer morning evening captain soldier student lawyer farmer bridge ocean forest island station
    kitchen table bottle paper pencil camera music story question answer number weather city country
    measure church judge child brother sister mother father friend horse dog bird fish apple orange
    bread cheese water coffee sugar house school office hospital theater museum library newspaper
    garage treasure vision azure""",
    "v": """watched followed painted carried opened finished measured remembered visited noticed changed
    crossed found lost bought sold brought taught caught thought heard enjoyed joined voiced pushed
    pulled reached touched judged wished mixed helped asked waited managed described""",
    "d": """slowly quickly often never always today yesterday again together outside upstairs nearby
    carefully usually perhaps afterwards""",
    "p": """under over behind beside through across around above without against toward near""",
    "c": """two three four five six seven eight nine ten eleven twelve thirteen twenty thirty forty fifty
    sixty seventy eighty ninety""",
}
"""Words of the slots of the templates below."""
TEMPLATES = [
    "The {a} {n} {v} the {n} {p} the {n}.",
    "{d}, the {n} and the {n} {v} a {a} {n}.",
    "Have you {v} the {a} {n}?",
    "She {v} the {n}, but he {v} the {a} {n} {d}.",
    "When the {n} was {a}, they {v} it {p} the {n}.",
    "It is a {a} {n}, not a {a} {n}.",
    "We {v} {w} and {w} {p} the {n}.",
    "My {n} {v} {w}, {w}, and {w} {d}.",
    "There were {c} {n}s {p} the {a} {n}, and {c} {p} the {n}.",
    "Who {v} your {n} {d}?",
    "He said that {w} {v} the {n} {d}, because the {n} was {a}.",
    "{w} {w} {w} {w} {w}.",
]
OTHERS = [
    "Printing, in the only sense with which we are at present concerned, differs from most if not from all "
    "the arts and crafts represented in the Exhibition.",
    "It is being comparatively modern.",
    "The invention of movable metal letters in the middle of the fifteenth century may justly be "
    "considered as the invention of the art of printing.",
    "And it is worth mention in passing that, as an example of fine typography, "
    "it has never been surpassed.",
    "He was not an ill disposed young man.",
    "Had he married a more amiable woman, he might have been made still more respectable than he was.",
]
"""Of LJ Speech and of Sense and Sensibility; tested, not trained on."""


def sentences(words: list[str], count: int, rng: random.Random) -> Iterator[str]:
    """So many sentences of the templates; {w} is any word of the dictionary."""
    slots = {slot: listed.split() for slot, listed in SLOTS.items()} | {"w": words}
    for _ in range(count):
        text = rng.choice(TEMPLATES)
        for slot, choices in slots.items():
            while f"{{{slot}}}" in text:
                text = text.replace(f"{{{slot}}}", rng.choice(choices), 1)
        yield text[0].upper() + text[1:]


def pronunciations(path: Path) -> dict[str, list[list[str]]]:
    """Words of the dictionary, without abbreviations, and their phones with stress."""
    found: dict[str, list[list[str]]] = {}
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            word, *phones = line.split("#")[0].split()
            word = word.split("(")[0]
            if word.replace("'", "").isalpha():
                found.setdefault(word, []).append(phones)
    return found


def reduced(phone: str) -> str:
    """A phone as both flite and the dictionary write it."""
    return {"ah": "ax", "pau": "sil"}.get(phone.lower().rstrip("012"), phone.lower().rstrip("012"))


def matched(options: list[list[list[str]]], spoken: list[str]) -> list[str] | None:
    """Phones with stress that sound as spoken; pauses anywhere between words. None: there are none."""
    if spoken and reduced(spoken[0]) == "sil":
        rest = matched(options, spoken[1:])
        return None if rest is None else ["SIL", *rest]
    if not options:
        return None if spoken else []
    for phones in options[0]:
        here = spoken[: len(phones)]
        if [reduced(each) for each in phones] == [reduced(each) for each in here]:
            rest = matched(options[1:], spoken[len(phones) :])
            if rest is not None:
                return [*phones, *rest]
    return None


def speak(text: str, path: Path) -> list[tuple[str, float]]:
    """Let flite write the sound; its phones and their ends in seconds."""
    command = ["flite", "-voice", "slt", "-psdur", "-t", text, "-o", str(path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = [each.rsplit(":", 1) for each in printed.split()]
    return [(phone, float(end)) for phone, end in pairs]


def row(text: str, path: Path, dictionary: dict[str, list[list[str]]]) -> dict[str, object] | None:
    """A line of the manifest; None if flite says the text otherwise than the dictionary."""
    plain = "".join(each for each in text.lower() if each.isalpha() or each in " '")
    options = [dictionary.get(word, []) for word in plain.split()]
    spoken = speak(text, path)
    phones = matched(options, [phone for phone, _ in spoken])
    if phones is None:
        path.unlink()
        return None
    ends = [end for _, end in spoken]
    times = zip(phones, [0.0, *ends], ends, strict=False)
    return {
        "audio_filepath": path.name,
        "text": text,
        "phones": [{"phone": phone, "start_s": start, "end_s": end} for phone, start, end in times],
    }


def main(dictionary_path: Path, work: Path, count: int = 1500) -> None:
    """Write both sets."""
    work.mkdir(parents=True, exist_ok=True)
    dictionary, rng = pronunciations(dictionary_path), random.Random(0)
    words = sorted(each for each in dictionary if 4 <= len(each) <= 9 and each.isalpha())
    tested = [*OTHERS, *sentences(words, count // 10, rng)][:50]
    for name, texts in {"test": tested, "train": list(sentences(words, count, rng))}.items():
        rows = [
            row(text, work / f"{name}-{place:04}.wav", dictionary)
            for place, text in enumerate(texts)
        ]
        lines = [json.dumps(each) for each in rows if each is not None]
        (work / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)} of {len(texts)} sentences")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
