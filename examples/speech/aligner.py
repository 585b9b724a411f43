"""Make training and test speech for the aligner with flite (https://github.com/festvox/flite).

    python aligner.py DICTIONARY WORK          # DICTIONARY: CMUdict, plain or compressed

Sentences are random words of the dictionary among common short words; test sentences have words that no
training sentence has. A line of WORK/train.jsonl has the phones as its text; one of WORK/test.jsonl also
has flite's own times, and its words. flite says the training sentences in three voices, the
test sentences also in a fourth, which training does not hear.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np

from holdfast.speech.speak.dictionary import Dictionary, part_of

COMMON = """
a about all an and are as at be been but by can could did do for from had has have he her him his how i if
in into is it its like made may me more my no not of on one or our out over said she so some such than that
the their them then there these they this to two under up us very was we were what when which who will with
would you your
"""
VOICES = ["slt", "rms", "kal16"]
UNHEARD = "awb"
ARPABET = {"pau": "SIL", "ax": "AH", "axr": "ER"}
"""flite's names that are not those of CMUdict in lower case."""


def sentence(words: list[str], rng: np.random.Generator) -> str:
    """Four to eight words, some with a comma behind them."""
    parts = []
    for _ in range(rng.integers(4, 9)):
        common = rng.random() < 0.45
        parts.append(str(rng.choice(COMMON.split() if common else words)))
        if rng.random() < 0.12:
            parts[-1] += ","
    return " ".join(parts).strip(",") + "."


def spoken(text: str, voice: str, stretch: float, path: Path) -> list[dict]:
    """Say a text; its phones with times."""
    command = ["flite", "-voice", voice, "-psdur", "--setf", f"duration_stretch={stretch}"]
    done = subprocess.run([*command, "-t", text, "-o", path], capture_output=True, check=True)
    phones, start = [], 0.0
    for part in done.stdout.decode().split():
        name, end = part.split(":")
        phone = ARPABET.get(name, name.upper())
        phones.append({"phone": phone, "start_s": start, "end_s": float(end)})
        start = float(end)
    return phones


def write(
    folder: Path, name: str, words: list[str], voices: list[str], each: int, seed: int
) -> None:
    """Write sentences and their manifest."""
    rng = np.random.default_rng(seed)
    (folder / name).mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(each * len(voices)):
        voice, text = voices[number % len(voices)], sentence(words, rng)
        path = folder / name / f"{voice}-{number:04}.wav"
        phones = spoken(text, voice, float(rng.choice([0.85, 1.0, 1.2])), path)
        row = {"audio_filepath": f"{name}/{path.name}", "speaker": voice}
        row["text"] = " ".join(phone["phone"] for phone in phones)
        if name == "test":
            row |= {"words": text, "phones": phones}
        rows.append(json.dumps(row) + "\n")
    (folder / f"{name}.jsonl").write_text("".join(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dictionary", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--each", type=int, default=400, help="training sentences per voice")
    arguments = parser.parse_args()
    usable = sorted(
        word
        for word in Dictionary(arguments.dictionary).words()
        if word.isascii() and word.isalpha() and 3 <= len(word) <= 10 and word not in COMMON.split()
    )
    for name, voices, each in (
        ("train", VOICES, arguments.each),
        ("test", [*VOICES, UNHEARD], 15),
    ):
        own = [word for word in usable if part_of(word) == name]
        write(arguments.work, name, own, voices, each, seed=len(name))
