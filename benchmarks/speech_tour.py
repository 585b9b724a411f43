"""Both rooms in one tour: is what the voice says recognized? And does memory grow with the text?

    python benchmarks/speech_tour.py [--strings N]

Strings of three to five digits are spoken by flite, on whose voice slt the shipped voice was trained, by
flite with the 256 levels of mu-law that the voice has, and by the voice. The shipped recognizer of digits,
which has heard four men on the telephone, and the shipped aligner, which has heard flite, judge all three.
What flite with mu-law gets is the ceiling. Writes `benchmarks/results/speech_tour.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch
from rapidfuzz.distance import Levenshtein

from holdfast.speech.recognize import read_audio, recognize
from holdfast.speech.speak import Voice, align, speak
from holdfast.speech.speak.voice import compress, expand
from measuring import limited, machine, run

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "speech"
RESULT = HERE / "results" / "speech_tour.json"
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
KINDS = {"flite": "flite", "ceiling": "flite, mu-law", "voice": "the voice"}
SENTENCE = "The captain watched the old river from the bridge, and nobody said a word. "


def say(texts: list[str], folder: Path) -> None:
    """Write every text three times."""
    voice = Voice.load(EXAMPLES / "voice")
    for number, text in enumerate(texts):
        listed = ", ".join(text.split()) + "."
        paths = {kind: folder / f"{kind}-{number}.wav" for kind in KINDS}
        command = ["flite", "-voice", "slt", "-t", listed, "-o", paths["flite"]]
        subprocess.run(command, check=True)
        samples = read_audio(paths["flite"], voice.sound.rate).samples
        soundfile.write(paths["ceiling"], expand(compress(samples)), voice.sound.rate)
        speak(voice, listed, paths["voice"], seed=number)


def judged(kind: str, texts: list[str], folder: Path) -> dict[str, object]:
    """A row: errors of the recognizer, verdicts of the aligner."""
    paths = [folder / f"{kind}-{number}.wav" for number in range(len(texts))]
    heard = recognize(EXAMPLES / "model", paths).transcripts
    pairs = [
        (text.split(), each.best.text.split()) for text, each in zip(texts, heard, strict=True)
    ]
    errors = sum(Levenshtein.distance(said, found) for said, found in pairs)
    found = [align(path, text) for path, text in zip(paths, texts, strict=True)]
    other = [align(path, text) for path, text in zip(paths, texts[1:] + texts[:1], strict=True)]
    return {
        "speech": KINDS[kind],
        "words": sum(len(said) for said, _ in pairs),
        "word error rate, %": round(100 * errors / sum(len(said) for said, _ in pairs), 1),
        "aligner: matches": sum(each.matches is True for each in found),
        "cannot tell": sum(each.matches is None for each in found),
        "does not match": sum(each.matches is False for each in found),
        "median score": round(float(np.median([each.score for each in found])), 2),
        "of another text": round(float(np.median([each.score for each in other])), 2),
    }


def memory(sentences: int) -> dict[str, object]:
    """Peak memory of the command for a text of so many sentences."""
    program = "from holdfast.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        command = [sys.executable, "-c", program, "speech", "speak", EXAMPLES / "voice"]
        done = run([*command, SENTENCE * sentences, "-o", path])
        seconds = soundfile.info(path).duration
    return {
        "sentences": sentences,
        "seconds of sound": round(seconds, 1),
        "peak MB": round(done.peak_mb),
        "CPU seconds": round(done.cpu_seconds or 0.0, 1),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strings", type=int, default=30)
    count = parser.parse_args().strings
    torch.set_num_threads(1)
    where, rng = machine(), np.random.default_rng(0)
    texts = [" ".join(rng.choice(DIGITS, rng.integers(3, 6))) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        say(texts, Path(folder))
        rows = [judged(kind, texts, Path(folder)) for kind in KINDS]
    sizes = [memory(sentences) for sentences in (1, 4, 16)]
    growth = sizes[-1]["peak MB"] - sizes[0]["peak MB"]  # type: ignore[operator]
    result = {
        "title": "Speech: from text to sound and back",
        "script": "benchmarks/speech_tour.py",
        "input": f"{count} strings of digits; voice, recognizer and aligner of examples/speech",
        "comparisons": [],
        "limits": [limited("memory that a minute takes more than four seconds", growth, "MB", 20)],
        "figures": {},
        "tables": [
            {"caption": "Is what is said recognized?", "rows": rows},
            {"caption": "Memory of speaking", "rows": sizes},
        ],
        "notes": ["The word error rate of the voice has flite's with mu-law as its ceiling."],
        "machine": where,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
