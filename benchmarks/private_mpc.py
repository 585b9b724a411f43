"""Secure computation between two parties: holdfast beside CrypTen 0.4.1 and SPU 0.9.5.

    python benchmarks/private_mpc.py [--peers DIR] [--mnist DIR]

Comparison, softmax, a linear layer with fixed weights, steps of a linear SVM, LeNet on one image, two
transformer layers; on loopback, and with 40 ms of round-trip time. The dealer is online, so its time is in
ours, as the triples are in CrypTen's; with preprocessing from stores ours is measured too. Contenders
take turns; one thread per party. Then top-1 of a
LeNet on the test images of MNIST, in plaintext and on secrets. The peers live in DIR/crypten and DIR/spu,
which the script makes. Writes `benchmarks/results/private_mpc.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from holdfast.private.mpc.launch import run_local
from holdfast.private.mpc.store import write_stores
from holdfast.private.mpc.transport import Network
from measuring import compared, limited, machine
from private_mpc_inputs import ELEMENTS

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "private_mpc.json"
PARTY = HERE / "private_mpc_party.py"
WAN = Network(delay_s=0.020)
CASES = {
    "comparison": "comparison of 10,000 pairs",
    "softmax": "softmax, 100 x 10",
    "linear": "linear layer, 128 x 768 x 768, fixed weights",
    "svm": "5 steps of a linear SVM, 100 features, 50 rows",
    "lenet": "LeNet, one image",
    "transformer": "2 transformer layers (width 128, 32 tokens)",
}
PEERS = {
    "crypten": (
        ["torch==2.13.0", "numpy", "setuptools<81", "omegaconf", "onnx", "pandas", "pyyaml", "tensorboard",
         "future", "scipy", "scikit-learn"],
        ["crypten==0.4.1"],
    ),
    "spu": (["spu==0.9.5"], []),
}  # fmt: skip
"""Peer -> packages, and packages without what they ask for (which does not exist any more)."""


# --- Contenders ----------------------------------------------------------------------------------


def python_of(peer: str, folder: Path) -> Path:
    """The interpreter of a peer's environment, which is made where it is missing."""
    python = folder / peer / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / peer], check=True)
        pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        packages, alone = PEERS[peer]
        subprocess.run([*pip, *packages], check=True)
        if alone:
            subprocess.run([*pip, "--no-deps", *alone], check=True)
    return python


def peer_run(peer: str, folder: Path, delay_s: float = 0.0) -> dict[str, Any]:
    """One process of a peer that measures all its cases."""
    command = [
        python_of(peer, folder),
        "-W",
        "ignore",
        HERE / f"private_mpc_{peer}.py",
        str(delay_s),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return dict(json.loads(output.stdout.splitlines()[-1]))


def our_run(folder: Path, items: Sequence[Any], network: Network | None = None) -> dict[str, Any]:
    """All cases at two parties with preprocessing from fresh stores; the slower party counts."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        write_stores(Path(name), items, 2, 1)
        results = run_local(2, PARTY, stores=Path(name), network=network, threads=1)
    return slower([each.result for each in results])


def our_live_run(network: Network | None = None, **settings: Any) -> dict[str, Any]:
    """All cases at two parties with a dealer that is online, behind the same network."""
    results = run_local(2, PARTY, network=network, threads=1, **settings)
    return slower([each.result for each in results])


def slower(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Per case, the largest figure of all parties."""
    return {
        case: {name: max(each[case][name] for each in results) for name in results[0][case]}
        for case in results[0]
    }


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Per case: medians of the times, and the figures that are always the same."""
    merged = {}
    for case in runs[0]:
        seconds = [each[case]["seconds"] for each in runs]
        merged[case] = {
            **runs[0][case],
            "cpu_s": statistics.median(each[case].get("cpu_s", 0.0) for each in runs),
            "seconds": statistics.median(seconds),
            "min_s": min(seconds),
            "max_s": max(seconds),
        }
    return merged


def interleaved(options: argparse.Namespace) -> dict[str, Any]:
    """Runs of all contenders, in turn."""
    runs: dict[str, list[Any]] = {}

    def add(name: str, result: dict[str, Any]) -> None:
        runs.setdefault(name, []).append(result)
        print(f"{name}: run {len(runs[name])}", flush=True)

    with tempfile.TemporaryDirectory(prefix="private-mpc-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name  # the records of these stores go with them
        add("holdfast dcf", our_live_run(comparison="dcf"))
        items = run_local(2, PARTY, threads=1)[0].items
        for _ in range(options.runs):
            add("holdfast", our_live_run())
            add("holdfast stores", our_run(folder, items))
            add("crypten", peer_run("crypten", options.peers))
            add("spu", peer_run("spu", options.peers))
        for _ in range(min(3, options.runs)):
            add("holdfast wan", our_live_run(WAN))
            add("holdfast stores wan", our_run(folder, items, WAN))
            add("crypten wan", peer_run("crypten", options.peers, WAN.delay_s))
    return {name: medians(each) for name, each in runs.items()}


# --- Top-1 on MNIST ------------------------------------------------------------------------------

SCORE = """
import numpy as np, torch
from safetensors.torch import load_file
from torch import nn
from holdfast.private import mpc

BATCH = {batch}

def main(party):
    module = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)).eval()
    images = torch.from_numpy(np.load({images!r})) if party.rank == 0 else torch.zeros({count}, 1, 28, 28)
    weights = {weights!r} if party.rank == 1 else None
    model = mpc.import_model(party, module, images[:BATCH], owner=1, weights=weights)
    answers = []
    for start in range(0, len(images), BATCH):
        x = party.secret(images[start:start + BATCH], owner=0, shape=(BATCH, 1, 28, 28))
        answers.append(model(x).argmax(-1).reveal(to=0))
    return torch.cat(answers) if party.rank == 0 else None
"""


def read_mnist(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The 10,000 test images [10000, 1, 28, 28] and labels."""
    images = gzip.decompress((folder / "mnist-t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "mnist-t10k-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return torch.from_numpy(pixels / np.float32(255)), torch.from_numpy(
        np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    )


def top1(folder: Path, count: int, batch: int = 100) -> dict[str, Any]:
    """Train a LeNet on 8,000 of the images, classify the last `count` in plaintext and on secrets."""
    images, labels = read_mnist(folder)
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for rows in torch.randperm(8_000).split(64):
            loss = nn.functional.cross_entropy(module(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    module.eval()
    with torch.no_grad():
        plain = torch.cat([module(part).argmax(1) for part in images.split(1000)])[-count:]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        save_file(module.state_dict(), place / "lenet.safetensors")
        np.save(place / "images.npy", images[-count:].numpy())
        script = place / "score.py"
        script.write_text(
            SCORE.format(
                batch=batch,
                count=count,
                images=str(place / "images.npy"),
                weights=str(place / "lenet.safetensors"),
            )
        )
        start = time.perf_counter()
        results = run_local(2, script, threads=1)
        seconds = time.perf_counter() - start
    secret = torch.tensor(results[0].result)
    labels = labels[-count:]
    held_out = slice(-2_000, None)  # not seen in training
    return {
        "images": count,
        "equal": int((secret == plain).sum()),
        "accuracy_plain": float((plain == labels)[held_out].float().mean()),
        "accuracy_secret": float((secret == labels)[held_out].float().mean()),
        "seconds": seconds,
        "batch": batch,
    }


# --- Results -------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    torch.set_num_threads(1)
    host = machine()
    before = json.loads(options.result.read_text()) if not options.runs else None
    measured = before["figures"]["measured"] if before else interleaved(options)
    runs = before["figures"]["runs"] if before else options.runs
    accuracy = None
    if options.images and options.mnist.exists():
        accuracy = top1(options.mnist, options.images)
    host["load_after"] = round(os.getloadavg()[0], 2)
    text = json.dumps(_results(host, measured, accuracy, runs), indent=2) + "\n"
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _results(
    host: dict[str, Any], measured: dict[str, Any], accuracy: dict[str, Any] | None, runs: int
) -> dict[str, Any]:
    ours, stores = measured["holdfast"], measured["holdfast stores"]
    crypten, spu = measured["crypten"], measured["spu"]
    comparisons = []
    for suffix, network, goals in (("", "", {"lenet": 3.0}), (" wan", ", 40 ms", {"lenet": 2.5})):
        for name, kind in (("holdfast", ""), ("holdfast stores", ", stores")):
            mine, peer = measured[name + suffix], measured["crypten" + suffix]
            comparisons += [
                compared(
                    CASES[case] + network + kind, mine[case]["seconds"],
                    "CrypTen", peer[case]["seconds"], goals.get(case),
                )
                for case in CASES
                if case in peer
            ]  # fmt: skip
    comparisons += [
        compared(
            what, ours[case]["seconds"], "SPU", spu[case]["seconds"],
            1.0 if case == "transformer" else None,
        )
        for case, what in CASES.items()
        if case in spu
    ]  # fmt: skip
    dcf = measured["holdfast dcf"]
    limits = [
        limited("bytes per comparison", ours["comparison"]["bytes"] / ELEMENTS, "B", 45),
        limited("rounds of a comparison", ours["comparison"]["rounds"], "", 5),
        limited("rounds of softmax, 100 x 10", ours["softmax"]["rounds"], "", 40),
        limited(
            "sent per linear layer, with exact truncation",
            ours["linear"]["bytes"] / 1e6,
            "MB",
            0.79,
        ),
        limited("rounds of LeNet", ours["lenet"]["rounds"], "", 50),
        limited("sent per party by LeNet", ours["lenet"]["bytes"] / 1e6, "MB", 1.2),
        limited("rounds of LeNet, function secret sharing", dcf["lenet"]["rounds"], "", 20),
        limited("error of the transformer", ours["transformer"]["error"], "", 1e-2),
    ]
    limits += [
        limited(
            f"{CASES[case]}: time with a dealer over time with stores",
            ours[case]["seconds"] / stores[case]["seconds"],
            "",
            1.5,
        )
        for case in ("svm", "softmax", "lenet")
    ]
    limits += [
        limited(f"{name} {what}", run[case][figure] * scale, unit)
        for case in ("comparison", "softmax", "lenet")
        for name, run, half in (("holdfast", ours, 1.0), ("CrypTen", crypten, 0.5))
        for figure, what, scale, unit in (
            ("rounds", f"rounds, {CASES[case]}", 1.0, ""),
            # CrypTen counts what is sent and what is received.
            ("bytes", f"sent per party, {CASES[case]}", half * 1e-6, "MB"),
        )
    ]
    if accuracy:
        count = accuracy["images"]
        what = f"MNIST images classified otherwise, of {count:,}"
        limits.append(limited(what, count - accuracy["equal"], "", count // 1000))
    return {
        "title": "Secure multi-party computation",
        "script": "benchmarks/private_mpc.py",
        "input": (
            "two parties; random numbers for single operations, LeNet with 20 and 50 channels, and encoder "
            "layers of width 128 with 4 heads and GELU"
        ),
        "comparisons": comparisons,
        "limits": limits,
        "figures": {"measured": measured, "mnist": accuracy, "runs": runs},
        "machine": host,
        "versions": {
            **{name: version(name) for name in ("holdfast", "torch", "cryptography", "numpy")},
            "crypten": "0.4.1",
            "spu": "0.9.5",
        },
        "notes": _notes(measured, accuracy, runs, host),
    }


def _notes(
    measured: dict[str, Any], accuracy: dict[str, Any] | None, runs: int, host: dict[str, Any]
) -> list[str]:
    live = measured["holdfast"]["lenet"]
    notes = [
        f"Medians of {runs} processes in turn (40 ms: {min(3, runs)}), each the median of 3 calls after a "
        f"first one; one thread per party. Load after: {host['load_after']}.",
        "holdfast: two processes, TLS 1.3, and a dealer that is online and works ahead; the corrections of "
        f"a call of LeNet are {live['offline_bytes'] / 1e6:.1f} MB. Stores: preprocessing that a dealer "
        "made before, which is not timed.",
        "CrypTen: two processes, gloo without encryption; party 0 makes the triples meanwhile, which "
        "gives it both inputs. It has neither GELU nor layer normalization.",
        "SPU: SEMI2K; parties are threads and messages stay in memory, as in its own simulator.",
        "Processor time of a party per call, ms, holdfast / CrypTen: "
        + ", ".join(
            f"{case} {1e3 * measured['holdfast'][case]['cpu_s']:.0f} / {1e3 * each['cpu_s']:.0f}"
            for case, each in measured["crypten"].items()
        )
        + ".",
        "MP-SPDZ was not run. Published: a comparison of 64-bit numbers with edaBits opens a number of 128 "
        "bits and a bit, and takes 118 ANDs of 2 bits, 365 bits or 46 B per party online (its author, "
        "data61/MP-SPDZ issue 1405). Training a network of 2 convolutional and 2 dense layers on MNIST "
        "takes under 1 h to 99 %, 3.5 h to 99.2 % (Keller and Sun, ICML 2022, abstract).",
        "40 ms: holdfast's transport delays every message by 20 ms; CrypTen sleeps 20 ms before every "
        "collective.",
    ]
    if accuracy:
        notes.append(
            "MNIST: LeNet trained on the first 8,000 test images; accuracy on the others that were "
            f"classified is {accuracy['accuracy_plain']:.4f} in plaintext and "
            f"{accuracy['accuracy_secret']:.4f} on secrets; {accuracy['images']:,} images in batches of "
            f"{accuracy['batch']} take {accuracy['seconds']:.0f} s with a dealer that is online."
        )
    return notes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-private")
    parser.add_argument("--mnist", type=Path, default=HERE.parents[1] / "shared/data/mnist")
    parser.add_argument("--images", type=int, default=10_000, help="MNIST images; 0: none")
    parser.add_argument("--runs", type=int, default=5, help="0: keep what the result file has")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
