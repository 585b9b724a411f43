"""Make training and test speech for the aligner with flite (https://github.com/festvox/flite).

    python aligner.py DICTIONARY WORK          # DICTIONARY: CMUdict, plain or compressed
    python aligner.py DICTIONARY WORK --delay MODEL

Sentences are random words of the dictionary among common short words; test sentences have words that no
training sentence has. A line of WORK/*.jsonl has the phones as its text, the words, and flite's own
times. flite says the training sentences in three voices, the test sentences also in a fourth, which
training does not hear. There are two test sets: constants of the aligner were chosen with `test.jsonl`
in view, so figures are those of `final.jsonl`. The second command measures on training sentences by how
much the outputs of a trained MODEL are late, and writes it into its model.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np

from holdfast.speech.recognize import read_audio
from holdfast.speech.speak import Word
from holdfast.speech.speak.alignment import align_samples
from holdfast.speech.speak.dictionary import part_of, read_dictionary
from holdfast.speech.speak.segmentation import Aligner

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
        row |= {"words": text, "phones": phones}
        rows.append(json.dumps(row) + "\n")
    (folder / f"{name}.jsonl").write_text("".join(rows))


def write_delay(folder: Path, model: Path) -> None:
    """Measure medians of found less true starts on 60 training sentences, of a model without delays."""
    aligner, late, silences = Aligner.load(model), [], []
    for line in (folder / "train.jsonl").read_text().splitlines()[:60]:
        row = json.loads(line)
        true = row["phones"]
        said = tuple(each["phone"] for each in true[1:-1])
        sound = read_audio(folder / row["audio_filepath"], aligner.features.rate)
        _, found, _ = align_samples(aligner, sound.samples, [Word("", said, (said,), "dictionary")])
        for a, b in zip(found[1:], true[1:], strict=True):
            (silences if a.phone == "SIL" else late).append(a.start_s - b["start_s"])
    delay_s = float(np.median(late))
    about = json.loads((model / "model.json").read_text())
    about["training"]["delay_s"] = round(delay_s, 4)
    about["training"]["silence_delay_s"] = round(float(np.median(silences)) - delay_s, 4)
    (model / "model.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{1000 * delay_s:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dictionary", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--each", type=int, default=400, help="training sentences per voice")
    parser.add_argument("--delay", type=Path, metavar="MODEL", help="measure how late it is")
    arguments = parser.parse_args()
    if arguments.delay:
        write_delay(arguments.work, arguments.delay)
        raise SystemExit
    usable = sorted(
        word
        for word in read_dictionary(arguments.dictionary)
        if word.isascii() and word.isalpha() and 3 <= len(word) <= 10 and word not in COMMON.split()
    )
    for name, part, voices, each in (
        ("train", "train", VOICES, arguments.each),
        ("test", "test", [*VOICES, UNHEARD], 15),
        ("final", "test", [*VOICES, UNHEARD], 30),
    ):
        own = [word for word in usable if part_of(word) == part]
        write(arguments.work, name, own, voices, each, seed=len(name))
