"""A server of streams and files: Vosk's websocket protocol, OpenAI's transcription endpoint, metrics.

Whatever audio waits when a batch ends is the next batch (Deep Speech 2, section 7.1): no timer, so that a
lone stream waits for nothing and many share each step. A stream has one chunk under way at most; its
client has the answer before the server reads on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError, MissingExtraError
from holdfast.speech.recognize.audio import FASTEST, SLOWEST, Array, Audio, read_audio
from holdfast.speech.recognize.hypotheses import Segment, subtitles, together
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.streaming import ENDPOINT_S, Stream, advance

try:
    import uvicorn
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette.applications import Starlette
    from starlette.datastructures import UploadFile
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect
except ModuleNotFoundError as error:
    raise MissingExtraError(str(error.name), "speech") from error

LARGEST_BATCH = 64
"""Streams per batch."""
LARGEST_FILE = 25_000_000
"""Bytes of a request with a file, as OpenAI has it."""
LARGEST_MESSAGE = 1_000_000
"""Bytes of a message of a stream."""
LARGEST_RATIO = 1000
"""Largest term of the ratio of a stream's sample rate and the model's; 441 : 80 is common."""
_VALUES = {
    "response_format": ("json", "text", "srt", "vtt"),
    "stream": ("false", "False"),
    "temperature": ("0", "0.0"),
}
"""What a request may have beside a file and a model; others change an answer, and are refused."""
_FILE_CHUNK_S = 1.0
"""Files take part in batches in chunks, so that streams do not wait for them."""


class Service:
    """A recognizer that several clients share.

    Args:
        model: recognizes.
        endpoint_s: pause after which a segment ends.
        settings: fields of `Decoder`.

    Raises:
        InputError: ``unsupported`` for a bidirectional model; what `Decoder` refuses.
    """

    def __init__(self, model: SpeechModel, endpoint_s: float = ENDPOINT_S, **settings: Any) -> None:
        self.model, self.endpoint_s = model, endpoint_s
        self.decoder = model.decoder(**settings)
        advance([self.stream()], [np.zeros(1, np.float32)], [False])  # compile, or refuse, now
        self.waiting: asyncio.Queue[tuple[Stream, Array, bool, asyncio.Future[list[Segment]]]]
        self.metrics = CollectorRegistry()
        name, to = "holdfast_speech_", {"registry": self.metrics}
        self.clients = Gauge(name + "clients", "Streams and files under way.", **to)
        self.audio = Counter(name + "audio_seconds", "Audio recognized.", **to)
        self.cpu = Counter(name + "cpu_seconds", "CPU time of the process in batches.", **to)
        sizes = [1, 2, 4, 8, 16, 32, 64]
        self.sizes = Histogram(name + "batch_streams", "Streams per batch.", buckets=sizes, **to)
        self.latency = Histogram(name + "latency_seconds", "From a chunk to its answer.", **to)

    def stream(self, rate: int | None = None) -> Stream:
        """A new stream."""
        return Stream(self.model, self.decoder, rate, self.endpoint_s)

    async def advance(self, stream: Stream, samples: Array, end: bool) -> list[Segment]:
        """Continue a stream in the next batch; the segments that ended."""
        done: asyncio.Future[list[Segment]] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((stream, samples, end, done))
        with self.latency.time():
            found = await done
        self.audio.inc(len(samples) / stream.rate)
        return found

    async def run(self) -> None:
        """Batches, until cancelled."""
        while True:
            jobs = [await self.waiting.get()]
            while len(jobs) < LARGEST_BATCH and not self.waiting.empty():
                jobs.append(self.waiting.get_nowait())
            streams, chunks, ends, waiters = zip(*jobs, strict=True)
            self.sizes.observe(len(jobs))
            begin = time.process_time()
            try:
                answers = await asyncio.to_thread(advance, streams, chunks, ends)
            except Exception as error:  # a fault in one batch must not end the others
                answers = [error] * len(jobs)
            self.cpu.inc(time.process_time() - begin)
            for waiter, answer in zip(waiters, answers, strict=True):
                if waiter.done():  # its client has gone
                    continue
                if isinstance(answer, Exception):
                    waiter.set_exception(answer)
                else:
                    waiter.set_result(answer)

    @property
    def busy(self) -> bool:
        """Whether a stream or file is under way."""
        return bool(self.metrics.get_sample_value("holdfast_speech_clients"))

    # --- Streams: the protocol of vosk-server ---------------------------------------------------

    async def vosk(self, websocket: WebSocket) -> None:
        """16-bit mono samples in; a partial text, or the result of a segment, back for each message."""
        await websocket.accept()
        with self.clients.track_inprogress():
            try:
                await self._converse(websocket)
            except WebSocketDisconnect:
                return  # the stream and its state end with the client
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                # Reasons have at most 123 bytes.
                await websocket.close(1003, str(error)[:100])

    async def _converse(self, websocket: WebSocket) -> None:
        rate, words, stream = self.model.features.rate, True, None
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect
            data, text = message.get("bytes") or b"", message.get("text") or "{}"
            given = dict(json.loads(text))
            if "config" in given:
                config = dict(given["config"])
                rate = round(float(config.pop("sample_rate", rate)))
                words = bool(config.pop("words", words))
                # The filter that resamples has a length of this ratio's terms.
                own = self.model.features.rate
                steep = max(rate, own) > LARGEST_RATIO * gcd(rate, own)
                if config or steep or not SLOWEST <= rate <= FASTEST:
                    raise ValueError(f"not supported: {config or rate}")
                continue
            end = "eof" in given or "reset" in given
            # Refuses half a sample.
            samples = np.frombuffer(data, "<i2").astype(np.float32) / 32768
            stream = stream or self.stream(rate)
            segments = await self.advance(stream, samples, end)
            answer: dict[str, Any] = {"partial": stream.partial}
            if segments or end:  # a long message may end several segments
                best = together(segments)
                answer = {"text": best.text}
                if words and segments:
                    answer["result"] = [
                        {"conf": w.confidence, "start": w.start_s, "end": w.end_s, "word": w.word}
                        for w in best.words
                    ]
            await websocket.send_text(json.dumps(answer, ensure_ascii=False))
            if "eof" in given:
                await websocket.close()
                return
            stream = None if end else stream

    # --- Files: OpenAI's endpoint ------------------------------------------------------------------

    async def transcribe(self, request: Request) -> Response:
        """``POST /v1/audio/transcriptions`` with ``file`` and ``response_format``."""
        size = request.headers.get("content-length", "")
        if not size.isdecimal() or int(size) > LARGEST_FILE:
            return _problem("file", f"expected a length of at most {LARGEST_FILE:,} bytes", 413)
        async with request.form() as form:
            file, kind = form.get("file"), form.get("response_format", "json")
            if not isinstance(file, UploadFile):
                return _problem("file", "expected an audio file")
            for name, value in form.multi_items():
                if name not in ("file", "model") and value not in _VALUES.get(name, ()):
                    return _problem(name, f"{name} = {str(value)[:100]} is not supported")
            with self.clients.track_inprogress():
                try:
                    audio = await asyncio.to_thread(_upload, file, self.model.features.rate)
                except InputError as error:
                    return _problem(error.code, error.problem)
                stream, chunk = self.stream(), round(_FILE_CHUNK_S * audio.rate)
                segments: list[Segment] = []
                for begin in range(0, len(audio.samples), chunk):
                    end = begin + chunk >= len(audio.samples)
                    part = audio.samples[begin : begin + chunk]
                    segments += await self.advance(stream, part, end)
        best = together(segments)
        if kind == "srt" or kind == "vtt":
            return PlainTextResponse(subtitles(best.words, kind, ""))
        return JSONResponse({"text": best.text}) if kind == "json" else PlainTextResponse(best.text)

    async def expose(self, _: Request) -> Response:
        """``GET /metrics``, for Prometheus."""
        return PlainTextResponse(generate_latest(self.metrics))

    def app(self) -> Starlette:
        """The service as an ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self.waiting = asyncio.Queue()
            running = asyncio.create_task(self.run())
            yield
            running.cancel()

        routes = [
            WebSocketRoute("/", self.vosk),
            Route("/v1/audio/transcriptions", self.transcribe, methods=["POST"]),
            Route("/metrics", self.expose),
        ]
        return Starlette(routes=routes, lifespan=lifespan)


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 2700,
    endpoint_s: float = ENDPOINT_S,
    grace_s: float = 30.0,
    on_start: Callable[[str], None] = lambda address: None,
    **settings: Any,
) -> None:
    """Serve a model until SIGTERM or Ctrl-C; clients that are connected then have time to finish.

    Args:
        model: folder of a model.
        host: address to bind.
        port: 0: any that is free.
        endpoint_s: pause after which a segment ends.
        grace_s: time to finish.
        on_start: called with the address.
        settings: ``lm``, ``hotwords``, ``beam`` and the other fields of `Decoder`.

    Raises:
        InputError: what reading the model refuses; ``unsupported`` if it is bidirectional;
            ``address-in-use``.
        MissingExtraError: if the extra ``speech`` is not installed.
    """
    service = Service(SpeechModel.load(model), endpoint_s, **settings)
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise InputError(
            "the address cannot be bound",
            code="address-in-use",
            found=f"{host}, port {port}: {error.strerror or error}",
            remedy="choose another --host or --port",
        ) from error
    with listener:
        config = uvicorn.Config(
            service.app(),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws_max_size=LARGEST_MESSAGE,
            timeout_graceful_shutdown=1,
        )
        on_start(f"{host}:{listener.getsockname()[1]}")
        try:
            _Server(config, service, grace_s).run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn raises it again when all is done
            return


class _Server(uvicorn.Server):
    """uvicorn closes websockets at once; this one lets clients finish first."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float) -> None:
        super().__init__(config)
        self.service, self.grace_s = service, grace_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self.servers:
            each.close()  # no new clients
        until = time.monotonic() + self.grace_s
        while self.service.busy and not self.force_exit and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)


def _upload(file: UploadFile, rate: int) -> Audio:
    with tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file.file, copy)
        copy.flush()
        return read_audio(copy.name, rate)


def _problem(place: str, message: str, status: int = 400) -> Response:
    """An error as OpenAI's clients read it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": place}
    return JSONResponse({"error": error}, status)
