"""Recognizing streams: state of each, batches of several, endpoints.

A stream has the texts and scores of its whole audio however it is divided: functions of neighbors (the
resampling filter, convolutions, row convolution) get their inputs by a `Window`, and the rest has a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.speech.recognize.audio import Array, resample
from holdfast.speech.recognize.decoding import Decoder, Search
from holdfast.speech.recognize.emissions import Emissions
from holdfast.speech.recognize.features import Frames
from holdfast.speech.recognize.hypotheses import Segment
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.network import padded

ENDPOINT_S = 1.5
"""Pause after which a segment ends."""
_LONG_S = 20.0
"""A longer segment ends after a fourth of that pause."""


class Window:
    """Inputs of a function of neighbors, such that its outputs on pieces are those on the whole.

    Output n lies at input n * inputs / outputs; k inputs have ceil(k * outputs / inputs) outputs.

    Args:
        behind: inputs before its place that an output depends on.
        ahead: inputs after its place that it depends on.
        inputs: step of the inputs ...
        outputs: ... in which there are so many outputs.
    """

    def __init__(self, behind: int, ahead: int, inputs: int = 1, outputs: int = 1) -> None:
        self.behind, self.ahead = behind, ahead
        self.inputs, self.outputs = inputs, outputs
        self.kept: Tensor | None = None
        self.start = self.done = 0
        """Inputs before `kept`, a multiple of `inputs`; outputs so far."""

    def push(self, x: Tensor, end: bool) -> tuple[Tensor, slice]:
        """What to run the function on, and which of its outputs are new.

        Args:
            x: further inputs [n, ...].
            end: whether no more follow.
        """
        piece = x if self.kept is None else torch.cat([self.kept, x])
        certain = self.start + len(piece) - (0 if end else self.ahead)
        done = max(self.done, -(-certain * self.outputs // self.inputs))
        before = self.start * self.outputs // self.inputs
        new = slice(self.done - before, done - before)
        # The next output needs inputs from here on.
        first = done * self.inputs // self.outputs - self.behind
        start = max(self.start, first // self.inputs * self.inputs)
        self.kept, self.start, self.done = piece[start - self.start :], start, done
        return piece, new


class Stream:
    """One audio stream: its state in the network and in the decoder.

    Args:
        model: recognizes it.
        decoder: of the model's outputs; `SpeechModel.decoder` makes one.
        rate: samples per second of the audio; None: the model's.
        endpoint_s: pause after which a segment ends.

    Raises:
        InputError: what `Decoder.prepared` refuses.
    """

    def __init__(
        self,
        model: SpeechModel,
        decoder: Decoder,
        rate: int | None = None,
        endpoint_s: float = ENDPOINT_S,
    ) -> None:
        self.model, self.decoder = model, decoder
        network, self.target = model.network, model.features.rate
        self.rate = rate or self.target
        common = gcd(self.rate, self.target)
        down, up = self.rate // common, self.target // common
        # resample_poly's filter has 10 * max(up, down) taps on either side, `up` of them per sample.
        reach = 10 * max(up, down) // up + 2
        self.resampling = Window(reach, reach, down, up)
        self.frames = Frames(model.features)
        self.convolution = Window(network.behind, network.ahead, network.stride)
        self.hidden = torch.zeros(len(network.recurrent), network.units)
        self.row = Window(0, network.row_ahead)
        self.search = Search(decoder, model.alphabet.size)
        self.endpoint = max(1, round(endpoint_s / model.frame_s))
        """Outputs of a pause that ends a segment."""
        self.pause, self.said = 0, False

    @property
    def partial(self) -> str:
        """The text since the last endpoint; it may change."""
        return self.search.partial if self.said else ""

    def window(self, samples: Array, end: bool) -> tuple[Tensor, slice]:
        """Frames [T, F] to convolve after further samples, and which outputs are new."""
        if self.rate != self.target:
            piece, new = self.resampling.push(torch.from_numpy(samples), end)
            samples = resample(piece.numpy(), self.rate, self.target)[new]
        return self.convolution.push(self.frames.push(samples), end)

    def decode(self, log_probs: Emissions, end: bool) -> list[Segment]:
        """Segments that end in further outputs, ln P [frames, labels]."""
        segments, begin = [], 0
        speech = [bool(self.search.labels.texts[k].strip()) for k in log_probs.argmax(1)]
        for frame, speaks in enumerate(speech, 1):
            self.pause = 0 if speaks else self.pause + 1
            self.said |= speaks
            length = len(self.search.log_probs) + frame - begin
            is_long = length * self.model.frame_s > _LONG_S
            if self.pause >= (self.endpoint // 4 if is_long else self.endpoint):
                self.search.push(log_probs[begin:frame])
                segments += self._close()
                begin = frame
        self.search.push(log_probs[begin:])
        return segments + (self._close() if end else [])

    def _close(self) -> list[Segment]:
        """The segment, unless nothing was said; a new one begins."""
        hypotheses = [self.search.hypotheses()] if self.said else []
        start = self.search.start + len(self.search.log_probs)
        self.search = Search(self.decoder, self.model.alphabet.size, start)
        self.pause, self.said = 0, False
        return hypotheses


def advance(
    streams: Sequence[Stream], chunks: Sequence[Array], ends: Sequence[bool]
) -> list[list[Segment]]:
    """Continue streams of one model, in one batch.

    Args:
        streams: different ones.
        chunks: float32 [n] further samples of each.
        ends: whether the stream ends with them.

    Returns:
        The segments of each that ended.

    Raises:
        InputError: ``unsupported`` if the model is bidirectional and a stream does not end.
    """
    network = streams[0].model.network.eval()
    if network.look_ahead is None and not all(ends):
        raise InputError(
            "a bidirectional model cannot recognize a stream",
            code="unsupported",
            expected="whole files, or a model with network.bidirectional = false",
        )
    pairs = zip(streams, chunks, ends, strict=True)
    windows = [stream.window(chunk, end) for stream, chunk, end in pairs]
    # Short chunks complete no output, mostly.
    live = [k for k, (_, new) in enumerate(windows) if ends[k] or new.stop > new.start]
    segments: list[list[Segment]] = [[] for _ in streams]
    if not live:
        return segments
    with torch.inference_mode():
        x, _ = network.convolve(*padded([windows[k][0] for k in live]))  # [B, T', D]
        x, lengths = padded([each[windows[k][1]] for k, each in zip(live, x, strict=True)])
        hidden = torch.stack([streams[k].hidden for k in live], dim=1)  # [layers, B, H]
        y, hidden = network.recur(x, lengths, hidden)
        rows = []
        for place, k in enumerate(live):
            streams[k].hidden = hidden[:, place]
            rows.append(streams[k].row.push(y[place, : lengths[place]], ends[k]))
        log_probs = network.emit(padded([piece for piece, _ in rows])[0]).numpy()
    for k, each, (_, new) in zip(live, log_probs, rows, strict=True):
        segments[k] = streams[k].decode(each[new], ends[k])
    return segments


def transcribe(
    model: SpeechModel, decoder: Decoder, sounds: Sequence[Array], chunk: int | None = None
) -> list[list[Segment]]:
    """Recognize sounds in one batch: the segments of each.

    Args:
        model: recognizes them.
        decoder: of the model.
        sounds: at least one, float32 [n] each, at the model's rate.
        chunk: samples at a time; None: all at once.
    """
    streams, longest = [Stream(model, decoder) for _ in sounds], max(map(len, sounds))
    segments: list[list[Segment]] = [[] for _ in sounds]
    step = chunk or max(longest, 1)
    for end in range(step, longest + step, step):
        chunks = [each[end - step : end] for each in sounds]
        parts = advance(streams, chunks, [end >= longest] * len(sounds))
        segments = [[*before, *more] for before, more in zip(segments, parts, strict=True)]
    return segments
