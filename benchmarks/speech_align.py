"""Phonemes and alignment: error rates on held-out words, boundaries against flite's own times.

    python benchmarks/speech_align.py WORK/final.jsonl [--phones MODEL] [--librivox FOLDER]

WORK is made by examples/speech/aligner.py. MODEL is the same network trained with `network.bigrams = false`
(CTC over single phones). FOLDER has recordings of LibriVox with a machine's alignment (*.phone.json of
pocketsphinx's test data): agreement with it is not truth. Writes `benchmarks/results/speech_align.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from holdfast.speech.recognize import read_audio
from holdfast.speech.speak import Phonemizer
from holdfast.speech.speak.alignment import DIFFERS, MATCHES, align_samples
from holdfast.speech.speak.pronunciation import Word, model_folder
from holdfast.speech.speak.segmentation import Aligner
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "speech_align.json"
UNHEARD = "awb"
"""Voice that the training speech does not have."""
VOICES = {True: "voices heard in training", False: "another voice"}


def boundaries(model: Aligner, rows: list[dict], folder: Path) -> dict[bool, list[np.ndarray]]:
    """Errors in ms of each boundary between phones, a sentence each; the phones are flite's.

    Voices that training had are under True, the other is under False.
    """
    errors: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for row in rows:
        truth = row["phones"]
        said = tuple(each["phone"] for each in truth[1:-1])  # silence at both ends is found
        sound = read_audio(folder / row["audio_filepath"], model.features.rate)
        word = Word("all", said, (said,), "dictionary")
        _, phones, _ = align_samples(model, sound.samples, [word])
        found = {each.start_s for each in phones}
        if len(phones) == len(truth):
            gaps = [
                abs(a.start_s - b["start_s"]) for a, b in zip(phones[1:], truth[1:], strict=True)
            ]
        else:  # a silence at an end was not found
            gaps = [min(abs(b["start_s"] - a) for a in found) for b in truth[1:]]
        errors[row["speaker"] != UNHEARD].append(1000 * np.array(gaps))
    return errors


def better(pairs: list[np.ndarray], phones: list[np.ndarray]) -> dict[str, object]:
    """By how many ms errors are smaller with pairs; 95 % intervals, sentences drawn again."""
    rng, quantile = np.random.default_rng(0), {"median": 0.5, "90 %": 0.9}

    def gains(chosen: np.ndarray) -> list[float]:
        one, two = (np.concatenate([each[k] for k in chosen]) for each in (phones, pairs))
        return [float(np.quantile(one, q) - np.quantile(two, q)) for q in quantile.values()]

    drawn = [gains(rng.integers(0, len(pairs), len(pairs))) for _ in range(2000)]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    found = zip(quantile, gains(np.arange(len(pairs))), low, high, strict=True)
    return {f"{name}, ms": f"{gain:.1f} ({a:.1f} to {b:.1f})" for name, gain, a, b in found}


def quantiles(name: str, sentences: list[np.ndarray]) -> dict[str, object]:
    """One row of a table."""
    errors = np.concatenate(sentences)
    p50, p90, p99 = np.quantile(errors, [0.5, 0.9, 0.99])
    row = {"median ms": p50, "90 % ms": p90, "99 % ms": p99}
    return {"speech": name, "boundaries": len(errors)} | {k: round(v, 1) for k, v in row.items()}


def verdicts(model: Aligner, phonemizer: Phonemizer, rows: list[dict], folder: Path) -> list[dict]:
    """What is said of texts that are right, of those of another sentence, and of one wrong word."""
    texts = {"right": 0, "of another sentence": 7}
    found = []
    for name, shift in texts.items():
        scores = []
        for place, row in enumerate(rows):
            text = rows[(place + shift) % len(rows)]["words"]
            words = [each for each in phonemizer(text) if each.source != "pause"]
            sound = read_audio(folder / row["audio_filepath"], model.features.rate)
            *_, score = align_samples(model, sound.samples, words)
            scores.append(score)
        counts = {
            "matches": sum(each >= MATCHES for each in scores),
            "cannot tell": sum(DIFFERS <= each < MATCHES for each in scores),
            "does not match": sum(each < DIFFERS for each in scores),
        }
        low, middle, high = np.quantile(scores, [0.05, 0.5, 0.95])
        found.append(
            {"text": name, **counts, "score 5-50-95 %": f"{low:.2f} {middle:.2f} {high:.2f}"}
        )
    return found


def librivox(model: Aligner, phonemizer: Phonemizer, folder: Path) -> tuple[list[dict], list[dict]]:
    """Agreement of the starts of words with the machine alignment, in ms; and the scores."""
    gaps, rows = [], []
    for path in sorted(folder.glob("*.phone.json")):
        content = json.loads(path.read_text())
        truth = [each for each in content["w"] if each["t"][0] not in "<["]
        words = [each for each in phonemizer(content["t"]) if each.source != "pause"]
        wave = folder / path.name.replace(".phone.json", ".wav")
        sound = read_audio(wave, model.features.rate)
        said, _, score = align_samples(model, sound.samples, words)
        name = path.name.split("_")[-1].removesuffix(".phone.json")
        rows.append({"recording": name, "score": round(score, 3)})
        if [each["t"].partition("(")[0] for each in truth] == [each.word for each in said]:
            gaps += [1000 * abs(a.start_s - b["b"]) for a, b in zip(said, truth, strict=True)]
    return [quantiles("LibriVox, starts of words", [np.array(gaps)])], rows


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("test", type=Path)
    parser.add_argument("--phones", type=Path, help="the network trained with single phones")
    parser.add_argument("--librivox", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    where = machine()
    rows = [json.loads(line) for line in given.test.read_text().splitlines()]
    folder = given.test.parent
    model, phonemizer = Aligner.load(model_folder(None, "aligner")), Phonemizer()
    begin = time.process_time()
    found = boundaries(model, rows, folder)
    cpu = time.process_time() - begin
    table = [
        quantiles(f"pairs of phones, {VOICES[heard]}", found[heard]) for heard in (True, False)
    ]
    tables = [{"caption": "Error of boundaries between phones against flite", "rows": table}]
    if given.phones:
        single = boundaries(Aligner.load(given.phones), rows, folder)
        table += [quantiles(f"single phones, {VOICES[heard]}", single[heard]) for heard in single]
        gain = [{"speech": VOICES[k]} | better(found[k], single[k]) for k in (True, False)]
        caption = "Smaller errors with pairs of phones than with single phones"
        tables.append({"caption": caption, "rows": gain})
    if given.librivox:
        agreement, scores = librivox(model, phonemizer, given.librivox)
        caption = "Difference from pocketsphinx's alignment (10 ms grid; not truth)"
        tables.append({"caption": caption, "rows": agreement})
        tables.append({"caption": "Scores of real speech", "rows": scores})
    heard_rows = [row for row in rows if row["speaker"] != UNHEARD]
    said = verdicts(model, phonemizer, heard_rows, folder)
    tables.append({"caption": "Is the text what is said? (held-out sentences)", "rows": said})
    about = json.loads((model_folder(None, "phonemes") / "model.json").read_text())
    score = about["score"]
    g2p = [
        {"stress": "counts", "words": score["words"], "PER": score["per"], "WER": score["wer"]},
        {
            "stress": "does not count",
            "words": score["words"],
            "PER": score["per_without_stress"],
            "WER": score["wer_without_stress"],
        },
    ]
    for row in g2p:
        row |= {name: f"{100 * row[name]:.1f} %" for name in ("PER", "WER")}
    tables.insert(
        0, {"caption": "Letters to phones, words of CMUdict not in training", "rows": g2p}
    )
    begin, words = time.process_time(), ["unbelievable", "zyxomma", "holdfast", "quartermain"] * 25
    for word in words:
        phonemizer.network.best(word)
    per_word = 1000 * (time.process_time() - begin) / len(words)
    seconds = sum(row["phones"][-1]["end_s"] for row in rows)
    limits = [
        limited("phone error rate, stress counts", round(100 * score["per"], 2), "%", 9),
        limited("word error rate, stress counts", round(100 * score["wer"], 2), "%", 38),
        limited(
            "word error rate, without stress", round(100 * score["wer_without_stress"], 2), "%", 38
        ),
        limited("median boundary error", table[0]["median ms"], "ms", 15),
        limited("90 % of boundary errors", table[0]["90 % ms"], "ms", 40),
    ]
    if given.phones:
        for name in ("median ms", "90 % ms"):
            ratio = float(table[0][name]) / float(table[2][name])
            limits.append(limited(f"{name}, pairs / single phones", ratio, "x", 1))
    result = {
        "title": "Phonemes and alignment",
        "script": "benchmarks/speech_align.py",
        "input": "models of examples/speech; flite's speech of words that training did not have",
        "comparisons": [],
        "limits": limits,
        "figures": {
            "CPU ms per word of the network, beam 8": round(per_word, 2),
            "CPU seconds per second of audio, alignment": round(cpu / seconds, 4),
        },
        "tables": tables,
        "notes": ["The times of flite are those with which it synthesizes; the phones are given."],
        "machine": where,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
