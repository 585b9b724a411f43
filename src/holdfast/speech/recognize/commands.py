"""`holdfast speech train`, `recognize` and `score`: each command calls the function of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.command import Answer, Output, option
from holdfast.speech.recognize.transcripts import Format

_Model = Annotated[Path, option(metavar="MODEL")]


def train(
    config: Annotated[Path, option(metavar="CONFIG.toml")],
    /,
    *,
    output: Output,
    resume: bool = False,
) -> Answer | int:
    """Train a recognizer: CTC over characters, convolutions and recurrent layers as the file says.

    Args:
        config: Data, features, network, training and noise.
        output: Folder of the model.
        resume: Continue an interrupted run; it ends with the same bits.
    """
    from holdfast.speech.recognize.training import train as compute

    result = compute(config, output, resume)
    return 0 if result.rank else result  # of several ranks one prints


def recognize(
    model: _Model,
    audio: Annotated[list[Path], option(metavar="AUDIO...")],
    /,
    *,
    form: Annotated[Format | None, option("--format")] = None,
    output: Output = Path(),
) -> Answer:
    """Recognize audio files: text, words with times and confidence; exit with 1 if a file is unusable.

    Args:
        model: Folder of a trained model.
        audio: WAV or FLAC files of any sample rate.
        form: Also write subtitles (srt, vtt) or a time-marked transcript (ctm), one per audio file.
        output: Folder of these files.
    """
    from holdfast.speech.recognize.recognition import recognize as compute

    return compute(model, audio, form, output)


def score(
    model: _Model,
    manifest: Annotated[Path, option(metavar="MANIFEST")],
    /,
) -> Answer:
    """Measure word and character error rates on a manifest.

    Args:
        model: Folder of a trained model.
        manifest: JSON lines of NeMo or Lhotse, a Kaldi folder, or CSV with columns path and text.
    """
    from holdfast.speech.recognize.scoring import score as compute

    return compute(model, manifest)
