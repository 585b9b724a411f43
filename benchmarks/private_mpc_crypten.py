"""What CrypTen 0.4.1 runs for `private_mpc.py`, in its own environment; prints JSON.

    python private_mpc_crypten.py DELAY_S

Two processes over gloo on loopback, as CrypTen's launcher starts them. DELAY_S is slept before every
collective, for the network that it has no way to imitate itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import types

# CrypTen 0.4.1 imports a private module of torch that is gone; it needs it for ONNX alone.
stub = types.ModuleType("torch.onnx._internal.registration")
stub.registry = types.SimpleNamespace()
sys.modules["torch.onnx._internal.registration"] = stub

import crypten  # noqa: E402
import crypten.communicator as comm  # noqa: E402
import crypten.mpc  # noqa: E402
import torch  # noqa: E402
from crypten.communicator import DistributedCommunicator  # noqa: E402
from crypten.config import cfg  # noqa: E402

import private_mpc_inputs as inputs  # noqa: E402

DELAY = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
REPEATS = 3


def delay_collectives() -> None:
    """Sleep before every collective: the time that its messages are on their way."""
    for name in (
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather",
        "gather",
        "scatter",
        "send",
        "recv",
    ):
        original = getattr(DistributedCommunicator, name)

        def delayed(self, *args, original=original, **kwargs):
            time.sleep(DELAY)
            return original(self, *args, **kwargs)

        setattr(DistributedCommunicator, name, delayed)


@crypten.mpc.run_multiprocess(world_size=2)
def run():
    torch.set_num_threads(1)
    cfg.communicator.verbose = True
    if DELAY:
        delay_collectives()

    def shared(values):
        return crypten.cryptensor(torch.from_numpy(values), src=0)

    a, b = shared(inputs.draw(1, inputs.ELEMENTS)), shared(inputs.draw(2, inputs.ELEMENTS))
    logits = shared(inputs.draw(3, *inputs.SOFTMAX, scale=3.0))
    rows, width, outputs = inputs.LINEAR
    x = shared(inputs.draw(4, rows, width))
    weight = shared(inputs.draw(5, outputs, width, scale=0.03)).t()
    image = shared(inputs.draw(6, 1, 1, 28, 28))
    svm = [shared(values) for values in inputs.svm_inputs()]
    w = {name: shared(values) for name, values in inputs.lenet().items()}

    def lenet():
        y = image.conv2d(w["0.weight"]) + w["0.bias"].reshape(1, -1, 1, 1)
        y = y.relu().max_pool2d(2)
        y = y.conv2d(w["3.weight"]) + w["3.bias"].reshape(1, -1, 1, 1)
        y = y.relu().max_pool2d(2).reshape(1, 800)
        y = (y.matmul(w["7.weight"].t()) + w["7.bias"]).relu()
        return y.matmul(w["9.weight"].t()) + w["9.bias"]

    plain = {name: torch.from_numpy(values) for name, values in inputs.lenet().items()}
    y = torch.nn.functional.conv2d(
        torch.from_numpy(inputs.draw(6, 1, 1, 28, 28)), plain["0.weight"], plain["0.bias"]
    )
    y = torch.nn.functional.conv2d(
        torch.nn.functional.max_pool2d(y.relu(), 2), plain["3.weight"], plain["3.bias"]
    )
    y = torch.nn.functional.max_pool2d(y.relu(), 2).reshape(1, 800)
    y = (y @ plain["7.weight"].t() + plain["7.bias"]).relu() @ plain["9.weight"].t() + plain[
        "9.bias"
    ]
    expected = {
        "comparison": torch.from_numpy(
            inputs.draw(1, inputs.ELEMENTS) > inputs.draw(2, inputs.ELEMENTS)
        ),
        "softmax": torch.from_numpy(inputs.draw(3, *inputs.SOFTMAX, scale=3.0)).softmax(-1),
        "linear": torch.from_numpy(
            inputs.draw(4, rows, width) @ inputs.draw(5, outputs, width, scale=0.03).T
        ),
        "svm": inputs.svm(*map(torch.from_numpy, inputs.svm_inputs())),
        "lenet": y,
    }
    measured = {}
    communicator = comm.get()
    for name, call in {
        "comparison": lambda: a > b,
        "softmax": lambda: logits.softmax(1),
        "linear": lambda: x.matmul(weight),
        "svm": lambda: inputs.svm(*svm),
        "lenet": lenet,
    }.items():
        seconds, cpu = [], []
        for _ in range(REPEATS + 1):
            communicator.barrier()
            communicator.reset_communication_stats()
            start, start_cpu = time.perf_counter(), time.process_time()
            result = call()
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
            stats = communicator.get_communication_stats()
        measured[name] = {
            "rounds": stats["rounds"],
            "bytes": stats["bytes"],
            "cpu_s": statistics.median(cpu[1:]),
            "seconds": statistics.median(seconds[1:]),
            "error": float((result.get_plain_text() - expected[name].float()).abs().max()),
        }
    return measured


if __name__ == "__main__":
    print(json.dumps(run()[0]))
