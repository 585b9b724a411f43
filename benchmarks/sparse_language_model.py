r"""A character language model, dense and pruned while it trains: is wide and sparse better than dense?

    python benchmarks/sparse_language_model.py

Trains GRUs on a sample of the text of Python's standard library with the same steps, batches and seeds: a
dense one, a small dense one with as many weights as the sparse one has non-zeros, a sparse one of the dense
one's width, single weights or 16x1 blocks of them, and a wide sparse one with at most a quarter of the
dense one's parameters. The sparse ones follow the published schedule, with q from the dense run; the wide
one the cubic schedule, which fixes its share of parameters. The blocks have a small dense one of their own.
Of every run the checkpoint with the best perplexity on validation text counts (of pruned ones after the
last update), on test text that decided nothing. The wide one is then packed into a file, loaded and asked
for its perplexity again. A schedule that would empty a matrix is named, and its row left out. Writes
`benchmarks/results/sparse_language_model.json` after every seed, of which `render.py` makes the page.

A short run whose figures say nothing shows that every part works; its weights hardly grow, so that q must
be smaller:

    python benchmarks/sparse_language_model.py --steps 200 --size 40000 --width 48 --wide 72 \
        --percentile 0.4 --result short.json
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import platform
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from holdfast import sparse
from holdfast.errors import InputError
from holdfast.sparse.benchmark import quantized
from holdfast.sparse.matrices import BLOCK
from measuring import limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "sparse_language_model.json"
PIECE = 4_000
"""Characters of the pieces that are dealt to training, validation and test."""
HELD_OUT = 80_000
EMBEDDING = 32
STEPS, BATCH = 64, 32
EPOCHS = 20
"""The run is divided into as many epochs; pruning starts with the second and ends after half of them."""
NAMES = ("dense", "wide", "sparse", "small", "blocks", "small for blocks")
CHECKS = 20
"""Checkpoints that are validated."""


class CharacterModel(nn.Module):
    """Embedding, GRU, linear layer over the characters."""

    def __init__(self, characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, width, batch_first=True)
        self.decoder = nn.Linear(width, characters)

    def forward(self, text: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[batch, steps] -> logits and last state."""
        output, state = self.gru(self.embedding(text), state)
        return self.decoder(output), state


@dataclass
class Trained:
    """A trained model and what it cost."""

    model: CharacterModel
    perplexity: float
    step: int
    train_perplexity: float
    nonzeros: int
    sparsity: float
    seconds: float

    def facts(self) -> dict[str, Any]:
        """For the results file."""
        return {
            "width": self.model.gru.hidden_size,
            "nonzeros": self.nonzeros,
            "sparsity": round(self.sparsity, 4),
            "perplexity": round(self.perplexity, 4),
            "best_step": self.step,
            "train_perplexity": round(self.train_perplexity, 4),
            "training_s": round(self.seconds, 1),
        }


def corpus(size: int) -> tuple[Tensor, Tensor, Tensor, int, str]:
    """Training, validation and test text, number of characters, checksum: ASCII of the standard library."""
    text = ""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
    codes = torch.tensor(list(text.encode("ascii", "ignore")))
    known, encoded = codes.unique(return_inverse=True)
    # Pieces from all over the text: its end alone would be a few modules of one author.
    pieces = encoded[: len(encoded) // PIECE * PIECE].view(-1, PIECE)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(3))
    held, first = HELD_OUT // PIECE, 2 * HELD_OUT // PIECE
    parts = order[first : first + size // PIECE], order[:held], order[held:first]
    learned, validation, test = (pieces[part].reshape(-1) for part in parts)
    checksum = hashlib.sha256(bytes(known[learned].tolist())).hexdigest()[:12]
    return learned, validation, test, len(known), checksum


def train(
    texts: tuple[Tensor, Tensor, Tensor],
    characters: int,
    width: int,
    steps: int,
    seed: int,
    prune: Callable[[CharacterModel], sparse.Pruner] | None = None,
) -> Trained:
    """Train from one seed, pruned where a pruner is given; the best checkpoint by validation."""
    text, validation, test = texts
    torch.manual_seed(seed)
    model = CharacterModel(characters, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    if prune is not None:
        prune(model).attach(optimizer)
    draws = torch.Generator().manual_seed(seed)
    places = torch.arange(STEPS + 1)
    begin = time.process_time()
    best, at, kept = math.inf, 0, model.state_dict()
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - STEPS - 1, (BATCH, 1), generator=draws)
        window = text[starts + places]  # [batch, steps + 1]
        logits, _ = model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % (steps // CHECKS) == 0 and (prune is None or 2 * step > steps):
            found = perplexity(model, validation)
            if found < best:
                best, at, kept = found, step, copy.deepcopy(model.state_dict())
    seconds = time.process_time() - begin
    model.load_state_dict(kept)
    total = sum(each.numel() for each in model.parameters())
    nonzeros = sum(int(each.count_nonzero()) for each in model.parameters())
    learned = perplexity(model, text[:HELD_OUT])
    shares = nonzeros, 1 - nonzeros / total, seconds
    return Trained(model, perplexity(model, test), at, learned, *shares)


def narang(
    q: dict[str, float], steps: int, block: int = 1
) -> Callable[[CharacterModel], sparse.Pruner]:
    """The published schedule, with its choice of epochs."""
    per_epoch = steps // EPOCHS
    freq = max(1, per_epoch // 10)
    schedules = {
        kind: sparse.Narang.of_epochs(each, EPOCHS, per_epoch, freq, block)
        for kind, each in q.items()
    }
    return lambda model: sparse.Pruner(model, schedules)


def cubic(final: float, steps: int) -> Callable[[CharacterModel], sparse.Pruner]:
    """The cubic schedule over the same epochs."""
    per_epoch = steps // EPOCHS
    schedule = sparse.Cubic(final, per_epoch, steps // 2, max(1, per_epoch // 10))
    return lambda model: sparse.Pruner(model, schedule)


@torch.no_grad()
def perplexity(model: nn.Module, text: Tensor) -> float:
    """Per character, over lines of 2,000 characters read side by side with their state."""
    lines = text[: len(text) // 2_000 * 2_000].view(-1, 2_000)
    state, total, count = None, 0.0, 0
    for first in range(0, 1_999, 100):
        part = lines[:, first : first + 101]
        logits, state = model(part[:, :-1], state)
        wrong = nn.functional.cross_entropy(
            logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"
        )
        total, count = total + float(wrong), count + part[:, 1:].numel()
    return math.exp(total / count)


def equal_width(characters: int, parameters: int) -> int:
    """The width of the largest dense model with at most so many parameters."""
    width = 1
    while sum(p.numel() for p in CharacterModel(characters, width + 1).parameters()) <= parameters:
        width += 1
    return width


def packed(wide: Trained, dense: Trained, held_out: Tensor, characters: int) -> dict[str, Any]:
    """The wide model as a packed file: its bytes, its perplexity when loaded, its time per character."""
    with tempfile.TemporaryDirectory() as name:
        files = {each: Path(name) / each for each in ("dense", "wide", "packed")}
        save_file(dense.model.state_dict(), files["dense"])
        save_file(wide.model.state_dict(), files["wide"])
        sparse.pack_file(files["wide"], files["packed"], layout="csr")
        loaded = sparse.load(
            CharacterModel(characters, wide.model.gru.hidden_size), files["packed"]
        )
        sizes = {f"{each}_file_bytes": file.stat().st_size for each, file in files.items()}
    one = held_out[:200].view(1, -1)
    timed: dict[str, float] = {}
    models = {"dense": dense.model, "int8": quantized(dense.model), "wide": wide.model}
    for each, model in (models | {"packed": loaded}).items():
        with torch.no_grad():
            model(one)
            samples = []
            for _ in range(7):
                begin = time.process_time()
                model(one)
                samples.append((time.process_time() - begin) / one.numel())
        timed[f"{each}_us_per_character"] = round(1e6 * min(samples), 1)
    return {**sizes, **timed, "packed_perplexity": round(perplexity(loaded, held_out), 4)}


def add_packed(results: dict[str, Any], facts: dict[str, Any]) -> None:
    """Add what `packed` found to the results."""
    results["figures"]["packed"] = facts
    results["limits"] += [
        limited("perplexity, wide and sparse, packed and loaded", facts["packed_perplexity"], ""),
        limited(
            "its file (limit: dense)",
            facts["packed_file_bytes"],
            "bytes",
            facts["dense_file_bytes"],
        ),
        *(
            limited(f"time per character, {each}", facts[f"{each}_us_per_character"], "us")
            for each in ("dense", "int8", "wide", "packed")
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write the results."""
    options = _options(arguments)
    host = machine()
    torch.set_num_threads(1)  # matrices this small gain nothing from a second one
    *parts, characters, checksum = corpus(options.size)
    texts = tuple(parts)
    text_size = (
        f"{len(texts[0]):,} characters to learn from, {HELD_OUT:,} each for validation and test"
    )
    source = f"{text_size} (SHA-256 {checksum}...)"
    runs: dict[str, list[Trained]] = {name: [] for name in NAMES}
    refused: list[str] = []
    for seed in range(options.seeds):

        def trained(name: str, width: int, prune: Any = None, seed: int = seed) -> Trained | None:
            try:
                run = train(texts, characters, width, options.steps, seed, prune)
            except InputError as error:
                if error.code != "empty-layer":
                    raise
                refused.append(f"{name}, seed {seed}: {error.place}: {error.problem}.")
                print(refused[-1], flush=True)
                return None
            runs[name].append(run)
            print(name, seed, run.facts(), flush=True)
            return run

        dense = trained("dense", options.width)
        assert dense is not None  # nothing is pruned
        q = sparse.percentiles(dense.model, options.percentile)
        wide = trained("wide", options.wide, cubic(options.wide_sparsity, options.steps))
        for name, small, block in (
            ("sparse", "small", 1),
            ("blocks", "small for blocks", BLOCK),
        ):
            run = trained(name, options.width, narang(q, options.steps, block))
            if run is not None:
                trained(small, equal_width(characters, run.nonzeros))
        results = _results(options, runs, host, source)
        results["notes"] += refused
        if wide is not None:
            add_packed(results, packed(wide, dense, texts[2], characters))
        options.result.write_text(json.dumps(results, indent=2) + "\n")
        print(f"wrote {options.result}", flush=True)


def _results(
    options: argparse.Namespace, runs: dict[str, list[Trained]], host: dict[str, Any], text: str
) -> dict[str, Any]:
    mean = {
        name: statistics.mean(run.perplexity for run in each) for name, each in runs.items() if each
    }
    count = len(runs["dense"])
    seeds = f"mean of {count} seeds" if count > 1 else "one seed"
    limits = []
    if "wide" in mean:
        share = max(run.nonzeros for run in runs["wide"]) / runs["dense"][0].nonzeros
        what = f"perplexity, wide and sparse (limit: dense; {seeds})"
        limits += [
            limited(what, mean["wide"], "", mean["dense"]),
            limited("its parameters, as a share of the dense ones", share, "", 0.25),
        ]
    for name, small, label in (
        ("sparse", "small", "sparse"),
        ("blocks", "small for blocks", "sparse in 16x1 blocks"),
    ):
        if name in mean:
            what = f"perplexity, {label} (limit: small dense, equal non-zeros; {seeds})"
            limits.append(limited(what, mean[name], "", mean[small]))
    limits.append(limited("perplexity, dense", mean["dense"], ""))
    zeros = [
        {
            "model": name,
            "width": each[-1].model.gru.hidden_size,
            "non-zeros": f"{each[-1].nonzeros:,}",
            "zeros (%)": 100 * each[-1].sparsity,
            "perplexity": mean[name],
        }
        for name, each in runs.items()
        if each
    ]
    return {
        "title": "Pruned character models",
        "script": "benchmarks/sparse_language_model.py",
        "input": f"source text of Python {platform.python_version()}'s standard library: {text}",
        "comparisons": [],
        "limits": limits,
        "tables": [{"caption": "Perplexity per character of test text", "rows": zeros}],
        "figures": {name: [run.facts() for run in each] for name, each in runs.items()},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "torch")},
        "notes": [
            f"GRUs of width {options.width} (dense, sparse) and {options.wide} (wide); {options.steps:,} "
            f"steps of Adam on {BATCH} windows of {STEPS} characters.",
            f"{EPOCHS} epochs of {options.steps // EPOCHS} steps, pruned from the second to the tenth. "
            f"sparse: the published schedule, q: {options.percentile:.0%} percentile of the dense run's "
            f"magnitudes per layer type; wide: the cubic schedule to {options.wide_sparsity:.0%}.",
            f"Of every run the best of {CHECKS} checkpoints by validation (pruned: after the last update). "
            "Perplexity is per character of test text. Parameters are all non-zeros: weights, biases, "
            "embedding. training_s is CPU time.",
            "Time per character: 200 characters in one call, one thread, smallest processor time of seven.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--size", type=int, default=120_000, help="characters to learn from")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--wide", type=int, default=192)
    parser.add_argument("--percentile", type=float, default=0.9)
    parser.add_argument("--wide-sparsity", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
