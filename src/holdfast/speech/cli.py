"""`holdfast speech`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import (
    Answer,
    Duration,
    Facts,
    Options,
    Output,
    Positive,
    Stream,
    option,
    room,
)

app = room(
    "speech",
    "Recognizing speech: train, recognize, score, decode, serve. Speaking: phonemes, align.",
)

_Model = Annotated[Path, option(metavar="MODEL")]


@Options
@dataclass(frozen=True)
class Decoding:
    """What texts are ranked by; the fields of `Decoder`."""

    lm: Annotated[Path | None, option(metavar="ARPA")] = None
    """N-gram language model in ARPA format, plain or compressed."""
    hotwords: Annotated[Path | None, option(metavar="FILE")] = None
    """Phrases to favor, one per line, each with its own weight behind a tab or without."""
    beam: Positive = 100
    """Prefixes that survive a frame; 1 is greedy decoding."""
    alpha: Annotated[float, option(metavar="WEIGHT")] = 0.5
    """Weight of the language model."""
    beta: Annotated[float, option(metavar="SCORE")] = 1.5
    """Score of each word, with a language model."""
    unknown_score: Annotated[float, option(metavar="SCORE", at_most=0)] = -10.0
    """Score of a word that the language model does not have."""
    hotword_weight: Annotated[float, option(metavar="SCORE")] = 10.0
    """Score of each occurrence of a hotword."""


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
    stream: Duration | None = None,
    texts: Annotated[int, option("--n-best", at_least=1, metavar="N")] = 1,
    form: Annotated[Literal["srt", "vtt", "ctm"] | None, option("--format")] = None,
    output: Output = Path(),
    decoding: Decoding = Decoding(),
) -> Answer:
    """Recognize audio files: text, words with times and confidence; exit with 1 if a file is unusable.

    Args:
        model: Folder of a trained model.
        audio: WAV or FLAC files of any sample rate.
        stream: Recognize as a stream in chunks of this duration, such as 320ms; the text is the same.
        texts: Maximum number of texts per segment (from pause to pause).
        form: Also write subtitles (srt, vtt) or a time-marked transcript (ctm), one per audio file.
        output: Folder of these files.
    """
    from holdfast.speech.recognize.recognition import recognize as compute

    return compute(
        model,
        audio,
        stream_s=stream,
        form=form,
        output=output,
        texts=texts,
        **vars(decoding),
    )


@app.command
def score(
    model: _Model,
    manifest: Annotated[Path, option(metavar="MANIFEST")],
    /,
    *,
    decoding: Decoding = Decoding(),
) -> Answer:
    """Measure word and character error rates on a manifest.

    Args:
        model: Folder of a trained model.
        manifest: JSON lines of NeMo or Lhotse, or a Kaldi folder.
    """
    from holdfast.speech.recognize.scoring import score as compute

    return compute(model, manifest, **vars(decoding))


@app.command
def decode(
    logits: Annotated[Path, option(metavar="LOGITS.npz")],
    /,
    *,
    labels: Annotated[Path, option(metavar="FILE")],
    texts: Annotated[int, option("--n-best", at_least=1, metavar="N")] = 5,
    blank: Annotated[str | None, option(metavar="LABEL")] = None,
    delimiter: Annotated[str | None, option(metavar="LABEL")] = None,
    frame: Duration | None = None,
    values: Annotated[Literal["auto", "logits", "log", "probabilities"], option()] = "auto",
    decoding: Decoding = Decoding(),
) -> Answer:
    """Decode the outputs of any CTC model: best texts, word times, confidence.

    Args:
        logits: NumPy archive: a matrix [frames, labels] per utterance, or a batch and its lengths.
        labels: Labels of the outputs: JSON list, vocab.json, tokens.txt, or one per line.
        texts: Maximum number of texts per utterance.
        blank: Label or column of the blank (default: by its usual names).
        delimiter: Label between words (default: by its usual names).
        frame: Time from one frame to the next, such as 0.02s; without it, words have frames only.
        values: What the arrays have, where it cannot be recognized.
    """
    from holdfast.speech.recognize.decoding import decode as compute

    return compute(
        logits,
        labels,
        texts=texts,
        blank=blank,
        delimiter=delimiter,
        frame_s=frame,
        kind=values,
        **vars(decoding),
    )


@app.command
def serve(
    model: _Model,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 2700,
    endpoint: Duration = 1.5,
    grace: Duration = 30.0,
    decoding: Decoding = Decoding(),
) -> None:
    """Serve streams (Vosk's websocket protocol) and files (OpenAI's transcriptions), until Ctrl-C.

    Args:
        model: Folder of a trained model.
        host: Address to bind.
        port: Port; 0 picks a free one.
        endpoint: Pause after which a segment of a stream ends.
        grace: Time that connected clients have to finish when the server ends.
    """
    from holdfast.progress import remark
    from holdfast.speech.recognize.serving import serve as run

    run(
        model,
        host=host,
        port=port,
        endpoint_s=endpoint,
        grace_s=grace,
        on_start=lambda address: remark(f"ws://{address} and http://{address}/v1 (Ctrl-C ends it)"),
        **vars(decoding),
    )


_Phonemes = Annotated[Path | None, option("--phonemes", metavar="MODEL")]


@app.command
def phonemes(
    text: Annotated[Stream, option(metavar="TEXT")],
    /,
    *,
    model: Annotated[Path | None, option("--model", metavar="MODEL")] = None,
) -> Answer:
    """Pronounce an English text: its words in ARPAbet with stress, and pauses.

    Args:
        text: Numbers, dates, money and abbreviations are read as words.
        model: Folder of a model (default: HOLDFAST_PHONEMES, or the repository's examples).
    """
    from holdfast.speech.speak.pronunciation import phonemes as compute

    return compute(text, model)


@app.command
def align(
    audio: Annotated[Path, option(metavar="AUDIO")],
    text: Annotated[str, option(metavar="TEXT")],
    /,
    *,
    model: Annotated[Path | None, option("--model", metavar="MODEL")] = None,
    phonemes: _Phonemes = None,
    form: Annotated[Literal["textgrid", "ctm"] | None, option("--format")] = None,
    output: Annotated[Path | None, option("--output", "-o", metavar="PATH")] = None,
) -> Answer:
    """Align a text with its recording: times of words and phones; exit with 1 if it is another text.

    Args:
        audio: WAV or FLAC of any sample rate.
        text: What is said, or a file with it.
        model: Folder of an aligner (default: HOLDFAST_ALIGNER, or the repository's examples).
        phonemes: Folder of a model of `phonemes` (default: HOLDFAST_PHONEMES, or the examples).
        form: Also write a TextGrid of Praat, or a time-marked transcript (ctm).
        output: This file (default: the name of the audio, in the current folder).
    """
    from holdfast.speech.speak.alignment import align as compute

    try:
        source: str | Path = Path(text) if Path(text).is_file() else text
    except OSError:  # longer than a name of a file can be
        source = text
    return compute(audio, source, model, phonemes=phonemes, form=form, output=output)


@app.command
def speak(
    voice: Annotated[Path, option(metavar="MODEL")],
    text: Annotated[Stream, option(metavar="TEXT")] = "",
    /,
    *,
    output: Annotated[Stream, option("--output", "-o", metavar="PATH")],
    prosody: Annotated[Path | None, option(metavar="FILE.json")] = None,
    seed: int = 0,
    precision: Literal["fp32", "int16"] = "fp32",
    phonemes: _Phonemes = None,
) -> Answer | int:
    """Speak a text with a trained voice: a WAV file, phones with times and pitch.

    Args:
        voice: Folder of a trained voice.
        text: Plain text, or SSML (speak, p, s, prosody, break).
        output: WAV file, or - for 16-bit samples on standard output, phrase by phrase.
        prosody: Phones with times and pitch as --json prints them, edited or not; needs no text.
        seed: Random seed (same seed, same samples).
        precision: Precision of the weights; int16 is faster for large voices.
        phonemes: Folder of a model of `phonemes` (default: HOLDFAST_PHONEMES, or the examples).
    """
    from holdfast.speech.speak.synthesis import speak as compute

    result = compute(
        voice, text, output, prosody=prosody, seed=seed, precision=precision, phonemes=phonemes
    )
    return 0 if output == "-" else result


@app.command
def train_voice(
    config: Annotated[Path, option(metavar="CONFIG.toml")],
    /,
    *,
    output: Output,
    resume: bool = False,
) -> Answer:
    """Train a voice on recordings whose phones have times: durations and pitch, then a WaveNet.

    Args:
        config: Data, sizes and training.
        output: Folder of the voice.
        resume: Continue an interrupted run; it ends with the same bits.
    """
    from holdfast.speech.speak.voice_training import train_voice as compute

    voice = compute(config, output, resume)
    return Facts({"model": str(output), **voice.description.training})
