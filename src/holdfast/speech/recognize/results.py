"""Answers: a trained model, transcripts, error rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.answer import Answer, How, Section, Unknown, Value
from holdfast.numbers import brief, counted, percent
from holdfast.plain import plain
from holdfast.report import figures
from holdfast.speech.recognize.hypotheses import Hypothesis, Segment, texts_section, together
from holdfast.speech.recognize.manifests import Excluded

_WORD = "word", "start_s", "end_s", "confidence"
"""Keys of a word in a transcript."""


@dataclass(frozen=True)
class Score(Answer):
    """Error rates on a manifest."""

    wer: float | None
    """Edits of words over words of the references; None without any."""
    cer: float | None
    """The same of characters."""
    utterances: int
    """Number of utterances that were recognized."""
    audio_s: float
    """Their duration."""
    real_time_factor: float
    """CPU seconds per second of audio, reading and features included."""
    excluded: Sequence[Excluded] = field(default_factory=list)
    """Utterances whose audio cannot be used."""
    unknown_characters: Mapping[str, int] = field(default_factory=dict)
    """Characters of the references that the model cannot write, with their counts."""

    title = "Recognition errors"

    def values(self) -> Sequence[Value]:
        """What two models are compared by."""
        return [
            Value("wer", self.wer, better="lower"),
            Value("cer", self.cer, better="lower"),
            Value("real_time_factor", self.real_time_factor, better="lower"),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """Excluded audio, characters outside the alphabet."""
        return _left_out(self.excluded, self.unknown_characters)

    def sections(self) -> Sequence[Section]:
        """Error rates."""
        sentence = (
            f"{percent(self.wer)} of the words and {percent(self.cer)} of the characters are wrong, in "
            f"{counted(self.utterances, 'utterance')} ({brief(self.audio_s)} s of audio), at "
            f"{brief(self.real_time_factor)} CPU seconds per second of audio."
        )
        how = How(
            "edits (substitutions + deletions + insertions) of all utterances / words of all references",
            notes="Texts are compared in Unicode's normal form C with single spaces.",
        )
        return [Section("errors", "How much is wrong?", sentence, how=how)]


@dataclass(frozen=True)
class TrainedModel(Answer):
    """A training run after its last epoch."""

    model: Path
    """Folder of the model."""
    parameters: int
    """Number of trained weights."""
    look_ahead_frames: int | None
    """Feature frames of the future that an output depends on; None: all (bidirectional)."""
    utterances: int
    """Trained on."""
    audio_s: float
    """Their duration."""
    history: Sequence[Mapping[str, float]]
    """One row ``{"epoch", "loss"}`` per epoch; CTC loss per utterance."""
    excluded: Sequence[Excluded]
    """Utterances that were left out."""
    unknown_characters: Mapping[str, int]
    """Characters outside the alphabet, with their counts."""
    test: Score | None
    """On the test set; None without one."""
    new_speakers: bool | None
    """Whether all speakers of the test set are new; None without a test set. False also where speakers
    are not stated."""
    rank: int = 0
    """Of this process; rank 0 tested and wrote."""

    title = "Trained recognizer"

    def values(self) -> Sequence[Value]:
        """What two runs are compared by."""
        loss = Value("loss", self.history[-1]["loss"], better="lower")
        return [loss, *([] if self.test is None else self.test.values())]

    def written(self) -> Mapping[str, Path]:
        """The model."""
        return {"model": self.model}

    def unknowns(self) -> Sequence[Unknown]:
        """Utterances left out; speakers that may be in both sets."""
        found = _left_out(self.excluded, self.unknown_characters)
        if self.test is not None:
            found += self.test.unknowns()
            if not self.new_speakers:
                text = "Speakers of the test set may be in the training set: errors on others are unknown."
                found.append(Unknown(text, "Test on speakers that are left out.", doubt=True))
        return found

    def sections(self) -> Sequence[Section]:
        """Errors on the test set, loss by epoch."""
        sentence = (
            f"The loss fell from {brief(self.history[0]['loss'])} to {brief(self.history[-1]['loss'])} "
            f"in {counted(len(self.history), 'epoch')} on {counted(self.utterances, 'utterance')} "
            f"({brief(self.audio_s)} s)."
        )
        drawn = figures.lines(list(self.history), "epoch", "loss", "Epoch", "Loss per utterance")
        how = How(
            "loss = -log P(text | audio), summed over all alignments (CTC)",
            {"parameters": self.parameters, "look-ahead in frames": self.look_ahead_frames},
            source="arXiv 1512.02595",
        )
        own = Section("loss", "Did it learn?", sentence, [drawn], how=how)
        return [*(self.test.sections() if self.test else ()), own]


@dataclass(frozen=True)
class Transcript:
    """What was said in a file."""

    file: str
    """Path as it was named."""
    segments: Sequence[Segment] = ()
    """What was said from pause to pause, each with its best texts."""
    notes: tuple[str, ...] = ()
    """What was changed of the audio."""
    problem: str = ""
    """Code and reason why the file was not recognized; empty if it was."""

    @property
    def best(self) -> Hypothesis:
        """The best texts of all segments."""
        return together(self.segments)

    @property
    def text(self) -> str:
        """Their words with spaces."""
        return self.best.text


@dataclass(frozen=True)
class Recognition(Answer):
    """Transcripts of files."""

    transcripts: Sequence[Transcript]
    """In the order of the files."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Subtitles that were written."""
    doubts: Sequence[str] = ()
    """What the language model or the hotwords do not allow."""

    @property
    def exit_code(self) -> int:
        """1 if a file could not be recognized."""
        return int(any(each.problem for each in self.transcripts))

    title = "Transcripts"

    def to_dict(self) -> list[dict[str, Any]]:
        """``[{"file", "text", "words"}]``.

        And ``segments`` where one has several texts, ``problem`` where a file could not be recognized.
        """
        rows = []
        for each in self.transcripts:
            words = [{name: getattr(word, name) for name in _WORD} for word in each.best.words]
            row = {"file": each.file, "text": each.text, "words": words}
            if any(len(segment) > 1 for segment in each.segments):
                row["segments"] = plain(each.segments)
            rows.append({**row, "problem": each.problem} if each.problem else row)
        return rows

    def written(self) -> Mapping[str, Path]:
        """Subtitles."""
        return self.files

    def unknowns(self) -> Sequence[Unknown]:
        """Files that could not be recognized, and what was changed."""
        problems = [each for each in self.transcripts if each.problem]
        found = [Unknown(f"{each.file}: {each.problem}.", doubt=True) for each in problems]
        for each in self.transcripts:
            found += [Unknown(f"{each.file}: {note}.") for note in each.notes]
        return found + [Unknown(text, doubt=True) for text in self.doubts]

    def sections(self) -> Sequence[Section]:
        """One row per file."""
        done = [(each.file, each.best) for each in self.transcripts if not each.problem]
        sentence = f"{len(done)} of {counted(len(self.transcripts), 'file')} recognized."
        return [texts_section(sentence, "file", done)]


def _left_out(rows: Sequence[Excluded], characters: Mapping[str, int]) -> list[Unknown]:
    """Utterances that are not used, and characters outside the alphabet."""
    found = []
    if rows:
        first = "; ".join(
            f"{each['utterance']} ({each['code']}: {each['reason']})" for each in rows[:3]
        )
        text = f"{counted(len(rows), 'utterance')} left out, first: {first}."
        found.append(Unknown(text, "Correct them, or remove them from the manifest."))
    if characters:
        listed = ", ".join(f"{name!r} ({count:,})" for name, count in characters.items())
        text = f"Characters outside the alphabet: {listed}."
        found.append(Unknown(text, "Add them to data.alphabet, or correct the texts.", doubt=True))
    return found
