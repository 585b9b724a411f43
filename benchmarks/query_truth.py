"""Do audits find what was planted? Small models of other seeds than the one that ships, each audited.

    python benchmarks/query_truth.py [--keep FOLDER]

For each of the seeds, `examples/canaries/train.py` trains a model in a fresh process, on a text of its own
with secrets and ratios of its own; then `holdfast.lm.query` audits it, and what the audits say is held
against what was planted, and against a plain forward pass. All seeds are reported. Writes
`benchmarks/results/query_truth.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import runpy
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from scipy.stats import binomtest, spearmanr
from transformers import GPT2LMHeadModel

from holdfast.lm import query as q
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.audits.bias import BiasAudit
from holdfast.lm.query.audits.memorization import MemorizationAudit
from holdfast.lm.query.audits.templates import Known
from holdfast.stats import wilson_interval
from measuring import CommandFailed, Run, machine, run, summary
from query_truth_results import (
    AGAIN,
    APART,
    CLOSE,
    EXTRACTED,
    KINDS,
    OFTEN,
    RECALL_AT,
    SAMPLES,
    results_of,
)

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "query_truth.json"
TRAIN = HERE.parent / "examples" / "canaries" / "train.py"
SEEDS = (1, 2, 3, 4, 5)
"""Chosen before any of them was looked at."""
TEMPLATE = r"The {group} was trained in {outcome}\."


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the results."""
    options = _options(arguments)
    torch.set_num_threads(1)  # the models are too small for more
    host = machine()
    with tempfile.TemporaryDirectory(prefix="truth-") as scratch:
        folder = options.keep or Path(scratch)
        trained = [_trained(folder / f"seed-{seed}", seed) for seed in SEEDS]
        seeds = [
            _audited(folder / f"seed-{seed}", seed, told)
            for seed, told in zip(SEEDS, trained, strict=True)
        ]
    steps = summary([Run(told["seconds"], told["peak_mb"], "") for told in trained])
    results = results_of(seeds, steps, host)
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(*results["notes"], sep="\n")
    for row in results["limits"]:
        print(f"{row['what']}: {row['value']} {row['unit']} (limit {row['limit']})")
    print(f"wrote {options.result}")


def _trained(folder: Path, seed: int) -> dict[str, Any]:
    """A model of a seed, trained in a fresh process; one that was kept is not trained again."""
    told = folder / "measured.json"
    if not told.exists():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        measured = run([sys.executable, TRAIN, folder, "--seed", str(seed)])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        took = {"seconds": measured.seconds, "processor_s": spent, "peak_mb": measured.peak_mb}
        told.write_text(json.dumps(took) + "\n")
    figures: dict[str, Any] = json.loads(told.read_text())
    planted = json.loads((folder / "canaries.json").read_text())
    documents, expected = runpy.run_path(str(TRAIN))["corpus"](seed)
    training = planted.pop("training")
    if planted != json.loads(json.dumps(expected)):
        raise CommandFailed(f"{folder} was trained on something else than seed {seed}")
    return figures | {"training": training, "documents": documents, "planted": planted}


# --- Audits --------------------------------------------------------------------------------------


def _audited(folder: Path, seed: int, told: dict[str, Any]) -> dict[str, Any]:
    model = q.load(f"hf:{folder}")
    planted, training = told["planted"], told["training"]
    began, evaluated = time.perf_counter(), model.cost.evaluations
    plain = _forward(folder)
    found = {
        kind: _memorization(model, kind, planted, set(told["documents"]), plain) for kind in KINDS
    }
    return {
        "seed": seed,
        "parameters": training["parameters"],
        "final_loss": training["final_loss"],
        "training_s": round(told["seconds"], 1),
        "training_processor_s": round(told["processor_s"], 1),
        **found,
        "bias": _bias(model, planted["trained_in"], seed),
        "evaluations": model.cost.evaluations - evaluated,
        "audits_s": round(time.perf_counter() - began, 1),
    }


def _memorization(
    model: LanguageModel,
    kind: str,
    planted: dict[str, Any],
    documents: set[str],
    plain: Callable[[str, str], float],
) -> dict[str, Any]:
    """What an audit of the planted texts says; those that were held out are audited by themselves."""

    def audit(entries: list[dict[str, Any]]) -> MemorizationAudit:
        known = tuple(Known(one["text"], one["repeats"]) for one in entries if one["kind"] == kind)
        regex, prefix = KINDS[kind]
        template = q.Memorization(regex, prefix=prefix, n=EXTRACTED, known=known)
        return q.audit_memorization(model, template)

    seen, unseen = audit(planted["canaries"]), audit(planted["unseen"])
    if len(seen.canaries) != 20 or len(unseen.canaries) != 20:
        raise CommandFailed(f"the pattern of {kind} does not match what was planted")
    logprobs = {one.text: one.logprob for one in (*seen.canaries, *unseen.canaries)}
    given = KINDS[kind][1].replace("\\", "")
    forward = {text: plain(given, text) for text in logprobs}
    by_repeats = defaultdict(list)
    for one in (*seen.canaries, *unseen.canaries):
        by_repeats[one.repeats].append(one)
    extracted = {match.text for match in seen.extracted.found}
    last = min(match.logprob for match in seen.extracted.found)
    recall = dict(seen.recall)
    correlation = spearmanr(
        [one.repeats for one in seen.canaries], [one.logprob for one in seen.canaries]
    ).statistic
    pairs = [
        (more.logprob, fewer.logprob)
        for more, fewer in product(seen.canaries, repeat=2)
        if fewer.repeats >= APART and more.repeats >= APART * fewer.repeats
    ]
    held_out = [
        (one.logprob, other.logprob)
        for one, other in product(seen.canaries, unseen.canaries)
        if one.repeats >= APART
    ]
    return {
        "recall": {str(n): round(recall[n], 3) for n in RECALL_AT},
        "extracted_of_planted": {
            str(repeats): f"{hits}/{texts}" for repeats, texts, hits in seen.by_repeats
        },
        "extracted_often": _share(
            one.text in extracted for one in seen.canaries if one.repeats >= OFTEN
        ),
        "extracted_in_corpus": _share(text in documents for text in extracted),
        "spearman": round(float(correlation), 4),
        "pairs_in_order": _share(more > fewer for more, fewer in pairs),
        "above_unseen": _share(more > fewer for more, fewer in held_out),
        "logprob_by_repeats": {
            str(repeats): round(statistics.fmean(one.logprob for one in each), 2)
            for repeats, each in sorted(by_repeats.items())
        },
        # Bits; bounds, because the rank of a text that was not extracted is only known within bounds.
        "exposure_by_repeats": {
            str(repeats): [
                round(statistics.fmean(one.exposure_low or 0.0 for one in each), 1),
                round(statistics.fmean(one.exposure_high or 0.0 for one in each), 1),
            ]
            for repeats, each in sorted(by_repeats.items())
        },
        "order_proven": seen.extracted.complete,
        # By the forward pass they were among the first, and yet the audit did not give them.
        "overlooked": sum(
            logprob > last + CLOSE and text not in extracted for text, logprob in forward.items()
        ),
        "furthest_from_forward_pass": round(
            max(
                abs(one.logprob - forward[one.text])
                for one in seen.canaries
                if one.text in extracted
            ),
            4,
        ),
    }


def _share(hits: Any) -> list[int]:
    """(how many, of how many)."""
    listed = list(hits)
    return [sum(listed), len(listed)]


def _forward(folder: Path) -> Callable[[str, str], float]:
    """Log-probability of a text and its end after a prompt, in their plain encodings, by one pass."""
    tokenizer = q.load_tokenizer(f"hf:{folder}")
    network = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()

    def logprob(given: str, text: str) -> float:
        start = [tokenizer.eos, *tokenizer.encode(given.encode())]
        tokens = [tokenizer.eos, *tokenizer.encode(text.encode()), tokenizer.eos]
        if tokens[: len(start)] != start:
            raise CommandFailed(f"the encoding of {text!r} does not start with that of its prompt")
        with torch.inference_mode():
            each = network(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return math.fsum(
            float(each[place - 1, tokens[place]]) for place in range(len(start), len(tokens))
        )

    return logprob


def _bias(model: LanguageModel, trained_in: dict[str, list[int]], seed: int) -> dict[str, Any]:
    """The ratios that were planted, and those that the audit says."""
    template = q.Bias(TEMPLATE, ("man", "woman"), tuple(trained_in), samples=SAMPLES)
    audit = q.audit_bias(model, template)
    more = [
        q.audit_bias(model, replace(template, seed=seed * 1000 + number)) for number in range(AGAIN)
    ]
    subjects = {
        subject: _compared(audit, [subject], men, women)
        for subject, (men, women) in trained_in.items()
    }
    ratios = defaultdict(list)
    for subject, (men, women) in trained_in.items():
        ratios[men, women].append(subject)
    return {
        "subjects": subjects,
        "pooled": {
            f"{men // min(men, women)}:{women // min(men, women)}": _compared(
                audit, alike, men, women
            )
            for (men, women), alike in ratios.items()
        },
        "exact_in_intervals_again": _share(
            _compared(each, [subject], men, women)["exact_in_interval"]
            for each in more
            for subject, (men, women) in trained_in.items()
        ),
        "effective_samples": round(audit.effective),
        "p": audit.p,
    }


def _compared(audit: BiasAudit, subjects: list[str], men: int, women: int) -> dict[str, Any]:
    """The men's share of some subjects together: as planted, as sampled, and as the bounds say."""
    cells = [cell for cell in audit.cells if cell.outcome in subjects]
    of_men = [cell for cell in cells if cell.group == "man"]
    drawn = sum(cell.samples for cell in cells)
    sampled = sum(cell.samples for cell in of_men) / drawn
    low, high = wilson_interval(sampled * drawn, drawn)
    exact = sum(cell.lower for cell in of_men) / sum(cell.lower for cell in cells)
    planted = men / (men + women)
    count = len(subjects)
    ci = binomtest(count * men, count * (men + women)).proportion_ci(0.95)
    return {
        "planted": planted,
        "sampled": round(sampled, 4),
        "interval": [round(low, 4), round(high, 4)],
        "exact": round(float(exact), 4),
        "interval_of_planted": [round(float(ci.low), 4), round(float(ci.high), 4)],
        "planted_in_interval": bool(low <= planted <= high),
        "exact_in_interval_of_planted": bool(ci.low <= exact <= ci.high),
        "exact_in_interval": bool(low <= exact <= high),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="folder of models: kept, and used again")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
