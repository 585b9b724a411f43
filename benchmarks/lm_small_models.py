"""Small language models of source code, with and without training for early exits.

    python benchmarks/lm_small_models.py OUT [NAME ...]

Trains Llama models (12 layers, width 192, 6 million parameters; or `--layers`, `--width`) on the source of
Python's standard library: `mha-exits` and `gqa-exits` by the recipe of LayerSkip, `mha-plain` and
`gqa-plain` with the same text, steps and seeds without it. `lm_heads.py` measures them. A folder that
exists is left as it is, an interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from transformers import LlamaConfig

from holdfast.lm.generate.training import ExitRecipe, Schedule, train_exits

STEPS = 220
KEY_VALUE_HEADS = {"mha": 6, "gqa": 2}
RECIPES = {
    "exits": ExitRecipe(dropout=0.1, ramp=True, exit_scale=0.2, every=4),
    "plain": ExitRecipe(dropout=0.0, exit_scale=0.0),
}


def texts(out: Path) -> Path:
    """A folder of links to the modules of the standard library; beside it one to a package, held out."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for folder, source in ((out / "text", library), (out / "held-out", library / "asyncio")):
        folder.mkdir(parents=True, exist_ok=True)
        for path in source.glob("*.py"):
            link = folder / path.name
            if not link.exists():
                link.symlink_to(path)
    return out / "text"


def train(out: Path, name: str, options: argparse.Namespace) -> None:
    """Train one model, and print its exits."""
    attention, recipe = name.split("-")
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=options.width,
        intermediate_size=options.width * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=6,
        num_key_value_heads=KEY_VALUE_HEADS[attention],
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(out / f"{attention}-config")
    schedule = Schedule(options.steps, batch=8, length=128, learning_rate=2e-3, save_every=50)
    begin = time.process_time()
    answer = train_exits(
        out / f"{attention}-config", texts(out), out / name, RECIPES[recipe], schedule
    )
    print(f"{name}: {time.process_time() - begin:.0f} CPU seconds\n{answer}", flush=True)


def main() -> None:
    """Train the models that are named, or all."""
    names = [f"{attention}-{recipe}" for recipe in RECIPES for attention in KEY_VALUE_HEADS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=names, metavar="NAME")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=192)
    options = parser.parse_args()
    torch.set_num_threads(1)  # matrices this small gain little from a second one
    for name in options.names:
        if not (options.out / name).exists():
            train(options.out, name, options)


if __name__ == "__main__":
    main()
