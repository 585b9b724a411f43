"""Small language models of three texts, with and without training for early exits.

    python benchmarks/lm_small_models.py OUT [NAME ...]

Trains Llama models (12 layers, width 192, 5.7 million parameters; or `--layers`, `--width`) on code
(Python's standard library), documentation (its topics) and legal text (Debian's licenses), split by file:
`mha-exits` and `gqa-exits` by the recipe of LayerSkip, `mha-plain` and `gqa-plain` with the same text,
steps and seeds without it. `lm_generate.py` and `lm_heads.py` measure them. A folder that exists is left as
it is, an interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from transformers import LlamaConfig

from holdfast.lm.generate.training import ExitRecipe, Schedule, train_exits

STEPS = 900
KEY_VALUE_HEADS = {"mha": 6, "gqa": 3}
RECIPES = {
    "exits": ExitRecipe(dropout=0.1, ramp=True, exit_scale=0.5, every=4),
    "plain": ExitRecipe(dropout=0.0, exit_scale=0.0),
}
HELD_OUT = {"code": ("asyncio.",), "documentation": ("c", "t"), "legal": ("LGPL-2.1", "MPL-1.1")}
"""Beginnings of the names of files that no model learns."""


def corpora() -> dict[str, dict[str, str]]:
    """Corpus -> name of a file -> its text, of what every Debian with Python has."""
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_paths()["stdlib"])
    modules = [*library.glob("*.py"), *library.glob("asyncio/*.py")]
    licenses = Path("/usr/share/common-licenses").glob("*")
    code = {".".join(path.relative_to(library).parts): _read(path) for path in modules}
    legal = {path.name: _read(path) for path in licenses if not path.is_symlink()}
    return {"code": code, "documentation": dict(topics), "legal": legal}


def split(held_out: bool) -> dict[str, dict[str, str]]:
    """The texts of `corpora` that are held out, or those that are learned."""
    return {
        corpus: {
            name: text
            for name, text in sorted(files.items())
            if name.startswith(HELD_OUT[corpus]) == held_out
        }
        for corpus, files in corpora().items()
    }


def texts(out: Path) -> Path:
    """Write the texts that are learned to a folder; beside it, those that are held out."""
    for side, held_out in (("text", False), ("held-out", True)):
        for corpus, files in split(held_out).items():
            folder = out / side / corpus
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
    return out / "text"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


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
    schedule = Schedule(options.steps, batch=4, length=128, learning_rate=2e-3, save_every=100)
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
