"""What each part of a recognizer's training bought; new speakers, noise, silence, useful audio, weights.

    python benchmarks/speech_study.py --work WORK [--data FSDD] [--python PYTHON] [--jobs 2] [--train-only]

Trains the recipe of `examples/speech/digits.toml`: three seeds on the official split; and for each speaker
that is left out, shorter, with and without each part (`speech_study_runs`). That takes about an hour of CPU
time; WORK keeps the models, and what is there is not trained again. PYTHON has PocketSphinx; without it the
script makes `.venv-sphinx`. Writes `benchmarks/results/speech_study.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.config import read_config
from holdfast.speech.recognize import SpeechModel, TrainConfig, read_audio, read_manifest
from holdfast.speech.recognize.features import log_features
from holdfast.speech.recognize.manifests import screen
from holdfast.speech.recognize.network import padded
from holdfast.speech.recognize.ranks import Ranks
from holdfast.speech.recognize.training import CtcTrainer
from measuring import limited, machine
from speech_study_runs import SPEAKERS, VARIANTS, Run, cpu_seconds, planned, train_all
from speech_study_scores import (
    edits_of,
    interval,
    rate,
    score_set,
    spelled,
    texts_of,
    write_digits,
)

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "speech_study.json"
VENV = HERE.parent / ".venv-sphinx"
PEERS = ["pocketsphinx==5.1.0", "soundfile", "scipy"]
ALPHAS, BETAS = (0.0, 0.5, 1.0), (-2.0, 0.0, 1.5, 4.0)
TUNED = 70
"""Strings of each speaker on which the weights are chosen; they share no recording with the others."""


class Study:
    """The trained models and their scores."""

    def __init__(self, work: Path) -> None:
        self.work, self.lm = work, write_digits(work / "digits.arpa")
        scored = [run for run in planned() if self.path(run.name).exists()]
        self.runs = {run.name: run for run in scored}
        """Trainings that are done."""
        self.seeds = [run.name for run in scored if run.data == "official"]

    def path(self, name: str) -> Path:
        """File of the scores of a run."""
        return self.work / "runs" / name / "scores.json"

    def scores(self, name: str) -> dict[str, Any]:
        """Scores of a run."""
        content: dict[str, Any] = json.loads(self.path(name).read_text())
        return content

    def model(self, name: str) -> SpeechModel:
        """The model of a run."""
        return SpeechModel.load(self.work / "runs" / name)

    def seconds(self, runs: Sequence[Run]) -> float:
        """Mean CPU seconds of trainings."""
        return sum(cpu_seconds(run, self.work) for run in runs) / len(runs)

    # --- Trainings -------------------------------------------------------------------------------

    def official(self) -> list[dict[str, Any]]:
        """A row per seed of the official split."""
        rows = []
        for name in self.seeds:
            found = self.scores(name)
            known = [found["known"]]
            rows.append(
                {
                    "seed": name[-1],
                    "greedy": spelled(rate(known, "greedy"), interval(known, "greedy")),
                    "ten words": spelled(rate(known, "digits"), interval(known, "digits")),
                    "words in six minutes without speech": found["silence"],
                    "CPU s of training": self.seconds([self.runs[name]]),
                }
            )
        return rows

    def left_out(self) -> list[dict[str, Any]]:
        """A row per speaker that is left out, and one of all."""
        rows = []
        for who in (*([each] for each in SPEAKERS), list(SPEAKERS)):
            row: dict[str, Any] = {"left out": who[0] if len(who) == 1 else "all four"}
            for variant in ("recipe", "no augmentation"):
                sets = [self.scores(f"{variant}-{speaker}")["left out"] for speaker in who]
                row[variant] = spelled(rate(sets, "greedy"), interval(sets, "greedy"))
                row[f"{variant}, ten words"] = spelled(
                    rate(sets, "digits"), interval(sets, "digits")
                )
            rows.append(row)
        return rows

    def parts(self) -> list[dict[str, Any]]:
        """A row per variant: what changes without a part, with the same speakers left out."""
        rows = []
        for variant in VARIANTS:
            speakers = [each for each in SPEAKERS if f"{variant}-{each}" in self.runs]
            if not speakers:
                continue
            names = [f"{variant}-{speaker}" for speaker in speakers]
            found = [self.scores(each) for each in names]
            recipe = [self.scores(f"recipe-{speaker}") for speaker in speakers]
            row: dict[str, Any] = {"training": variant, "left out": ", ".join(speakers)}
            for kind in ("left out", "known"):
                sets, others = ([each[kind] for each in part] for part in (found, recipe))
                more = rate(sets, "greedy") - rate(others, "greedy")
                ends = interval(sets, "greedy", others)
                row[f"{kind}: %"] = spelled(rate(sets, "greedy"), interval(sets, "greedy"))
                row[f"{kind}: above the recipe"] = spelled(more, ends, "+")
                if variant == "recipe":
                    row[f"{kind}: above the recipe"] = ""
            minutes = 6 * len(speakers)
            row["words without speech"] = f"{sum(e['silence'] for e in found)} in {minutes} min"
            row["CPU s"] = self.seconds([self.runs[each] for each in names])
            rows.append(row)
        return rows

    # --- Noise, padding, weights -----------------------------------------------------------------

    def noise(self) -> list[dict[str, Any]]:
        """A row per signal-to-noise ratio: the first model of the official split."""
        test, _ = read_manifest(self.work / "official" / "test.jsonl")
        model, rows = self.model("official-0"), []
        for snr_db in (None, 30.0, 20.0, 10.0, 5.0, 0.0):
            found = [score_set(model, test, self.lm, snr_db)]
            kinds = {"greedy": "greedy", "ten words": "digits"}
            texts = {
                name: spelled(rate(found, kind), interval(found, kind))
                for name, kind in kinds.items()
            }
            rows.append({"SNR dB": "clean" if snr_db is None else f"{snr_db:.0f}", **texts})
        return rows

    def useful(self) -> list[dict[str, Any]]:
        """Padding of the batches, and CPU seconds for an hour of audio."""
        run = self.runs["official-0"]
        path = self.work / "runs" / run.name / "config.json"
        config, model = read_config(path, TrainConfig, "the configuration"), self.model(run.name)
        utterances, _ = read_manifest(Path(config.data.train))
        screening = screen(utterances, model)
        trainer = CtcTrainer(config, model, screening.examples, [], path, Ranks())
        batches = trainer.batches(1)
        lengths = np.array([each.frames for each in screening.examples], dtype=float)
        lengths += trainer.pauses.sum(1) / config.features.hop
        mixed = np.random.default_rng(0).permutation(len(lengths))
        random = np.split(mixed, np.cumsum([len(each) for each in batches])[:-1])
        rows = [
            {"what": f"useful audio in batches of {config.training.batch}, {name}", "value": share}
            for name, share in (
                ("sorted by length", f"{100 * _useful(lengths, batches):.1f} %"),
                ("in random order", f"{100 * _useful(lengths, random):.1f} %"),
            )
        ]
        hours = screening.seconds * config.training.epochs / 3600
        costs = {"training, per epoch": cpu_seconds(run, self.work) / hours}
        test, _ = read_manifest(self.work / "official" / "test.jsonl")
        sounds = [read_audio(each.path, model.features.rate).samples for each in test]
        hours = sum(map(len, sounds)) / model.features.rate / 3600
        for name, settings in {"greedy": {"beam": 1}, "beam 100": {}}.items():
            begin = time.process_time()
            texts_of(model, model.decoder(**settings), sounds)
            costs[f"whole files, 16 at once, {name}"] = (time.process_time() - begin) / hours
        streams = json.loads((HERE / "results" / "speech_streams.json").read_text())
        for row in streams["tables"][1]["rows"]:
            name = f"{row['streams']} streams, beam 100"
            costs[name] = row["CPU s per hour"]
            occupied = {"what": f"streams per batch, {name}", "value": row["streams per batch"]}
            rows.append({**occupied, "value": f"{occupied['value']:g}"})
        return rows + [
            {"what": f"CPU s for an hour of audio: {name}", "value": f"{cost:.0f}"}
            for name, cost in costs.items()
        ]

    def weights(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Rates over alpha and beta on one half of the strings of new speakers, and on the other half."""
        halves: list[list[tuple[SpeechModel, dict[str, Any], list[str]]]] = [[], []]
        for speaker in SPEAKERS:
            model = self.model(f"recipe-{speaker}")
            test, _ = read_manifest(self.work / speaker / "test.jsonl")
            for half, part in zip(halves, (test[:TUNED], test[TUNED:]), strict=True):
                outputs = {str(k): _outputs(model, each.path) for k, each in enumerate(part)}
                half.append((model, outputs, [each.text for each in part]))

        def error(half: int, alpha: float, beta: float) -> float:
            sets = []
            for model, outputs, texts in halves[half]:
                decoder = model.decoder(lm=self.lm, alpha=alpha, beta=beta)
                edits = edits_of(texts, decoder.decode(outputs).texts)
                sets.append({"words": [len(each.split()) for each in texts], "edits": edits})
            return rate(sets, "edits")

        grid = {(alpha, beta): error(0, alpha, beta) for alpha in ALPHAS for beta in BETAS}
        rows = [
            {"alpha": f"{alpha:g}", **{f"beta {beta:g}": grid[alpha, beta] for beta in BETAS}}
            for alpha in ALPHAS
        ]
        best = min(grid, key=lambda each: grid[each])
        return rows, {"best": best, "test": error(1, *best), "default": error(1, 0.5, 1.5)}

    def rival(self, python: Path) -> dict[str, Any]:
        """PocketSphinx on the official test set: rate, interval, CPU seconds for an hour."""
        manifest = self.work / "official" / "test.jsonl"
        script = [python, HERE / "speech_study_sphinx.py", manifest]
        found = json.loads(subprocess.run(script, check=True, capture_output=True).stdout)
        truth = [each.text for each in read_manifest(manifest)[0]]
        words = [len(each.split()) for each in truth]
        sets = [{"words": words, "edits": edits_of(truth, found["texts"])}]
        spoken = spelled(rate(sets, "edits"), interval(sets, "edits"))
        return {"value": rate(sets, "edits"), "spelled": spoken, "hour": found["CPU s per hour"]}


def _useful(lengths: np.ndarray, batches: Sequence[Any]) -> float:
    """Share of the frames of padded batches that are no padding."""
    return float(
        sum(lengths[b].sum() for b in batches) / sum(lengths[b].max() * len(b) for b in batches)
    )


def _outputs(model: SpeechModel, path: Path) -> np.ndarray:
    """Ln P [frames, labels] of a file."""
    features = log_features(read_audio(path, model.features.rate).samples, model.features)
    with torch.inference_mode():
        found, _ = model.network.eval()(*padded([features]))
    return found[0].numpy()


def sphinx_python(given: Path | None) -> Path:
    """A Python that has PocketSphinx."""
    python = given or VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", *PEERS], check=True)
    return python


def main() -> None:
    """Train, measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared/data/speech/fsdd")
    parser.add_argument("--work", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--python", type=Path, help="an interpreter that has PocketSphinx")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--only", default="", help="train what begins like this, and nothing else")
    parser.add_argument("--train-only", action="store_true", help="train, and measure nothing")
    parser.add_argument("--no-train", action="store_true", help="measure what is trained")
    given = parser.parse_args()
    where = machine()
    runs = [run for run in planned() if run.name.startswith(given.only) and not given.no_train]
    train_all(runs, given.work, given.data, given.jobs)
    if given.only or given.train_only:
        return
    torch.set_num_threads(1)
    study = Study(given.work)
    sphinx = study.rival(sphinx_python(given.python))
    official = [study.scores(name)["known"] for name in study.seeds]
    bare, ours = (
        [study.scores(f"{variant}-{speaker}")["left out"] for speaker in SPEAKERS]
        for variant in ("no augmentation", "recipe")
    )
    gain = 100 * (1 - rate(ours, "greedy") / rate(bare, "greedy"))
    surface, chosen = study.weights()
    model = study.model("official-0")
    size = sum(each.numel() for each in model.network.parameters())
    trainings = study.seconds([study.runs[name] for name in study.seeds])
    silence = sum(study.scores(name)["silence"] for name in study.seeds)
    seeds = f"{len(official)} seeds"
    limits = [
        limited(f"official split, greedy, mean of {seeds}", rate(official, "greedy"), "%", 3),
        limited(f"official split, ten words, mean of {seeds}", rate(official, "digits"), "%", 1.5),
        limited("speakers left out, greedy, mean of four", rate(ours, "greedy"), "%", 20),
        limited("speakers left out, ten words, mean of four", rate(ours, "digits"), "%", 20),
        {**limited("errors that augmentation saves on them", gain, "%", 20), "least": True},
        limited(f"words in {6 * len(official)} minutes without speech", silence, "words", 0),
        limited("parameters", size, "", 600_000),
        limited("training", trainings / 60, "CPU minutes", 10),
        limited("PocketSphinx, official test set", sphinx["value"], "%"),
    ]
    ours_spelled = [
        spelled(rate(official[:1], kind), interval(official[:1], kind))
        for kind in ("greedy", "digits")
    ]
    result = {
        "title": "Training a recognizer: what each part bought",
        "script": "benchmarks/speech_study.py",
        "input": "strings of one to six digits of the Free Spoken Digit Dataset (four speakers); "
        "word error rates with 95 % intervals",
        "comparisons": [],
        "limits": limits,
        "figures": {},
        "tables": [
            {"caption": "Official split", "rows": study.official()},
            {"caption": "Speakers left out", "rows": study.left_out()},
            {"caption": "Training without a part", "rows": study.parts()},
            {"caption": "White noise", "rows": study.noise()},
            {"caption": "Useful audio", "rows": study.useful()},
            {"caption": "Weights of the language model", "rows": surface},
            {
                "caption": "PocketSphinx",
                "rows": [
                    {"recognizer": "seed 0, greedy", "word error rate": ours_spelled[0]},
                    {"recognizer": "seed 0, ten words", "word error rate": ours_spelled[1]},
                    {"recognizer": "PocketSphinx 5.1", "word error rate": sphinx["spelled"]},
                ],
            },
        ],
        "notes": [
            "Intervals: bootstrap over utterances (2,000 draws, percentiles), within each speaker and "
            "seed; other speakers and seeds differ by more. Differences are paired by utterance.",
            "Speakers left out: each run has a seed of its own, one run per speaker and variant.",
            f"Weights of the language model, chosen on {4 * TUNED} strings: alpha "
            f"{chosen['best'][0]:g}, beta {chosen['best'][1]:g}. On as many others: "
            f"{chosen['test']:.1f} %, with the defaults {chosen['default']:.1f} %. "
            "All words are equally probable: beta - 2.4 alpha is what counts.",
            "PocketSphinx: English model for 16 kHz, to which the 8 kHz were resampled, so half of "
            "its bands are empty; a grammar of digits; "
            f"{sphinx['hour']:.0f} CPU s for an hour of audio.",
        ],
        "machine": where,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "peers": PEERS[0]},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
