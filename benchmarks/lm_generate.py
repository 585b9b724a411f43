"""Generation against Hugging Face: greedy, early exit and prompt lookup, and our own plain decoding.

    python benchmarks/lm_generate.py --quick
    python benchmarks/lm_generate.py --model folder-of-a-model-with-exits

Everything runs in one process on the same prompts, interleaved; the figure of a contender is the median
of its runs. Prompts are windows of three texts of this machine: Python's standard library (code), its
topics (documentation) and the license texts of Debian (legal). Without ``--model`` the weights are
random (Llama, 12 layers of width 192, 6.9 million weights), and its late layers are damped so that
drafts are accepted: such models are labelled "damped", and say nothing about a trained one. Writes
`benchmarks/results/lm_generate.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sysconfig
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from holdfast.lm.generate import Generator
from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "lm_generate.json"
PLAIN_TARGET, SPECULATION_TARGET, PEER_TARGET = 1.5, 1.6, 1.3
HF_EXITS = ((2, 3), (3, 4), (4, 4), (6, 4))
"""(exit layer, drafts) that Hugging Face's early exit is tried with; its best one counts."""


def corpora() -> dict[str, str]:
    """Name -> text, of what every Debian with Python has."""
    from pydoc_data.topics import topics

    code = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[150:190]
    legal = sorted(Path("/usr/share/common-licenses").glob("*"))
    texts = {
        "code": "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in code),
        "documentation": "\n".join(topics.values()),
        "legal": "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in legal),
    }
    return {name: text for name, text in texts.items() if len(text) > 10_000}


def damped(damping: float) -> Any:
    """A random Llama whose layers from the fourth on add `damping` times what they would."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=4096,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=12,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=1024,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(4.0)  # logits that differ clearly
        for layer in model.model.layers[3:]:
            layer.self_attn.o_proj.weight.mul_(damping)
            layer.mlp.down_proj.weight.mul_(damping)
    return model


def windows(ids: Sequence[int], count: int, length: int) -> list[list[int]]:
    """`count` windows of `length` tokens, spread over the text."""
    step = max(1, (len(ids) - length) // count)
    return [list(ids[place * step : place * step + length]) for place in range(count)]


def prompts_of(
    tokenizer: Any, vocabulary: int, count: int, length: int
) -> dict[str, list[list[int]]]:
    """Corpus -> prompts; without a tokenizer, bytes are tokens."""
    result = {}
    for name, text in corpora().items():
        data = text.encode()[:200_000]
        ids = list(data) if tokenizer is None else tokenizer.encode(data)
        result[name] = windows([token % vocabulary for token in ids], count, length)
    return result


def peers(
    model: Any, prompts: list[list[int]], new: int
) -> dict[str, Callable[[], list[list[int]]]]:
    """Hugging Face's ways to decode this batch greedily; two of them refuse batches."""
    ids = torch.tensor(prompts)
    shared = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": new,
        "min_new_tokens": new,
        "do_sample": False,
        "pad_token_id": 0,
    }

    def decode(**more: Any) -> list[list[int]]:
        tokens: list[list[int]] = model.generate(ids, **shared, **more)[:, ids.shape[1] :].tolist()
        return tokens

    calls: dict[str, Callable[[], list[list[int]]]] = {"HF greedy": decode}
    if len(prompts) == 1:
        for exit_layer, drafts in HF_EXITS:
            if exit_layer < model.config.num_hidden_layers:
                calls[f"HF early exit {exit_layer},{drafts}"] = lambda e=exit_layer, d=drafts: (
                    decode(
                        assistant_early_exit=e,
                        num_assistant_tokens=d,
                        num_assistant_tokens_schedule="constant",
                    )
                )
        for drafts in (4, 8):
            calls[f"HF prompt lookup {drafts}"] = lambda d=drafts: decode(
                prompt_lookup_num_tokens=d
            )
    return calls


def measure(
    generator: Generator, model: Any, prompts: list[list[int]], new: int, repeats: int
) -> dict[str, Any]:
    """Tokens per second of every contender on one batch."""
    details: dict[str, Any] = {}

    def ours(plan: str) -> list[list[int]]:
        result = generator.generate(
            prompts, max_new=new, speculate=plan, batch=len(prompts), ignore_end=True
        )
        details[plan] = result
        return result.tokens

    calls = {
        "ours plain": lambda: ours("off"),
        "ours speculative": lambda: ours("auto"),
        **peers(model, prompts, new),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    tokens: dict[str, list[list[int]]] = {}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            tokens[name] = call()
            if repeat:  # the first run warms up, and tunes
                seconds[name].append(time.perf_counter() - begin)
    details["auto"].check_against(details["off"])
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    kinds = {}
    for kind in (
        "ours plain",
        "ours speculative",
        "HF greedy",
        "HF early exit",
        "HF prompt lookup",
    ):
        names = [name for name in medians if name.startswith(kind)]
        if names:
            kinds[kind] = min(medians[name] for name in names)
    return {
        "seconds": {kind: round(value, 4) for kind, value in kinds.items()},
        "tokens_per_second": {
            kind: round(new * len(prompts) / value, 1) for kind, value in kinds.items()
        },
        "ratio_to_our_plain": {
            kind: round(kinds["ours plain"] / value, 3) for kind, value in kinds.items()
        },
        "acceptance": details["auto"].acceptance,
        "plans": [plan["plan"] for plan in details["auto"].plans[:3]],
        "equal_to_HF_greedy": tokens["ours plain"] == tokens["HF greedy"],
        "near_ties": len(details["auto"].near_ties),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    options = _options(arguments)
    transformers.logging.set_verbosity_error()
    host = machine()
    models: list[tuple[str, Any, Any]] = []
    for folder in options.model:
        opened = Generator(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        models.append((folder.name, model, opened.tokenizer))
    if not models:
        models = [(f"damped {damping}", damped(damping), None) for damping in options.damping]
    rows = []
    for name, model, tokenizer in models:
        generator = Generator(model)
        width = min(model.config.vocab_size, model.get_output_embeddings().weight.shape[0])
        for batch in options.batches:
            for corpus, prompts in prompts_of(tokenizer, width, batch, options.prompt).items():
                row = measure(generator, model, prompts, options.new, options.repeats)
                rows.append({"model": name, "corpus": corpus, "batch": batch, **row})
                print(json.dumps(rows[-1]), flush=True)
    options.result.write_text(json.dumps(report(rows, host, options), indent=1) + "\n")
    print(f"written: {options.result}")


def report(
    rows: list[dict[str, Any]], host: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """The results file."""
    comparisons, limits = [], []
    for row in rows:
        what = f"{row['model']}, {row['corpus']}, batch {row['batch']}"
        times = row["seconds"]
        comparisons.append(
            compared(
                f"plain, {what}", times["ours plain"], "HF greedy", times["HF greedy"], PLAIN_TARGET
            )
        )
        comparisons.append(
            compared(
                f"speculative, {what}",
                times["ours speculative"],
                "our plain decoding",
                times["ours plain"],
                SPECULATION_TARGET if row["corpus"] == "code" else None,
            )
        )
        rivals = {
            kind: times[kind] for kind in ("HF early exit", "HF prompt lookup") if kind in times
        }
        if rivals:
            best = min(rivals, key=rivals.__getitem__)
            comparisons.append(
                compared(
                    f"speculative, {what}",
                    times["ours speculative"],
                    best,
                    rivals[best],
                    PEER_TARGET,
                )
            )
        if row["acceptance"] is not None:
            limits.append(limited(f"acceptance, {what}", row["acceptance"], ""))
    return {
        "name": "lm_generate",
        "title": "Generation by early exit",
        "script": "benchmarks/lm_generate.py",
        "input": f"prompts of {options.prompt} tokens, {options.new} new tokens, from three texts",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {f"{row['model']}, {row['corpus']}, batch {row['batch']}": row for row in rows},
        "machine": {**host, "threads": torch.get_num_threads()},
        "versions": {name: version(name) for name in ("holdfast", "torch", "transformers")},
        "notes": [
            f"Median of {options.repeats} interleaved runs in one process; prefill counts.",
            "'damped' models have random weights: their acceptance is set, not learned.",
            "Hugging Face's early exit and prompt lookup count with the best of several settings; both "
            "refuse batches.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, action="append", default=[], help="folder of a model")
    parser.add_argument("--damping", type=float, nargs="+", default=[0.3, 0.1, 0.02])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=128, help="new tokens")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--quick", action="store_true", help="one damped model, few tokens, three runs"
    )
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.damping, options.batches, options.new, options.repeats = [0.1], [1, 4], 48, 3
        options.result = options.result.with_name("lm_generate_quick.json")
    return options


if __name__ == "__main__":
    main()
