"""Recognizing audio files with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.progress import track
from holdfast.speech.recognize.audio import read_audio
from holdfast.speech.recognize.hypotheses import Format, subtitles
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.results import Recognition, Transcript
from holdfast.speech.recognize.streaming import transcribe


def recognize(
    model: str | Path,
    audio: Sequence[str | Path],
    *,
    stream_s: float | None = None,
    form: Format | None = None,
    output: str | Path = ".",
    **settings: Any,
) -> Recognition:
    """Recognize audio files.

    Args:
        model: folder of a model.
        audio: WAV or FLAC files.
        stream_s: recognize each file as a stream, in chunks of so many seconds; the text is the same.
        form: also write ``srt``, ``vtt`` or ``ctm``, one file per audio file.
        output: folder of these files.
        settings: ``lm``, ``hotwords``, ``beam``, ``texts`` and the other fields of `Decoder`.

    Raises:
        InputError: what reading the model and `Decoder` refuse; the problem of a single file (of several,
            those that cannot be used have a `problem`); ``duplicate`` if two files would have
            one name.
    """
    if stream_s is not None and not 0 < stream_s < inf:
        seconds = f"{stream_s:g} s"
        raise InputError("invalid chunk", code="out-of-range", place="stream_s", found=seconds)
    recognizer, paths = SpeechModel.load(model), [Path(each) for each in audio]
    chunk = None if stream_s is None else max(1, round(stream_s * recognizer.features.rate))
    decoder = recognizer.decoder(**settings)
    doubts = decoder.prepared(recognizer.alphabet.size)[2]
    names = [each.stem for each in paths]
    twice = [name for name in names if names.count(name) > 1]
    if form is not None and twice:
        raise InputError(
            "two audio files of one name",
            code="duplicate",
            found=twice[0],
            remedy="recognize them in two runs, with different output folders",
        )
    transcripts, written = [], {}
    with track("recognizing", len(paths), "files") as tracker:
        for path in paths:
            try:
                sound = read_audio(path, recognizer.features.rate)
            except InputError as error:
                if len(paths) == 1:
                    raise
                problem = f"{error.code}: {error.problem}"
                transcript = Transcript(str(path), problem=problem)
            else:
                (segments,) = transcribe(recognizer, decoder, [sound.samples], chunk)
                transcript = Transcript(str(path), segments, sound.notes)
            transcripts.append(transcript)
            tracker.advance(1)
            if form is not None and not transcript.problem:
                target = Path(output) / f"{path.stem}.{form}"
                target.parent.mkdir(parents=True, exist_ok=True)
                write_whole(target, subtitles(transcript.best.words, form, path.stem).encode())
                written[target.name] = target
    return Recognition(transcripts, written, doubts)
