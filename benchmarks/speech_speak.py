"""Samples per second of the compiled WaveNet on one core, beside what a user could do instead.

    python benchmarks/speech_speak.py [--samples N]

20 layers, 128 skip channels, 16 kHz, random weights; softmax, sampling and conditioning are timed too.
Peers: torch with cached queues, torch over the whole receptive field for each sample, the same loops in
plain Numba, and espeak-ng where it is installed (formant synthesis: for orientation only). Given are CPU
seconds, the best of five. The roofline is measured in the same process: multiplications per second of
torch's product of two matrices of 512 rows, and bytes per second of reading as many weights as the network
has. Writes `benchmarks/results/speech_speak.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from numba import njit

from holdfast.speech.speak.generation import Generator
from holdfast.speech.speak.network import SynthesisSettings, WaveNet
from measuring import limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "speech_speak.json"
RATE, HOP, LAYERS, SKIP = 16_000, 80, 20, 128


def network(residual: int) -> WaveNet:
    """A network with random weights."""
    torch.manual_seed(0)
    return WaveNet(SynthesisSettings(LAYERS, residual, SKIP, conditioned=False))


def multiplications(residual: int) -> int:
    """Per sample."""
    layer = 4 * residual**2 + residual**2 + residual * SKIP
    return LAYERS * layer + SKIP * 256 + 256 * 256


def best(run: Callable[[], object], repeats: int = 5) -> float:
    """Least CPU seconds of some runs, after one that is not counted."""
    run()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return min(found)


def ours(residual: int, precision: str, batch: int, samples: int) -> float:
    """Samples per second, of all utterances together."""
    generator = Generator(network(residual), HOP, batch, precision)
    shape = (batch, samples // HOP, LAYERS, 2 * residual)
    conditioning = np.zeros(shape, np.float32)
    uniforms = np.random.default_rng(0).random((batch, samples)).astype(np.float32)
    seconds = best(lambda: generator.generate(conditioning, uniforms))
    return batch * samples / seconds


@torch.no_grad()
def torch_cached(net: WaveNet, samples: int) -> float:
    """Samples per second of torch, one sample at a time, with queues."""
    r, dilations = net.settings.residual, net.settings.dilations
    queues = [torch.zeros(d, r) for d in dilations]
    uniforms = torch.rand(samples)

    def run() -> None:
        before = last = 128
        for step in range(samples):
            h = net.table[0][before] + net.table[1][last]
            skip = net.skip_bias.clone()
            for layer, (dilation, queue) in enumerate(zip(dilations, queues, strict=True)):
                place = step % dilation
                z = torch.cat([queue[place], h]) @ net.gates[layer] + net.gates_bias[layer]
                queue[place] = h
                g = torch.tanh(z[:r]) * torch.sigmoid(z[r:])
                mixed = g @ net.mix[layer]
                h = h + mixed[:r] + net.mix_bias[layer]
                skip = skip + mixed[r:]
            hidden = torch.relu(torch.relu(skip) @ net.hidden + net.hidden_bias)
            logits = hidden @ net.outputs + net.outputs_bias
            masses = torch.softmax(logits, 0).cumsum(0)
            before, last = last, min(255, int((masses <= uniforms[step]).sum()))

    return samples / best(run, 2)


@torch.no_grad()
def torch_whole(net: WaveNet, samples: int) -> float:
    """Samples per second of torch over the whole receptive field for each sample."""
    field = sum(net.settings.dilations) + 2
    codes = torch.randint(0, 256, (1, field + 1))
    conditioning = net.gates_bias.expand(1, 1, -1, -1)

    def run() -> None:
        for _ in range(samples):
            torch.softmax(net(codes, conditioning)[0, -1], 0).cumsum(0)

    return samples / best(run, 1)


@njit
def _plain(table, gates, mix, hidden, outputs, dilations, queues, uniforms):
    """A reader's first try: NumPy's products in Numba, without unrolling or fused functions."""
    layers, r = gates.shape[0], table.shape[2]
    before, last = 128, 128
    for step in range(uniforms.size):
        h = table[0, before] + table[1, last]
        skip = np.zeros(mix.shape[2] - r, np.float32)
        ring = 0
        for layer in range(layers):
            place = ring + step % dilations[layer]
            ring += dilations[layer]
            z = np.concatenate((queues[place], h)) @ gates[layer]
            queues[place] = h
            g = np.tanh(z[:r]) / (np.float32(1) + np.exp(-z[r:]))
            mixed = g @ mix[layer]
            h = h + mixed[:r]
            skip += mixed[r:]
        top = np.maximum(np.maximum(skip, np.float32(0)) @ hidden, np.float32(0)) @ outputs
        masses = np.exp(top - top.max()).cumsum()
        before, last = last, min(255, np.searchsorted(masses, uniforms[step] * masses[-1]))


def plain_numba(net: WaveNet, samples: int) -> float:
    """Samples per second of `_plain`."""
    parts = [
        getattr(net, name).detach().numpy()
        for name in ["table", "gates", "mix", "hidden", "outputs"]
    ]
    dilations = np.array(net.settings.dilations)
    queues = np.zeros((dilations.sum(), net.settings.residual), np.float32)
    uniforms = np.random.default_rng(0).random(samples).astype(np.float32)
    return samples / best(lambda: _plain(*parts, dilations, queues, uniforms), 3)


def roofline(megabytes: float) -> tuple[float, float]:
    """Multiplications per second of a matrix product, and bytes per second of so many weights."""

    @njit(fastmath=True)
    def total(values):
        found = np.float32(0)
        for k in range(values.size):
            found += values[k]
        return found

    square = torch.ones(512, 512)
    rate = 512**3 / best(lambda: square @ square, 20)
    values = np.ones(int(megabytes * 2**20 / 4), np.float32)
    seconds = best(lambda: [total(values) for _ in range(20)])
    return rate, 20 * values.nbytes / seconds


def espeak() -> float | None:
    """CPU seconds of espeak-ng per second of sound."""
    if not shutil.which("espeak-ng"):
        return None
    from measuring import run

    text = "The river mountain was old, and the garden window was wide. " * 10
    path = Path("/tmp/espeak-orientation.wav")
    spent = run(["espeak-ng", "-w", path, text]).cpu_seconds
    seconds = (path.stat().st_size - 44) / 2 / 22_050
    path.unlink()
    return (spent or 0.0) / seconds


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4000, help="samples per run")
    samples = parser.parse_args().samples // HOP * HOP
    torch.set_num_threads(1)
    where, rows, speed = machine(), [], {}
    for residual, precision, batch in (
        (32, "fp32", 1),
        (32, "int16", 1),
        (64, "fp32", 1),
        (64, "int16", 1),
        (64, "fp32", 8),
        (64, "int16", 8),
    ):
        rate = ours(residual, precision, batch, samples)
        speed[residual, precision, batch] = rate
        work = multiplications(residual)
        bytes_per_sample = work * (4 if precision == "fp32" else 2) / batch
        peak, memory = roofline(work * (4 if precision == "fp32" else 2) / 2**20)
        limit = min(peak / work, memory / bytes_per_sample)
        rows.append(
            {
                "residual": residual,
                "weights": precision,
                "utterances": batch,
                "samples/s": round(rate),
                "x real time": round(rate / RATE, 2),
                "G multiplications/s": round(rate * work / 1e9, 1),
                "compute roof, G/s": round(peak / 1e9, 1),
                "memory roof, GB/s": round(memory / 1e9, 1),
                "share of the roofline, %": round(100 * rate / limit),
            }
        )
    net = network(64)
    peers = {
        "torch, cached queues": torch_cached(net, 200),
        "torch, whole receptive field": torch_whole(net, 3),
        "plain Numba": plain_numba(net, 1000),
    }
    ours_rate = speed[64, "fp32", 1]
    orientation = espeak()
    targets = [
        ("r = 32, fp32: x real time", speed[32, "fp32", 1] / RATE, 5),
        ("r = 32, int16: x real time", speed[32, "int16", 1] / RATE, 5),
        ("r = 64, fp32: x real time", ours_rate / RATE, 1.5),
        ("r = 64, int16: x real time", speed[64, "int16", 1] / RATE, 2.5),
        ("r = 64, fp32: eight utterances / one", speed[64, "fp32", 8] / ours_rate, 4),
        ("r = 64, fp32: / torch with cached queues", ours_rate / peers["torch, cached queues"], 15),
    ]
    table = [
        {"peer": name, "samples/s": round(rate, 1), "ours / peer": round(ours_rate / rate, 1)}
        for name, rate in peers.items()
    ]
    notes = ["CPU seconds, the best of five; the machine was shared."]
    if orientation is not None:
        notes.append(f"espeak-ng, for orientation: {1 / orientation:.0f}x real time.")
    result = {
        "title": "Samples of a WaveNet",
        "script": "benchmarks/speech_speak.py",
        "input": f"{LAYERS} layers, {SKIP} skip channels, 16 kHz, random weights, one core",
        "comparisons": [],
        "limits": [
            {**limited(what, value, "x", least), "least": True} for what, value, least in targets
        ],
        "figures": {},
        "tables": [
            {"caption": "Speed against the roofline", "rows": rows},
            {"caption": "Peers, r = 64", "rows": table},
        ],
        "notes": notes,
        "machine": where,
        "versions": {"numba": numba.__version__, "torch": torch.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
