"""The pipelines of `pipeline_tune.py`: images, detection, two of text, speech, a store of 50 ms GETs."""

from __future__ import annotations

import asyncio
import atexit
import gettext
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import wave
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

DATA = Path(
    os.environ.get("PIPELINE_IMAGES", Path(__file__).resolve().parents[2] / "shared/data/jpeg")
)
SENTENCE = "Number {} of the sentences that are spoken, in {} words or a few more."


class Compose:
    """Transforms in a row."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        """Apply them."""
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Samples(Dataset[Any]):
    """Samples that are read by index, again and again up to a length."""

    def __init__(
        self, read: Callable[[int], Any], length: int, transform: Callable[[Any], Any]
    ) -> None:
        self.read, self.length, self.transform = read, length, transform

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.read(index))


# --- Images and detection ------------------------------------------------------------------------


def _pictures() -> list[Path]:
    pictures = sorted(DATA.rglob("*.jpg"))
    if not pictures:
        raise SystemExit(f"no JPEG files in {DATA}; name a folder in PIPELINE_IMAGES")
    return pictures


def decode(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def random_resized_crop(image: Any) -> np.ndarray:
    share = float(torch.empty(1).uniform_(0.3, 1.0)) ** 0.5
    width, height = int(image.width * share), int(image.height * share)
    left = int(torch.randint(image.width - width + 1, (1,)))
    top = int(torch.randint(image.height - height + 1, (1,)))
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((224, 224), box=box))


def normalize(image: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(image.copy()).permute(2, 0, 1).float().div_(255)
    return tensor.sub_(0.45).div_(0.23)


def images() -> DataLoader[Any]:
    pictures = _pictures()
    chain = Compose([decode, random_resized_crop, normalize])
    dataset = Samples(lambda n: pictures[n % len(pictures)].read_bytes(), 2048, chain)
    return DataLoader(dataset, batch_size=8, shuffle=True)


def read_boxes(pictures: list[Path], index: int) -> dict[str, Any]:
    generator = np.random.default_rng(index)
    corners = np.sort(generator.uniform(0, 1, (6, 2, 2)), axis=1).reshape(6, 4)
    return {
        "data": pictures[index % len(pictures)].read_bytes(),
        "boxes": corners.astype(np.float32),
        "flip": bool(generator.integers(2)),  # drawn by index: the same for any number of workers
    }


def decode_boxes(sample: dict[str, Any]) -> dict[str, Any]:
    image = decode(sample["data"])
    image.thumbnail((512, 512))
    return {**sample, "image": np.asarray(image)}


def flip(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["flip"]:
        boxes = sample["boxes"][:, [2, 1, 0, 3]].copy()
        boxes[:, [0, 2]] = 1 - boxes[:, [0, 2]]
        return {**sample, "image": sample["image"][:, ::-1], "boxes": boxes}
    return sample


def pad_boxes(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    pixels = torch.zeros(len(samples), 3, 512, 512)
    for row, sample in enumerate(samples):
        image = torch.from_numpy(sample["image"].copy()).permute(2, 0, 1).float().div_(255)
        pixels[row, :, : image.shape[1], : image.shape[2]] = image
    return {"pixels": pixels, "boxes": torch.stack([torch.tensor(s["boxes"]) for s in samples])}


def detection() -> DataLoader[Any]:
    chain = Compose([decode_boxes, flip])
    dataset = Samples(partial(read_boxes, _pictures()), 4096, chain)
    return DataLoader(dataset, batch_size=8, collate_fn=pad_boxes, shuffle=True)


# --- Text ----------------------------------------------------------------------------------------


def tokenize(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % 32_000 for word in re.findall(r"\w+|[^\w\s]", text.lower())]


def tokenize_pair(pair: tuple[str, str]) -> tuple[list[int], list[int]]:
    return tokenize(pair[0]), tokenize(pair[1])


def pad(tokens: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, tokens))
    return torch.tensor([row + [0] * (longest - len(row)) for row in tokens])


def pad_pairs(pairs: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    return pad([left for left, _ in pairs]), pad([right for _, right in pairs])


def buckets(lengths: list[int], size: int) -> list[list[int]]:
    """Batches of texts of similar length, in random order."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    random.Random(0).shuffle(batches)
    return batches


def documents() -> DataLoader[Any]:
    """The documents of the installed Debian packages."""
    files = sorted(Path("/usr/share/doc").glob("*/copyright"))[:512]
    order = buckets([file.stat().st_size for file in files], 8)
    dataset = Samples(lambda n: files[n].read_text(errors="replace"), len(files), tokenize)
    return DataLoader(dataset, batch_sampler=order, collate_fn=pad)


def translations() -> DataLoader[Any]:
    """Pairs of messages and their translations, from gettext catalogues."""
    pairs: list[tuple[str, str]] = []
    for path in sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalogue: dict[Any, Any] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeDecodeError):
            continue
        pairs += [
            (key, str(value)) for key, value in catalogue.items() if isinstance(key, str) and key
        ]
        if len(pairs) > 20_000:
            break
    if not pairs:
        raise SystemExit("no gettext catalogues in /usr/share/locale")
    dataset = Samples(pairs.__getitem__, len(pairs), tokenize_pair)
    order = buckets([len(left) for left, _ in pairs], 64)
    return DataLoader(dataset, batch_sampler=order, collate_fn=pad_pairs)


# --- Speech --------------------------------------------------------------------------------------


def recordings(count: int = 64) -> list[Path]:
    """Sentences that espeak-ng speaks, or tones without it."""
    folder = Path(tempfile.gettempdir()) / "holdfast-pipeline-speech"
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number}.wav" for number in range(count)]
    for number, path in enumerate(files):
        if path.exists():
            continue
        if shutil.which("espeak-ng"):
            text = SENTENCE.format(number, number % 9 + 12)
            subprocess.run(["espeak-ng", "-w", path, text], check=True)
            continue
        tone = np.sin(np.arange(44_100 + 1000 * number) * 0.02 * (number + 1)) * 9000
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 22_050, 0, "NONE", ""))
            file.writeframes(tone.astype(np.int16).tobytes())
    return files


def read_wave(files: list[Path], index: int) -> torch.Tensor:
    with wave.open(str(files[index % len(files)])) as file:
        data = file.readframes(file.getnframes())
    return torch.from_numpy(np.frombuffer(data, np.int16).astype(np.float32) / 32768)


def mel_bank(bins: int = 257, bands: int = 80, rate: int = 22_050) -> torch.Tensor:
    """Triangles on the mel scale, shape [bands, bins]."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1) / (rate / 2) * (bins - 1)
    at = np.arange(bins)
    rise = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return torch.from_numpy(np.clip(np.minimum(rise, fall), 0, None).astype(np.float32))


def log_mel(bank: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(512)
    spectrum = torch.stft(signal, 512, 160, window=window, return_complex=True).abs() ** 2
    return (bank @ spectrum).clamp_min(1e-10).log().T


def pad_frames(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def speech() -> DataLoader[Any]:
    files = recordings()
    dataset = Samples(partial(read_wave, files), 2048, Compose([partial(log_mel, mel_bank())]))
    return DataLoader(dataset, batch_size=8, collate_fn=pad_frames, shuffle=True)


# --- Latency -------------------------------------------------------------------------------------


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.05)
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 4096\r\n\r\n" + bytes(4096))
    await writer.drain()
    writer.close()


async def serve() -> None:
    """Serve in a process of its own, and print the port."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


_server: list[str] = []


def get(address: str, index: int) -> torch.Tensor:
    with urllib.request.urlopen(f"{address}/{index}") as answer:
        return torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8)


def store() -> DataLoader[Any]:
    """A store on the loopback that answers after 50 ms."""
    if not _server:
        command = [sys.executable, __file__]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(server.kill)
        assert server.stdout is not None
        _server.append(f"http://127.0.0.1:{int(server.stdout.readline())}")
    return DataLoader(Samples(partial(get, _server[0]), 100_000, Compose([])), batch_size=4)


PIPELINES = {
    "images": images,
    "detection": detection,
    "documents": documents,
    "translations": translations,
    "speech": speech,
}

if __name__ == "__main__":
    asyncio.run(serve())
