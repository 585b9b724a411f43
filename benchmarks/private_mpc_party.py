"""What each party of `private_mpc.py` runs with holdfast."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.private import mpc
from holdfast.private.mpc.functions import softmax

sys.path.insert(0, str(Path(__file__).resolve().parent))
import private_mpc_inputs as inputs

REPEATS = 3
BOUND = 32.0  # of all inputs: normal numbers, images, scores


def cases(party: mpc.Party) -> dict[str, tuple[Callable[[], Any], np.ndarray]]:
    """Case -> what is measured, and the result in plaintext."""

    def shared(values: np.ndarray) -> mpc.SharedTensor:
        return party.secret(torch.from_numpy(values), owner=0, shape=values.shape, bound=BOUND)

    a, b = shared(inputs.draw(1, inputs.ELEMENTS)), shared(inputs.draw(2, inputs.ELEMENTS))
    logits = shared(inputs.draw(3, *inputs.SOFTMAX, scale=3.0))
    rows, width, outputs = inputs.LINEAR
    x = shared(inputs.draw(4, rows, width))
    linear_module = nn.Linear(width, outputs, bias=False)
    linear_module.weight.data = torch.from_numpy(inputs.draw(5, outputs, width, scale=0.03))
    linear = mpc.import_model(party, linear_module, torch.zeros(rows, width), owner=1)
    lenet_module, image = lenet(), inputs.draw(6, 1, 1, 28, 28)
    model = mpc.import_model(party, lenet_module, torch.from_numpy(image), owner=1)
    encoder, text = (
        transformer(),
        inputs.draw(7, 1, inputs.BLOCK["sequence"], inputs.BLOCK["width"]),
    )
    block = mpc.import_model(party, encoder, torch.from_numpy(text), owner=1)
    picture, sequence = shared(image), shared(text)
    svm = [shared(values) for values in inputs.svm_inputs()]
    with torch.no_grad():
        return {
            "comparison": (
                lambda: a > b,
                inputs.draw(1, inputs.ELEMENTS) > inputs.draw(2, inputs.ELEMENTS),
            ),
            "softmax": (
                lambda: softmax(logits),
                torch.from_numpy(inputs.draw(3, *inputs.SOFTMAX, scale=3.0)).softmax(-1).numpy(),
            ),
            "linear": (
                lambda: linear(x),
                linear_module(torch.from_numpy(inputs.draw(4, rows, width))).numpy(),
            ),
            "svm": (
                lambda: inputs.svm(*svm),
                inputs.svm(*map(torch.from_numpy, inputs.svm_inputs())).numpy(),
            ),
            "lenet": (lambda: model(picture), lenet_module(torch.from_numpy(image)).numpy()),
            "transformer": (lambda: block(sequence), encoder(torch.from_numpy(text)).numpy()),
        }


def lenet() -> nn.Module:
    """LeNet with 20 and 50 channels."""
    module = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    module.load_state_dict({name: torch.from_numpy(w) for name, w in inputs.lenet().items()})
    return module.eval()


def transformer() -> nn.Module:
    """Encoder layers with GELU."""
    size = inputs.BLOCK
    layer = nn.TransformerEncoderLayer(
        size["width"], size["heads"], size["hidden"], activation="gelu", batch_first=True
    )
    encoder = nn.TransformerEncoder(layer, size["layers"], enable_nested_tensor=False)
    for number, each in enumerate(encoder.layers):
        weights = inputs.block(number)
        each.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    return encoder.eval()


def main(party: mpc.Party) -> dict[str, Any]:
    """Rounds, bytes sent, seconds (median) and largest error of each case."""
    measured = {}
    for name, (call, expected) in cases(party).items():
        seconds, cpu = [], []
        for _ in range(REPEATS + 1):
            party.channel.exchange(b"x")  # both begin now
            before = party.channel.ledger.total()
            start, start_cpu = time.perf_counter(), time.process_time()
            result = call()
            if result.scale > party.fraction_bits:
                result = result.narrowed()  # a product is finished when it is truncated
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
            after = party.channel.ledger.total()
        measured[name] = {
            "rounds": after.rounds - before.rounds,
            "bytes": after.bytes_sent - before.bytes_sent,
            "cpu_s": statistics.median(cpu[1:]),
            "seconds": statistics.median(seconds[1:]),  # the first call compiles and allocates
            "offline_bytes": after.offline_bytes - before.offline_bytes,
            "error": float(np.abs(result.reveal().numpy() - expected).max()),
        }
    return measured
