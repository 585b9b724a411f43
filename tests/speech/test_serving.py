"""The server: its two protocols, clients that vanish, batches, the end."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from speech_models import RATE, model, recognized, sound
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from holdfast.errors import InputError
from holdfast.speech.recognize import serving
from holdfast.speech.recognize.audio import Array
from holdfast.speech.recognize.hypotheses import together
from holdfast.speech.recognize.model import write_model
from holdfast.speech.recognize.serving import Service
from holdfast.speech.recognize.streaming import advance

ENDPOINT_S = 0.1


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(model("gru"), ENDPOINT_S)


def pcm(samples: Array) -> bytes:
    return (samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()


def as_heard(samples: Array) -> Array:
    return np.frombuffer(pcm(samples), "<i2").astype(np.float32) / 32768


def wav(samples: Array, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, "PCM_16", format="WAV")
    return file.getvalue()


def expected(service: Service, samples: Array) -> list[Any]:
    return recognized(service.model, as_heard(samples), 10**6)[0]


def talk(client: TestClient, messages: list[str | bytes]) -> list[dict[str, Any]]:
    """The answers to messages, the configuration first."""
    answers = []
    with client.websocket_connect("/") as socket:
        for each in messages:
            if isinstance(each, bytes):
                socket.send_bytes(each)
            else:
                socket.send_text(each)
                if "config" in each:
                    continue
            answers.append(socket.receive_json())
    return answers


def test_a_stream_has_partials_and_a_result_for_each_segment(service: Service) -> None:
    samples = sound(3.0)
    data = pcm(samples)
    chunks = [data[k : k + 8000] for k in range(0, len(data), 8000)]
    config = json.dumps({"config": {"sample_rate": float(RATE)}})
    with TestClient(service.app()) as client:
        answers = talk(client, [config, *chunks, '{"eof" : 1}'])
        results = [each for each in answers if "partial" not in each]
        segments = expected(service, samples)
        assert " ".join(each["text"] for each in results if each["text"]) == together(segments).text
        words = [word for each in results for word in each.get("result", [])]
        assert [each["word"] for each in words] == together(segments).text.split()
        first = segments[0][0].words[0]
        assert words[0] == {
            "word": first.word,
            "start": first.start_s,
            "end": first.end_s,
            "conf": pytest.approx(first.confidence, abs=1e-4),
        }
        assert any(each.get("partial") for each in answers)
        metrics = client.get("/metrics").text
    assert "holdfast_speech_clients 0.0" in metrics
    assert "holdfast_speech_batch_streams_count" in metrics


def test_a_reset_begins_a_new_stream(service: Service) -> None:
    data = pcm(sound(1.0))
    config = json.dumps({"config": {"sample_rate": RATE, "words": False}})
    with TestClient(service.app()) as client:
        answers = talk(client, [config, data, '{"reset" : 1}', data, '{"eof" : 1}'])
    assert answers[:2] == answers[2:]
    assert set(answers[1]) == {"text"}


@pytest.mark.parametrize(
    "message",
    [
        "{",
        "[1]",
        '{"config": 1}',
        '{"config": {"sample_rate": "fast"}}',
        '{"config": {"sample_rate": 1}}',
        '{"config": {"sample_rate": 1e999}}',
        '{"config": {"sample_rate": 44101}}',
        '{"config": {"phrase_list": ["a"]}}',
        '{"config": {"max_alternatives": 3}}',
        b"\0",
    ],
)
def test_messages_that_are_not_of_the_protocol_end_the_stream(
    service: Service, message: str | bytes
) -> None:
    with TestClient(service.app()) as client, client.websocket_connect("/") as socket:
        (socket.send_bytes if isinstance(message, bytes) else socket.send_text)(message)
        with pytest.raises(WebSocketDisconnect) as caught:
            socket.receive_json()
        assert caught.value.code == 1003
    assert not service.busy


@pytest.mark.parametrize("form", ["json", "text", "srt", "vtt"])
def test_files_have_the_text_of_the_stream(service: Service, form: str) -> None:
    samples = sound(2.5)
    segments = expected(service, samples)
    with TestClient(service.app()) as client:
        answer = client.post(
            "/v1/audio/transcriptions",
            files={"file": ("a.wav", wav(samples))},
            data={"model": "x", "response_format": form, "stream": "false", "temperature": "0"},
        )
    assert answer.status_code == 200
    if form == "json":
        assert answer.json()["text"] == together(segments).text
    else:
        assert segments[0][0].words[0].word in answer.text


@pytest.mark.parametrize(
    ("files", "data", "status", "code"),
    [
        ({"file": ("a.wav", b"RIFF")}, {}, 400, "unknown-format"),
        ({"file": ("a.wav", wav(sound(0.2))[:-99])}, {}, 400, "damaged"),
        ({"other": ("a.wav", b"RIFF")}, {}, 400, "file"),
        ({"file": ("a.wav", b"RIFF")}, {"response_format": "verbose_json"}, 400, "response_format"),
        ({"file": ("a.wav", b"RIFF")}, {"stream": "true"}, 400, "stream"),
        ({"file": ("a.wav", b"RIFF")}, {"language": "de"}, 400, "language"),
        ({"file": ("a.wav", b"RIFF")}, {"temperature": "0.7"}, 400, "temperature"),
        (
            {"file": ("a.wav", b"RIFF")},
            {"timestamp_granularities[]": ["word"]},
            400,
            "timestamp_granularities[]",
        ),
        ({"file": ("a.wav", b"0" * 2000)}, {}, 413, "file"),
    ],
)
def test_requests_that_cannot_be_answered(
    service: Service,
    files: Any,
    data: Any,
    status: int,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "LARGEST_FILE", 4500 if code == "damaged" else 1500)
    with TestClient(service.app()) as client:
        answer = client.post("/v1/audio/transcriptions", files=files, data=data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_clients_that_die_change_no_other_text(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 streams at a time, of which five stop after some chunks."""
    sounds = [sound(0.8, seed=k) for k in range(40)]
    dying = {3, 11, 18, 26, 39}
    sizes: list[int] = []

    def noted(streams: Any, chunks: Any, ends: Any) -> Any:
        sizes.append(len(streams))
        return advance(streams, chunks, ends)

    monkeypatch.setattr(serving, "advance", noted)

    async def client(number: int) -> str:
        samples, stream, segments = sounds[number], service.stream(), []
        for begin in range(0, len(samples), 800):
            end = begin + 800 >= len(samples)
            segments += await service.advance(stream, samples[begin : begin + 800], end)
            if number in dying and begin >= 160 * number // 2:
                raise asyncio.CancelledError
        return together(segments).text

    async def all_of_them() -> list[Any]:
        async with service.app().router.lifespan_context(service.app()):
            tasks = [asyncio.create_task(client(number)) for number in range(40)]
            await asyncio.sleep(0)  # all have a chunk waiting
            tasks[3].cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(all_of_them())
    for number, samples in enumerate(sounds):
        if number in dying:
            assert isinstance(found[number], asyncio.CancelledError)
        else:
            assert found[number] == together(recognized(service.model, samples, 10**6)[0]).text
    # What waits when a batch ends is the next batch.
    assert max(sizes) > 30


def test_a_fault_in_a_batch_ends_its_streams_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise MemoryError

    data = [pcm(sound(0.5)), '{"eof": 1}']
    with TestClient(service.app(), raise_server_exceptions=False) as client:
        before = talk(client, data)
        with monkeypatch.context() as patch:
            patch.setattr(serving, "advance", broken)
            answer = client.post(
                "/v1/audio/transcriptions", files={"file": ("a.wav", wav(sound(0.5)))}
            )
        assert answer.status_code == 500
        assert talk(client, data) == before
    assert not service.busy


def test_what_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Service(model("two-way"))
    assert caught.value.code == "unsupported"
    of = model("gru")
    write_model(tmp_path, of.description, of.network)
    with pytest.raises(InputError) as caught:
        serving.serve(tmp_path, host="256.0.0.1")
    assert caught.value.code == "address-in-use"
