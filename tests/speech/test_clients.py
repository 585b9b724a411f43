"""`holdfast speech serve` as a process: real clients, and its end while a stream is open."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import soundfile
from websockets.sync.client import connect

from holdfast.speech.recognize import read_audio, recognize
from holdfast.speech.recognize.audio import resample

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "examples" / "speech" / "model"
STRINGS = sorted((REPOSITORY / "examples" / "speech" / "strings").glob("*.wav"))
CLIENTS = REPOSITORY / ".venv-clients" / "bin" / "python"
_RUN = "import sys; from holdfast.cli import main; sys.exit(main(sys.argv[1:]))"

pytestmark = pytest.mark.full


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and its address."""
    words = [sys.executable, "-c", _RUN, "speech", "serve", str(MODEL), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(each for each in process.stderr if "ws://" in each)
        yield process, line.split("ws://")[1].split()[0]
        process.kill()


@pytest.mark.skipif(not CLIENTS.exists(), reason="no environment: make .venv-clients/.installed")
def test_the_clients_of_vosk_and_openai(
    server: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    for path in STRINGS:
        samples = resample(read_audio(path, 8000).samples, 8000, 16_000)
        soundfile.write(tmp_path / path.name, samples, 16_000, "PCM_16")
        words = [CLIENTS, REPOSITORY / "tests/speech/clients.py", server[1], tmp_path / path.name]
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        expected = recognize(MODEL, [tmp_path / path.name]).transcripts[0].text
        found = json.loads(printed)
        assert found["openai"] == expected
        assert " ".join(found["vosk"].split()) == expected


def test_forty_clients_of_which_five_vanish(server: tuple[subprocess.Popen[str], str]) -> None:
    expected = [each.text for each in recognize(MODEL, STRINGS).transcripts]
    data = [(read_audio(path, 8000).samples * 32768).astype("<i2").tobytes() for path in STRINGS]
    vanish = {2: 1, 9: 4, 17: 7, 30: 10, 38: 13}  # client -> messages that it sends

    def speak(number: int) -> str:
        own, texts = data[number % len(data)], []
        with connect(f"ws://{server[1]}") as client:
            client.send(json.dumps({"config": {"sample_rate": 8000}}))
            for sent, begin in enumerate(range(0, len(own), 1600)):
                client.send(own[begin : begin + 1600])
                if sent == vanish.get(number):
                    client.socket.shutdown(socket.SHUT_RDWR)  # without a word
                    return ""
                texts.append(json.loads(client.recv()).get("text", ""))
            client.send('{"eof": 1}')
            texts.append(json.loads(client.recv())["text"])
        return " ".join(" ".join(texts).split())

    with ThreadPoolExecutor(40) as pool:
        found = list(pool.map(speak, range(40)))
    for number, text in enumerate(found):
        assert text == ("" if number in vanish else expected[number % len(expected)])


def test_clients_finish_when_the_server_ends(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    audio = read_audio(STRINGS[0], 8000)
    data = (audio.samples * 32768).astype("<i2").tobytes()
    with connect(f"ws://{address}") as client:
        client.send(json.dumps({"config": {"sample_rate": 8000}}))
        client.send(data[:4000])
        client.recv()
        process.send_signal(signal.SIGTERM)
        texts = []
        for begin in range(4000, len(data), 4000):
            client.send(data[begin : begin + 4000])
            texts.append(json.loads(client.recv()).get("text", ""))
        client.send('{"eof": 1}')
        texts.append(json.loads(client.recv())["text"])
    assert " ".join(" ".join(texts).split()) == recognize(MODEL, STRINGS[:1]).transcripts[0].text
    assert process.wait(30) == -signal.SIGTERM
    with pytest.raises(ConnectionError):
        connect(f"ws://{address}")
