"""Recognizing audio files with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.progress import track
from holdfast.speech.recognize.audio import read_audio
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.results import Recognition, Transcript
from holdfast.speech.recognize.transcripts import Format, greedy, subtitles, words


def recognize(
    model: str | Path,
    audio: Sequence[str | Path],
    form: Format | None = None,
    output: str | Path = ".",
) -> Recognition:
    """Recognize audio files.

    Args:
        model: folder of a model.
        audio: WAV or FLAC files.
        form: also write ``srt``, ``vtt`` or ``ctm``, one file per audio file.
        output: folder of these files.

    Raises:
        InputError: what reading the model refuses; the problem of a single file (of several, those that
            cannot be used have a `problem`); ``duplicate`` if two files would be written under one name.
    """
    recognizer, paths = SpeechModel.load(model), [Path(each) for each in audio]
    names = [each.stem for each in paths]
    if form is not None and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            "two audio files of one name",
            code="duplicate",
            found=twice,
            remedy="recognize them in two runs, with different output folders",
        )
    transcripts, written = [], {}
    with track("recognizing", len(paths), "files") as tracker:
        for path in paths:
            try:
                transcript = _recognized(recognizer, path)
            except InputError as error:
                if len(paths) == 1:
                    raise
                problem = f"{error.code}: {error.problem}"
                transcript = Transcript(str(path), "", [], problem=problem)
            transcripts.append(transcript)
            tracker.advance(1)
            if form is not None and not transcript.problem:
                target = Path(output) / f"{path.stem}.{form}"
                target.parent.mkdir(parents=True, exist_ok=True)
                write_whole(target, subtitles(transcript.words, form, path.stem).encode())
                written[target.name] = target
    return Recognition(transcripts, written)


def _recognized(model: SpeechModel, path: Path) -> Transcript:
    audio = read_audio(path, model.features.rate)
    try:
        (outputs,) = model.log_probabilities([audio.samples])
    except InputError as error:
        raise error.at(path) from error
    found = words(greedy(outputs, model.alphabet), model.frame_s)
    return Transcript(str(path), " ".join(each.word for each in found), found, audio.notes)
