"""`holdfast speech`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Duration, Output, Positive, option, room
from holdfast.speech.recognize.transcripts import Format

app = room("speech", "Recognizing speech: train, recognize, score, decode.")

_Model = Annotated[Path, option(metavar="MODEL")]


@app.command
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


@app.command
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


@app.command
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


@app.command
def decode(
    logits: Annotated[Path, option(metavar="LOGITS.npz")],
    /,
    *,
    labels: Annotated[Path, option(metavar="FILE")],
    lm: Annotated[Path | None, option(metavar="ARPA")] = None,
    hotwords: Annotated[Path | None, option(metavar="FILE")] = None,
    beam: Positive = 100,
    texts: Annotated[int, option("--n-best", at_least=1, metavar="N")] = 5,
    blank: Annotated[str | None, option(metavar="LABEL")] = None,
    delimiter: Annotated[str | None, option(metavar="LABEL")] = None,
    alpha: Annotated[float, option(metavar="WEIGHT")] = 0.5,
    beta: Annotated[float, option(metavar="SCORE")] = 1.5,
    unknown_score: Annotated[float, option(metavar="SCORE", at_most=0)] = -10.0,
    hotword_weight: Annotated[float, option(metavar="SCORE")] = 10.0,
    frame: Duration | None = None,
    values: Annotated[Literal["auto", "logits", "log", "probabilities"], option()] = "auto",
) -> Answer:
    """Decode the outputs of any CTC model: best texts, word times, confidence.

    Args:
        logits: NumPy archive: a matrix [frames, labels] per utterance, or a batch and its lengths.
        labels: Labels of the outputs: JSON list, vocab.json, tokens.txt, or one per line.
        lm: N-gram language model in ARPA format, plain or compressed.
        hotwords: Phrases to favor, one per line, each with its own weight behind a tab or without.
        beam: Prefixes that survive a frame; 1 is greedy decoding.
        texts: Maximum number of texts per utterance.
        blank: Label or column of the blank (default: by its usual names).
        delimiter: Label between words (default: by its usual names).
        alpha: Weight of the language model.
        beta: Score of each word, with a language model.
        unknown_score: Score of a word that the language model does not have.
        hotword_weight: Score of each occurrence of a hotword.
        frame: Time from one frame to the next, such as 0.02s; without it, words have frames only.
        values: What the arrays have, where it cannot be recognized.
    """
    from holdfast.speech.recognize import decode_file

    return decode_file(
        logits,
        labels,
        hotwords=hotwords,
        lm=lm,
        beam=beam,
        texts=texts,
        blank=blank,
        delimiter=delimiter,
        alpha=alpha,
        beta=beta,
        unknown_score=unknown_score,
        hotword_weight=hotword_weight,
        frame_s=frame,
        kind=values,
    )
