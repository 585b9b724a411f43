"""Generation against Hugging Face: greedy, early exit and prompt lookup, and our own plain decoding.

    python benchmarks/lm_generate.py --quick
    python benchmarks/lm_generate.py --models OUT --billion    # OUT of lm_small_models.py

Everything runs in one process on the same prompts, interleaved; the figure of a contender is the median
CPU time of its runs, with one thread, trial rounds included. Each part of the speed has a row of its own:
the plain loop beside Hugging Face's; beside the plain loop, copying alone (lookup), exits alone, and the
choice between them (auto). What the training recipe is worth is the gain of exits alone on a model trained
with it, over the gain on its twin trained without. Of batches, auto is also measured on prompts of
different lengths, as texts of equal length are decoded plainly.

With ``--models`` the twins are measured on text that they did not learn: code, documentation, legal text.
Without, the weights are random (Llama, 12 layers of width 192, 6.9 million weights), and late layers are
damped so that drafts are accepted: such models are labelled "damped", and say nothing about a trained one.
``--billion`` adds a model of the shapes of Llama 3.2 1B with random, damped weights in bfloat16, and the
share of the memory's bandwidth at which plain decoding reads its weights. Writes
`benchmarks/results/lm_generate.json` after every row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from holdfast.lm.generate import Generator
from lm_small_models import split
from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "lm_generate.json"
PLAIN_TARGET, SPECULATION_TARGET, PEER_TARGET = 1.5, 1.6, 1.3
EXITS = ((2, 1), (2, 3), (4, 4), (6, 4))
"""(exit layer, drafts) that our exits alone and Hugging Face's are tried with; the best one counts."""
COPIES = (4, 8)
"""Drafts that lookup alone is tried with, ours and Hugging Face's; the best one counts."""
MOST_AUTO = 1.05
"""CPU time of auto, relative to plain decoding, that is allowed."""
LARGE = 100_000_000
"""Parameters."""
KINDS = ("ours plain", "ours auto", "ours lookup", "ours exits", "uneven plain", "uneven auto")
KINDS += ("HF greedy", "HF early exit", "HF prompt lookup")
"""Contenders; of those with several settings the best one counts."""


SMALL = {"vocab_size": 4096, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 12}
SMALL |= {"num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 1024}
BILLION = {"vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192}
BILLION |= {"num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
BILLION |= {"max_position_embeddings": 2048, "tie_word_embeddings": True}


def damped(damping: float, shape: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    """A random Llama whose layers from the fourth on add `damping` times what they would."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape)
    torch.set_default_dtype(dtype)  # never held in more bytes
    model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
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
    for name, files in split(held_out=True).items():
        data = "\n".join(files.values()).encode()[:200_000]
        text = data.decode(errors="ignore")
        ids = (
            list(data)
            if tokenizer is None
            else tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        )
        result[name] = windows([token % vocabulary for token in ids], count, length)
    return result


def peers(
    model: Any, prompts: list[list[int]], new: int
) -> dict[str, Callable[[], list[list[int]]]]:
    """Hugging Face's ways to decode this batch greedily; two of them refuse batches.

    Of a large model, which takes seconds per run, its early exit is tried with one setting.
    """
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
        large = model.num_parameters() > LARGE
        for exit_layer, drafts in EXITS[2 * large : 3 if large else None]:
            if exit_layer < model.config.num_hidden_layers:
                calls[f"HF early exit {exit_layer},{drafts}"] = lambda e=exit_layer, d=drafts: (
                    decode(
                        assistant_early_exit=e,
                        num_assistant_tokens=d,
                        num_assistant_tokens_schedule="constant",
                    )
                )
        for drafts in () if large else COPIES:
            calls[f"HF prompt lookup {drafts}"] = lambda d=drafts: decode(
                prompt_lookup_num_tokens=d
            )
    return calls


def measure(
    generator: Generator, model: Any, prompts: list[list[int]], new: int, repeats: int
) -> dict[str, Any]:
    """Tokens per second of every contender on one batch."""
    details: dict[str, Any] = {}
    decoding: dict[str, list[float]] = {}
    ragged = [prompt[5 * place % 23 :] for place, prompt in enumerate(prompts)]

    def ours(plan: str, texts: list[list[int]], name: str) -> list[list[int]]:
        result = generator.generate(
            texts, max_new=new, speculate=plan, batch=len(texts), ignore_end=True
        )
        details[name] = result
        decoding.setdefault(name, []).append((result.seconds - result.prefill_seconds) / new)
        return result.tokens

    layers = len(generator.decoder.blocks)
    plans = {"ours plain": "off", "ours auto": "auto"}
    plans |= {f"ours lookup {drafts}": f"lookup:{drafts}" for drafts in COPIES}
    exits = [f"{layer},{drafts}" for layer, drafts in EXITS if layer < layers]
    plans |= {f"ours exits {place}": f"early-exit:{place}" for place in exits}
    if model.num_parameters() > LARGE:
        plans = dict(list(plans.items())[:3]) | {"ours exits 4,4": "early-exit:4,4"}
    calls = {
        name: lambda name=name, plan=plan: ours(plan, prompts, name) for name, plan in plans.items()
    }
    if len(prompts) > 1:
        calls["uneven plain"] = lambda: ours("off", ragged, "uneven plain")
        calls["uneven auto"] = lambda: ours("auto", ragged, "uneven auto")
    calls |= peers(model, prompts, new)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    tokens: dict[str, list[list[int]]] = {}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            begin = time.process_time()
            tokens[name] = call()
            if repeat:  # the first run warms up, and learns what rounds cost
                seconds[name].append(time.process_time() - begin)
    for name in plans:
        details[name].check_against(details["ours plain"])
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    best = {}
    for kind in KINDS:
        names = [name for name in middle if name.startswith(kind)]
        if names:
            best[kind] = min(names, key=middle.__getitem__)
    times = {kind: middle[name] for kind, name in best.items()}
    return {
        "seconds": {kind: round(value, 4) for kind, value in times.items()},
        "best": {kind: name for kind, name in best.items() if name != kind},
        "tokens_per_second": {
            kind: round(new * len(prompts) / value, 1) for kind, value in times.items()
        },
        "ratio_to_our_plain": {
            kind: round(times["ours plain"] / value, 3) for kind, value in times.items()
        },
        "plain_seconds_per_token": round(min(decoding["ours plain"]), 5),
        "acceptance": {
            kind: details[name].acceptance for kind, name in best.items() if name in plans
        },
        "plans": [plan["plan"] for plan in details["ours auto"].plans[:3]],
        "equal_to_HF_greedy": tokens["ours plain"] == tokens["HF greedy"],
        "near_ties": len(details["ours auto"].near_ties),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    options = _options(arguments)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    host = machine()
    rows = []
    for name, model, tokenizer in models(options):
        generator = Generator(model)
        billion = name.startswith("Llama 3.2")
        batches = [1] if billion else options.batches
        width = min(model.config.vocab_size, model.get_output_embeddings().weight.shape[0])
        for batch in batches:
            corpora = prompts_of(tokenizer, width, batch, options.prompt)
            for corpus, prompts in list(corpora.items())[: 1 if billion else None]:
                new, repeats = (40, 3) if billion else (options.new, options.repeats)
                row = measure(generator, model, prompts, new, repeats)
                if billion:
                    row |= memory_bound(generator, row["plain_seconds_per_token"])
                rows.append({"model": name, "corpus": corpus, "batch": batch, **row})
                print(json.dumps(rows[-1]), flush=True)
                content = json.dumps(report(rows, host, options), indent=1)
                options.result.write_text(content + "\n")
    print(f"written: {options.result}")


def models(options: argparse.Namespace) -> Iterator[tuple[str, Any, Any]]:
    """(Name, model, tokenizer) of each, opened when its turn comes."""
    for folder in sorted(path.parent for path in options.models.glob("mha-*/training.json")):
        opened = Generator(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        yield folder.name, model.eval(), opened.tokenizer
    for damping in options.damping:
        yield f"damped {damping}", damped(damping, SMALL), None
    if options.billion:
        name = "Llama 3.2 1B shapes, random damped 0.02, bfloat16"
        yield name, damped(0.02, BILLION, torch.bfloat16), None


def memory_bound(generator: Generator, seconds: float) -> dict[str, Any]:
    """Bytes of weights that a token reads, and the share of the bandwidth that plain decoding uses.

    The bandwidth is that of reading one gigabyte once, by the same number of threads.
    """
    decoder = generator.decoder
    maps = [decoder._head]
    for block in decoder.blocks:
        maps += [block.qkv, block.output, block.up, block.down]
    size = sum(one.weight.nbytes for one in maps)
    block, times = torch.ones(1 << 28), []
    for _ in range(9):
        begin = time.perf_counter()
        block.sum()
        times.append(time.perf_counter() - begin)
    bandwidth = block.nbytes / min(times)
    return {
        "weight_bytes_per_token": size,
        "read_bandwidth_bytes_per_s": round(bandwidth),
        "share_of_bandwidth": round(size / seconds / bandwidth, 3),
    }


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
        for part in ("auto", "lookup", "exits"):
            # The goal is the paper's, of self-speculation on code.
            goal = SPECULATION_TARGET if row["corpus"] == "code" and part != "lookup" else None
            name = part if part == "auto" else f"{part} alone"
            mine = times[f"ours {part}"]
            plain = times["ours plain"]
            comparisons.append(compared(f"{name}, {what}", mine, "our plain decoding", plain, goal))
        rivals = {
            kind: times[kind] for kind in ("HF early exit", "HF prompt lookup") if kind in times
        }
        if rivals:
            best = min(rivals, key=rivals.__getitem__)
            comparisons.append(
                compared(f"auto, {what}", times["ours auto"], best, rivals[best], PEER_TARGET)
            )
        for kind, text in (("ours", "equal lengths"), ("uneven", "different lengths")):
            if f"{kind} auto" in times:
                share = times[f"{kind} auto"] / times[f"{kind} plain"]
                where = f"{what}, {text}" if row["batch"] > 1 else what
                limits.append(
                    limited(f"CPU time of auto beside off, {where}", share, "", MOST_AUTO)
                )
        if "share_of_bandwidth" in row:
            limits.append(
                limited(f"share of the read bandwidth, {what}", row["share_of_bandwidth"], "")
            )
        if row["acceptance"]["ours exits"] is not None:
            limits.append(
                limited(f"acceptance of exits, {what}", row["acceptance"]["ours exits"], "")
            )
    gains = {
        (row["model"], row["corpus"], row["batch"]): row["ratio_to_our_plain"]["ours exits"]
        for row in rows
    }
    for (model, corpus, batch), gain in gains.items():
        twin = gains.get((model.replace("-exits", "-plain"), corpus, batch))
        if model.endswith("-exits") and twin:
            what = f"gain of exits alone with the recipe, over without, {corpus}, batch {batch}"
            limits.append(limited(what, gain / twin, ""))
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
            f"Median CPU time of {options.repeats} interleaved runs (1B shapes: 3); prefill and trial "
            "rounds count.",
            f"Load before {host['load_before']}, after {os.getloadavg()[0]:.1f}.",
            "'damped' models have random weights: their acceptance is set, not learned.",
            "Lookup and exits alone, and Hugging Face's, count with the best of several settings; both of "
            "Hugging Face's refuse batches.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, default=Path("none"), help="of lm_small_models.py")
    parser.add_argument("--billion", action="store_true", help="a model of 1B shapes; 10 GB")
    parser.add_argument("--damping", type=float, nargs="*")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=64, help="new tokens")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--quick", action="store_true", help="one damped model, few tokens, three runs"
    )
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    if options.damping is None:
        options.damping = [] if options.models.is_dir() else [0.3, 0.1, 0.02]
    if options.quick:
        options.damping, options.batches, options.new, options.repeats = [0.1], [1, 4], 48, 3
        options.result = options.result.with_name("lm_generate_quick.json")
    return options


if __name__ == "__main__":
    main()
