"""Lists of utterances (NeMo and Lhotse JSON lines, Kaldi folders), and which can be used for what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.errors import InputError
from holdfast.opening import open_source
from holdfast.progress import track
from holdfast.speech.recognize.audio import Array, Audio, read_audio
from holdfast.speech.recognize.features import log_features
from holdfast.speech.recognize.labels import clean_text, frames_needed
from holdfast.speech.recognize.model import SpeechModel

MOST_REJECTED = 0.1
"""Share of the entries of a manifest that may be unusable."""
_KALDI = "wav.scp", "utt2spk", "segments"
"""Tables of a Kaldi folder; the first must be there."""
Excluded = dict[str, str]
"""``{"utterance", "code", "reason"}``: why an utterance, or a line, is not used."""


@dataclass(frozen=True)
class Utterance:
    """A part of an audio file and what is said in it."""

    id: str
    """Name, unique in a Kaldi folder or Lhotse manifest; else file and start."""
    path: Path
    """Audio file."""
    text: str
    """Transcript in Unicode's normal form C, single spaces."""
    speaker: str = ""
    """Empty: not stated."""
    start_s: float = 0.0
    """Where it begins in the file."""
    duration_s: float | None = None
    """None: to the end of the file."""


def read_manifest(path: str | Path) -> tuple[list[Utterance], list[Excluded]]:
    """Read a manifest; relative audio paths begin at its folder, or else at the working directory.

    Args:
        path: a Kaldi folder (wav.scp, text, and utt2spk and segments where there are any), or JSON
            lines of NeMo or of Lhotse's cuts, compressed or not.

    Returns:
        The utterances, and rows of the lines that are not usable.

    Raises:
        InputError: ``unreadable``, ``no-data``, or ``too-many-rejects``: more than a tenth of the lines.
    """
    path = Path(path)
    lines, read = path, _json_line
    if path.is_dir():
        tables = [_kaldi_table(path / name) for name in _KALDI]
        lines, read = path / "text", partial(_kaldi, tables)
    utterances, excluded = [], []
    for number, line in _lines(lines):
        try:
            utterances += [_utterance(row, lines.parent) for row in read(line)]
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else f"not an utterance: {error}"
            row = {"utterance": f"line {number}", "code": "invalid-value", "reason": what}
            excluded.append(row)
    if not utterances and not excluded:
        raise InputError("no utterances", code="no-data", path=path, expected="audio and text")
    check_share(excluded, len(utterances) + len(excluded), str(path))
    return utterances, excluded


def usable(
    utterances: Sequence[Utterance], rate: int, excluded: list[Excluded], shortest: int = 1
) -> Iterator[tuple[Utterance, Audio]]:
    """Read the audio of utterances, with progress.

    Args:
        utterances: of a manifest.
        rate: samples per second.
        excluded: gets a row for each utterance whose audio cannot be used.
        shortest: samples that it must have.
    """
    with track("reading audio", len(utterances), "utterances") as tracker:
        for each in utterances:
            try:
                audio = read_audio(each.path, rate, each.start_s, each.duration_s)
            except InputError as error:
                excluded.append(
                    excluded_row(each, error.code, f"{error.problem}: {error.found or each.path}")
                )
            else:
                if len(audio.samples) >= shortest:
                    yield each, audio
                else:
                    reason = f"shorter than one frame: {len(audio.samples)} samples"
                    excluded.append(excluded_row(each, "empty-input", reason))
            tracker.advance(1)


def excluded_row(utterance: Utterance, code: str, reason: str) -> Excluded:
    """An utterance that is not used."""
    return {"utterance": utterance.id, "code": code, "reason": reason}


def check_share(excluded: Sequence[Excluded], total: int, place: str) -> None:
    """Refuse a set of which too much, or all, cannot be used.

    Raises:
        InputError: ``too-many-rejects``.
    """
    if len(excluded) > MOST_REJECTED * total or len(excluded) == total:
        raise InputError(
            f"{len(excluded):,} of {total:,} utterances cannot be used",
            code="too-many-rejects",
            place=place,
            found="; ".join(f"{row['utterance']}: {row['reason']}" for row in excluded[:3]),
            expected=f"at most {MOST_REJECTED:.0%}",
            remedy="correct the manifest or the alphabet",
        )


def check_disjoint(
    train: Sequence[Utterance], test: Sequence[Utterance], shared_speakers: bool = False
) -> bool:
    """Refuse utterances, and speakers, that are in the training set and in the test set.

    Args:
        train: utterances of the training set.
        test: utterances of the test set.
        shared_speakers: whether speakers may be in both.

    Returns:
        Whether speakers are known to be disjoint.

    Raises:
        InputError: ``overlap``.
    """
    known, heard = (
        {f"{each.path.resolve()}, {each.start_s:g} s" for each in part} for part in (train, test)
    )
    _refuse_shared("utterances", known & heard)
    known, heard = ({each.speaker for each in part} for part in (train, test))
    shared = known & heard - {""}
    if not shared_speakers:
        _refuse_shared("speakers", shared)
    return not shared and "" not in known | heard


def _refuse_shared(what: str, names: Collection[str]) -> None:
    if names:
        raise InputError(
            f"{what} are in the training set and in the test set",
            code="overlap",
            place="data.test",
            found=f"{len(names):,}: {', '.join(sorted(names)[:3])}",
            expected=f"different {what}",
            remedy="remove them from one set; known speakers are measured with data.shared_speakers",
        )


# --- Training sets --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """An utterance that can be trained on."""

    utterance: Utterance
    frames: int
    """Number of feature frames."""
    target: list[int]
    """Labels of its text."""
    fingerprint: str
    """Hash of its samples."""


@dataclass
class Screening:
    """What came of the utterances of a training set."""

    examples: list[Example] = field(default_factory=list)
    """Those that can be used."""
    excluded: list[Excluded] = field(default_factory=list)
    """The others: codes of `read_audio`, ``unknown-character``, and ``text-too-long`` where CTC needs
    more outputs than the audio has."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Characters outside the alphabet, with their counts."""
    seconds: float = 0.0
    """Audio of the examples."""


def screen(utterances: Sequence[Utterance], model: SpeechModel) -> Screening:
    """Read every utterance once, and set the normalization of the model's features.

    Raises:
        InputError: ``too-many-rejects`` if more than a tenth cannot be used, or all.
    """
    result, settings, network = Screening(), model.features, model.network
    count, sums = 0, torch.zeros(2, settings.bins, dtype=torch.float64)
    for each, audio in usable(utterances, settings.rate, result.excluded, settings.window):
        if unknown := model.alphabet.unknown(each.text):
            result.unknown += unknown
            reason = f"characters outside the alphabet: {''.join(unknown)}"
            result.excluded.append(excluded_row(each, "unknown-character", reason))
            continue
        features = log_features(audio.samples, settings).double()
        target = model.alphabet.encode(each.text)
        outputs = -(-len(features) // network.stride)
        if frames_needed(target) > outputs:
            reason = f"{frames_needed(target)} outputs needed, {outputs} in {audio.seconds:.2f} s"
            result.excluded.append(excluded_row(each, "text-too-long", reason))
            continue
        count += len(features)
        sums += torch.stack([features.sum(0), features.square().sum(0)])
        result.seconds += audio.seconds
        example = Example(each, len(features), target, fingerprint(audio.samples))
        result.examples.append(example)
    check_share(result.excluded, len(utterances), "data.train")
    mean, square = sums / count
    network.mean.copy_(mean)
    network.deviation.copy_((square - mean.square()).clamp_min(1e-4).sqrt())
    return result


def refuse_same_sound(examples: Sequence[Example], test: Sequence[Utterance], rate: int) -> None:
    """Refuse a test utterance whose samples are in the training set under another name.

    Raises:
        InputError: ``overlap``.
    """
    known = {each.fingerprint: each.utterance.id for each in examples}
    marks = ((each, fingerprint(audio.samples)) for each, audio in usable(test, rate, []))
    both = [f"{each.id} as {known[mark]}" for each, mark in marks if mark in known]
    _refuse_shared("sounds", both)


def fingerprint(samples: Array) -> str:
    """Hash of samples as 16-bit integers: equal for the same sound in another file or format."""
    return blake2b(np.round(samples * 32767).astype(np.int32).tobytes(), digest_size=16).hexdigest()


# --- Formats -------------------------------------------------------------------------------------
# Each is read as rows with NeMo's keys.


def _utterance(row: Mapping[str, Any], folder: Path) -> Utterance:
    """``{"audio_filepath", "text", "duration"?, "offset"?, "speaker"?, "id"?}``."""
    name, text = str(row["audio_filepath"]), clean_text(str(row["text"] or ""))
    start, duration = float(row.get("offset") or 0.0), row.get("duration")
    if not name or not text:
        raise ValueError("no audio or no text")
    path = folder / name
    return Utterance(
        str(row.get("id") or (f"{name}@{start:g}" if start else name)),
        path if path.exists() else Path(name),
        text,
        str(row.get("speaker") or ""),
        start,
        None if duration is None else float(duration),
    )


def _json_line(line: str) -> Iterable[Mapping[str, Any]]:
    """A line of NeMo, or a cut of Lhotse: one utterance per supervision, whose start is in the cut."""
    row = json.loads(line)
    if "supervisions" not in row:
        return [row]
    recording = row["recording"]
    (source,) = recording["sources"]
    channels, transforms = source.get("channels") or (), recording.get("transforms")
    if source["type"] != "file" or len(channels) > 1 or transforms:
        raise ValueError(f"{source['type']}, {channels=}, {transforms=}; expected a file as it is")
    place = {"audio_filepath": source["source"]}
    return [
        {**each, **place, "offset": row["start"] + each["start"]} for each in row["supervisions"]
    ]


def _kaldi(tables: Sequence[Mapping[str, str]], line: str) -> Iterable[Mapping[str, Any]]:
    """A line of ``text``."""
    audio, speakers, segments = tables
    name, _, text = line.partition(" ")
    row: dict[str, Any] = {"id": name, "text": text, "speaker": speakers.get(name)}
    recording = name
    if segments:
        recording, start, end = segments[name].split()
        row |= {"offset": float(start), "duration": float(end) - float(start)}
    if audio[recording].endswith("|"):
        raise ValueError(f"{recording} is the output of a command, expected a file")
    return [{**row, "audio_filepath": audio[recording]}]


def _kaldi_table(path: Path) -> dict[str, str]:
    """The first word of each line -> the rest; nothing where there is no file."""
    if not path.exists() and path.name != _KALDI[0]:
        return {}
    return {pair[0]: pair[-1] for _, line in _lines(path) if (pair := line.split(maxsplit=1))}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that are not empty."""
    with open_source(path) as source:
        for number, line in enumerate(source, 1):
            text = line.decode("utf-8-sig", "backslashreplace").strip()
            if text:
                yield number, text
