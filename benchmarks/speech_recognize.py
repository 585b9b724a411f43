"""Decoding of CTC outputs beside pyctcdecode and flashlight-text: CPU seconds, word error rates, hotwords.

    python benchmarks/speech_recognize.py [--python PYTHON] [--utterances N] [--timed N]

PYTHON has the peers, which need NumPy 1; without it the script makes `.venv-ctc`. Sentences of Python's
documentation become outputs like those of a model with letters (`speech_recognize_inputs`), a clear and a
noisy set; the trigram model is of other sentences. Every contender decodes the first sentences of each set
five times, after one that loads or compiles what it needs; CPU seconds count, for the machine may be busy.
Error rates are those of all sentences.
Writes `benchmarks/results/speech_recognize.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import speech_recognize_inputs as inputs
from holdfast.speech.recognize import Decoder
from measuring import compared, limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "speech_recognize.json"
VENV = HERE.parent / ".venv-ctc"
PEERS = ["pyctcdecode==0.5.0", "flashlight-text==0.0.7", "kenlm==0.3.0"]
SETS = {"clear": 2.5, "noisy": 1.0}
"""Set -> by how much a letter stands out at least."""


def word_error_rate(truth: list[str], texts: list[str]) -> float:
    """Percent of the words."""
    errors = words = 0
    for true, found in zip(truth, texts, strict=True):
        one, two = true.split(), found.split()
        row = list(range(len(two) + 1))
        for i, word in enumerate(one, 1):
            corner, row[0] = row[0], i
            for j, other in enumerate(two, 1):
                cost = corner + (word != other)
                corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, cost)
        errors, words = errors + row[-1], words + len(one)
    return 100 * errors / words


def ours(folder: Path, with_lm: bool, with_hotwords: bool, timed: int) -> tuple[float, list[str]]:
    """Median CPU seconds of the first utterances, and the texts of all."""
    with np.load(folder / "logits.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    decoder = Decoder(
        folder / "labels.json",
        lm=folder / "words.arpa" if with_lm else None,
        hotwords=(folder / "hotwords.txt").read_text().split() if with_hotwords else (),
    )
    first = dict(list(arrays.items())[:timed])
    decoder.decode(dict(list(arrays.items())[:1]))
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        decoder.decode(first)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds), decoder.decode(arrays).texts


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--utterances", type=int, default=600)
    parser.add_argument("--timed", type=int, default=20)
    given = parser.parse_args()
    python = given.python
    if python is None:
        python = VENV / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
            subprocess.run([python, "-m", "pip", "-q", "install", *PEERS], check=True)
    where = machine()
    comparisons, limits, rates, frames, words = [], [], [], 0, 0

    def peer(folder: Path, name: str, lm: bool, hotwords: bool = False) -> tuple[float, list[str]]:
        contender = [name, *("yes" if each else "no" for each in (lm, hotwords)), str(given.timed)]
        script = [python, "-W", "ignore", HERE / "speech_recognize_peers.py", folder, *contender]
        made = subprocess.run(script, check=True, capture_output=True, text=True)
        found = json.loads(made.stdout.splitlines()[-1])
        return found["cpu_s"], found["texts"]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for which, sure_from in SETS.items():
            truth = inputs.write(folder, given.utterances, sure_from)
            words = sum(len(text.split()) for text in truth)
            with np.load(folder / "logits.npz") as stored:
                frames = sum(len(stored[each]) for each in stored.files[: given.timed])
            for lm in (False, True):
                what = f"{which}, {'trigrams' if lm else 'no language model'}"
                mine, texts = ours(folder, lm, False, given.timed)
                rate = word_error_rate(truth, texts)
                row = {"set": what, "holdfast": rate}
                for rival, target in (("pyctcdecode", 20.0), ("flashlight", 1.0)):
                    seconds, found = peer(folder, rival, lm)
                    row[rival] = word_error_rate(truth, found)
                    comparisons.append(compared(what, mine, rival, seconds, target))
                rates.append(row)
                worse = rate - row["pyctcdecode"]
                limits.append(
                    limited(f"{what}: word error rate above pyctcdecode's", worse, "points", 0.1)
                )
                if lm:
                    many, _ = ours(folder, lm, True, given.timed)
                    share = many / mine
                    limits.append(limited(f"{what}: 200 hotwords over none", share, "x", 1.3))
                    seconds, _ = peer(folder, "pyctcdecode", lm, hotwords=True)
                    what += ", 200 hotwords"
                    comparisons.append(compared(what, many, "pyctcdecode", seconds))
    result = {
        "title": "Decoding of CTC outputs",
        "script": "benchmarks/speech_recognize.py",
        "input": f"{given.utterances} sentences ({words:,} words) of Python's documentation as outputs of "
        f"29 labels, made with confusions (chosen, no real model), times of the first {given.timed} "
        f"({frames:,} frames); beam 100; CPU seconds",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {},
        "tables": [{"caption": "Word error rate (%)", "rows": rates}],
        "notes": [
            "All have alpha 0.5, beta 1.5, labels from ln P = -5 on and a margin of 10.",
            "flashlight-text: log-add; with the language model its lexicon decoder, which writes only "
            "words of the model; it has no hotwords.",
            f"The sets differ in how much a letter stands out (seed {inputs.SEED}).",
        ],
        "machine": where,
        "versions": {"peers": ", ".join(PEERS), "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
