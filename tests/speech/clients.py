"""Ask a server with the clients of Vosk and OpenAI, where these are installed; print both texts.

    PYTHON tests/speech/clients.py HOST:PORT FILE.wav

FILE.wav: 16-bit mono at 16 kHz. What talks to the server in `vosk-transcriber --server` is called as the
program calls it; the program itself downloads a model before that, and converts the file with ffmpeg.
"""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from pathlib import Path
from types import SimpleNamespace


def vosk(address: str, path: str) -> str:
    """Texts of all segments."""
    from vosk.transcriber.transcriber import Transcriber

    client = Transcriber.__new__(Transcriber)
    client.args = SimpleNamespace(server=f"ws://{address}", output_type="txt")

    async def talk() -> str:
        with wave.open(path) as file:
            samples = file.readframes(file.getnframes())
        stdout = asyncio.StreamReader()
        stdout.feed_data(samples)
        stdout.feed_eof()
        result, _ = await client.recognize_stream_server(SimpleNamespace(stdout=stdout))
        return client.format_result(result)

    return asyncio.run(talk())


def openai(address: str, path: str) -> str:
    """Text of the file."""
    from openai import OpenAI

    client = OpenAI(base_url=f"http://{address}/v1", api_key="none")
    with Path(path).open("rb") as file:
        return client.audio.transcriptions.create(model="digits", file=file).text


if __name__ == "__main__":
    print(json.dumps({"vosk": vosk(*sys.argv[1:]), "openai": openai(*sys.argv[1:])}))
