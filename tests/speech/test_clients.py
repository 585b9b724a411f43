"""`holdfast speech serve` as a process: real clients, and its end while a stream is open."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
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
