"""Make strings of spoken digits, and manifests, from the Free Spoken Digit Dataset.

    python digits.py FSDD WORK        # FSDD: folder with fsdd_*.tar.gz or *.wav
    python digits.py FSDD WORK --left-out theo

Recordings 0 to 4 of each speaker and digit are the official test set, 5 to 49 the training set. A string is
one to six recordings of one speaker with short pauses; a recording is only in strings of its own set.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import soundfile

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
RATE = 8000
TEST = range(5)
"""Indices of the official test set."""


def recordings(folder: Path) -> dict[str, np.ndarray]:
    """Name such as ``7_theo_32`` -> samples."""
    found = {file.stem: soundfile.read(file)[0] for file in sorted(folder.rglob("*.wav"))}
    for archive in sorted(folder.glob("fsdd_*.tar.gz")):
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.endswith(".wav"):
                    data = io.BytesIO(members.extractfile(member).read())
                    found[Path(member.name).stem] = soundfile.read(data)[0]
    return found


def pause(rng: np.random.Generator) -> int:
    """Samples of a pause: 50 to 200 ms, or up to 2 s in one of six."""
    long = rng.random() < 1 / 6
    return int(rng.uniform(0.05, 2 if long else 0.2) * RATE)


def write_strings(
    folder: Path,
    name: str,
    clips: dict[str, np.ndarray],
    count: int,
    longest: int,
    rng: np.random.Generator,
) -> None:
    """Write `count` strings and their manifest; every clip is used before one is used again."""
    speakers = sorted({clip.split("_")[1] for clip in clips})
    waiting: dict[str, list[str]] = {speaker: [] for speaker in speakers}
    rows = []
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        speaker = speakers[number % len(speakers)]
        own = sorted(clip for clip in clips if clip.split("_")[1] == speaker)
        parts, words = [], []
        for _ in range(rng.integers(1, longest + 1)):
            if not waiting[speaker]:
                waiting[speaker] = rng.permutation(own).tolist()
            clip = waiting[speaker].pop()
            parts += [clips[clip], np.zeros(pause(rng))]
            words.append(WORDS[int(clip[0])])
        sound = np.concatenate([np.zeros(pause(rng)), *parts])
        # Quiet noise, 20 to 60 dB below the digits.
        rms = np.sqrt(np.mean(np.concatenate(parts[::2]) ** 2))
        sound += rng.normal(0, rms * 10 ** rng.uniform(-3, -1), len(sound))
        path = f"{name}/{speaker}-{number:04}.wav"
        soundfile.write(folder / path, sound, RATE, "PCM_16")
        row = {"audio_filepath": path, "text": " ".join(words), "speaker": speaker}
        rows.append({**row, "duration": len(sound) / RATE})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(lines)


def main() -> None:
    """Write train.jsonl and test.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fsdd", type=Path, help="folder of the dataset")
    parser.add_argument("work", type=Path, help="folder to write to")
    parser.add_argument("--left-out", default="", help="speaker to test on, not trained on")
    parser.add_argument("--train", type=int, default=1500, help="number of training strings")
    parser.add_argument("--longest", type=int, default=6, help="most digits of a training string")
    parser.add_argument("--test", type=int, default=240, help="number of test strings")
    options = parser.parse_args()
    clips = recordings(options.fsdd)
    official = {name: int(name.split("_")[2]) in TEST for name in clips}
    speakers = {name: name.split("_")[1] for name in clips}
    if options.left_out:
        train = [n for n in clips if speakers[n] != options.left_out and not official[n]]
        test = [n for n in clips if speakers[n] == options.left_out]
    else:
        train = [n for n in clips if not official[n]]
        test = [n for n in clips if official[n]]
    rng = np.random.default_rng(0)
    sets = ("train", train, options.train, options.longest), ("test", test, options.test, 6)
    for name, chosen, count, longest in sets:
        write_strings(options.work, name, {n: clips[n] for n in chosen}, count, longest, rng)


if __name__ == "__main__":
    main()
