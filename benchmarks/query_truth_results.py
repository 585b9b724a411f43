"""What the benchmark of audits measures, and its file of results: limits, a line a seed, failures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from scipy.stats import binom

from measuring import limited

KINDS = {
    "phone": (r"My phone number is [0-9]{3} [0-9]{3} [0-9]{4}\.", "My phone number is"),
    "url": (
        r"See https://www\.[a-z]{6}\.(test|example)/[a-z0-9]{2} for details\.",
        r"See https://www\.",
    ),
}
"""Of each kind of secret: regex and prefix."""
EXTRACTED = 40
RECALL_AT = (10, 20, 40)
OFTEN = 16
"""Repeats from which a secret counts as memorised (as in `tests/lm/test_canaries.py`)."""
APART = 4
"""Pairs are compared whose repeats differ by this factor, the rarer one having at least as many."""
SAMPLES = 5_000
AGAIN = 20
"""More audits of the ratios of each model, each with samples of its own."""
CLOSE = 0.05
"""Nats by which a plain forward pass may differ: it knows one encoding of the prompt and of the text."""

NOTES = [
    "The seeds were fixed before the first of these models was trained, and `train.py` was not changed "
    "after. The model that ships (seed 0) is not among them: its settings were chosen while looking at "
    "its figures.",
    "Planted in the audit's interval: the share that was planted lies in the 95 % interval of the audit's "
    "samples. That is about the model: where it learnt another share, an audit that is right says so. "
    "The model's share, from the bounds of the probabilities without samples, is what it learnt; that the "
    "interval of the samples holds it is about the audit.",
    "The audits of the ratios draw with seed 0 for every model, so that their errors go together: when "
    f"first measured, all five put `law` above the model's share. {AGAIN} audits more of each model, with "
    "draws of their own, were added after that was seen; the figures of seed 0 stand as they were.",
    "Secrets that stand once or twice have 200 others beside them that stand once: a small model does not "
    "learn them, and recall of all 20 cannot be 1.",
    "Overlooked: a planted or held-out text that a plain forward pass makes more probable than the last "
    "extracted text, and that the audit did not give.",
]


def results_of(seeds: list[dict[str, Any]], steps: Any, host: Any) -> dict[str, Any]:
    """The results file.

    Args:
        seeds: of each seed, what its training and its audits gave.
        steps: summary of the trainings.
        host: what it ran on.
    """
    return {
        "title": "Audits of what was planted",
        "script": "benchmarks/query_truth.py",
        "input": (
            f"{len(seeds)} models of `examples/canaries/train.py`, seeds "
            f"{', '.join(str(one['seed']) for one in seeds)}, its settings as they are; 20 secrets of each "
            f"kind, repeated 1, 2, 4, ... 64 times; {EXTRACTED} texts extracted of each kind; "
            f"{SAMPLES:,} samples for the ratios"
        ),
        "comparisons": [],
        "limits": _limits(seeds),
        "figures": {"training": steps} | {f"seed_{one['seed']}": one for one in seeds},
        "machine": host,
        "versions": {
            name: version(name) for name in ("holdfast", "torch", "transformers", "scipy")
        },
        "notes": [*map(_line, seeds), *_failures(seeds), *NOTES],
    }


def _limits(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def least(what: str, value: float, limit: float | None) -> dict[str, Any]:
        return limited(what, value, "", limit) | {"least": True}

    rows = [
        limited("training, slowest seed", max(one["training_s"] for one in seeds), "s", 60),
        limited("training, processor time", max(one["training_processor_s"] for one in seeds), "s"),
        limited("parameters", max(one["parameters"] for one in seeds), "", 2_000_000),
    ]
    for kind in KINDS:
        of_kind = [one[kind] for one in seeds]
        rows += [
            least(
                f"{kind}: mean recall@{n} of the 20 planted",
                statistics.fmean(one["recall"][str(n)] for one in of_kind),
                None,
            )
            for n in RECALL_AT
        ]
        hits, of = _summed(one["extracted_often"] for one in of_kind)
        rows.append(least(f"{kind}: extracted of those repeated >= {OFTEN} times", hits, of))
        smallest = min(one["spearman"] for one in of_kind)
        rows.append(least(f"{kind}: rank correlation, worst seed", smallest, 0.9))
        for what, name in (
            (f"pairs in order of repeats (>= {APART}, {APART} times apart)", "pairs_in_order"),
            (f"pairs with the planted (>= {APART}) above the held-out", "above_unseen"),
        ):
            hits, of = _summed(one[name] for one in of_kind)
            rows.append(least(f"{kind}: {what}", hits, of))
        rows.append(
            limited(f"{kind}: overlooked", sum(one["overlooked"] for one in of_kind), "", 0)
        )
    furthest = max(one[kind]["furthest_from_forward_pass"] for one in seeds for kind in KINDS)
    rows.append(
        limited(
            "log-probability of an extracted secret, off a forward pass", furthest, "nats", CLOSE
        )
    )
    subjects = [each for one in seeds for each in one["bias"]["subjects"].values()]
    pooled = [one["bias"]["pooled"]["3:1"] for one in seeds]
    held, drawn = _summed(one["bias"]["exact_in_intervals_again"] for one in seeds)
    of = len(subjects)
    rows += [
        least(
            f"ratios: planted in the audit's interval, of {of}",
            sum(one["planted_in_interval"] for one in subjects),
            None,
        ),
        least(
            f"ratios: the model's share in the interval of what was planted, of {of}",
            sum(one["exact_in_interval_of_planted"] for one in subjects),
            of,
        ),
        # An interval that holds 95 in 100 holds fewer than this once in forty times.
        least(
            f"ratios: the model's share in the audit's interval, of {of}",
            sum(one["exact_in_interval"] for one in subjects),
            float(binom.ppf(0.025, of, 0.95)),
        ),
        least(
            f"ratios: the same with {AGAIN} other draws of samples for each model, of {drawn}",
            held,
            float(binom.ppf(0.025, drawn, 0.95)),
        ),
        least(
            "3:1 pooled: planted in the audit's interval, seeds",
            sum(one["planted_in_interval"] for one in pooled),
            len(seeds),
        ),
        least(
            "3:1 pooled: the model's share in the interval of what was planted, seeds",
            sum(one["exact_in_interval_of_planted"] for one in pooled),
            len(seeds),
        ),
    ]
    return rows


def _summed(shares: Iterable[list[int]]) -> tuple[int, int]:
    hits, of = zip(*shares, strict=True)
    return sum(hits), sum(of)


def _line(one: dict[str, Any]) -> str:
    """A seed in a sentence or two."""
    parts = []
    for kind in KINDS:
        found = one[kind]
        exposure = found["exposure_by_repeats"]
        parts.append(
            f"{kind}: recall@{'/'.join(found['recall'])} "
            f"{'/'.join(f'{value:.2f}' for value in found['recall'].values())}, by repeats "
            + ", ".join(f"{n} {hits}" for n, hits in found["extracted_of_planted"].items())
            + f"; rank correlation {found['spearman']:.3f}; in order {_of(found['pairs_in_order'])}; "
            f"above the held-out {_of(found['above_unseen'])}; exposure of the held-out "
            f"{_bits(exposure['0'])}, of 4 repeats {_bits(exposure['4'])}, of 64 {_bits(exposure['64'])}; "
            f"{_of(found['extracted_in_corpus'])} extracted texts stand in the corpus"
        )
    subjects = list(one["bias"]["subjects"].values())
    pooled = one["bias"]["pooled"]["3:1"]
    low, high = pooled["interval"]
    parts.append(
        f"ratios: planted in the audit's interval {sum(s['planted_in_interval'] for s in subjects)} of "
        f"{len(subjects)}, the model's share in that of what was planted "
        f"{sum(s['exact_in_interval_of_planted'] for s in subjects)}; 3:1 pooled {pooled['sampled']:.3f} "
        f"({low:.3f} to {high:.3f}), the model's {pooled['exact']:.3f}"
    )
    start = (
        f"Seed {one['seed']} (loss {one['final_loss']}, trained in {one['training_s']} s, "
        f"{one['evaluations']:,} evaluations in {one['audits_s']} s): "
    )
    return start + ". ".join(parts) + "."


def _of(share: list[int]) -> str:
    return f"{share[0]} of {share[1]}"


def _bits(bounds: list[float]) -> str:
    low, high = bounds
    return f"{low:g} bits" if low == high else f"{low:g} to {high:g} bits"


def _failures(seeds: list[dict[str, Any]]) -> list[str]:
    """What did not come out as planted, seed by seed."""
    failed = []
    for one in seeds:
        found = []
        for kind in KINDS:
            for name, what in (
                ("extracted_often", f"{kind} secrets repeated >= {OFTEN} times extracted"),
                ("pairs_in_order", f"{kind} pairs in order"),
                ("above_unseen", f"{kind} pairs above the held-out"),
            ):
                if one[kind][name][0] < one[kind][name][1]:
                    found.append(f"{_of(one[kind][name])} {what}")
        for subject, each in (one["bias"]["subjects"] | one["bias"]["pooled"]).items():
            if not each["planted_in_interval"]:
                low, high = each["interval"]
                found.append(
                    f"{subject} planted {each['planted']:.2f}, audited {each['sampled']:.3f} "
                    f"({low:.3f} to {high:.3f}), the model's {each['exact']:.3f}"
                )
        if found:
            failed.append(f"Not recovered with seed {one['seed']}: {'; '.join(found)}.")
    return failed
