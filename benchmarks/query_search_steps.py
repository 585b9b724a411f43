"""One measured search, in a process of its own: `query_search.py` runs it.

    python benchmarks/query_search_steps.py MODEL ours|plain [--batch 64] [--results 100] [--whole]
        [--encodings canonical]

Prints JSON: seconds of the search alone (imports and reading the model are not in it), evaluations, nodes,
and the texts with their log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from typing import Any

import query_plain
from holdfast.lm import query as q
from holdfast.lm.models.huggingface import HuggingFaceModel
from holdfast.lm.query.compiling import compile_query
from holdfast.lm.query.queries import Encodings

TOP_K = 40
BUDGET = 10_000_000


def question(whole: bool = False, encodings: Encodings = "prefix-canonical") -> q.Query:
    """URLs as in ReLM's evaluation, whatever follows; or the corpus's sentences around them."""
    start, end = ("See ", r" for details\.") if whole else ("", "")
    start += r"https://www\."
    url = r"([[:alnum:]]|_|-|#|%)+\.([[:alnum:]]|_|-|#|%|/)+"
    return q.Query(start + url + end, start, encodings, top_k=TOP_K, eos=whole)


def ours(model: HuggingFaceModel, query: q.Query, results: int, batch: int) -> dict[str, Any]:
    """The most probable texts, in proven order, each with all its encodings."""
    begin = time.perf_counter()
    found = q.search(model, query, results, batch=batch, budget=BUDGET)
    return {
        "seconds": time.perf_counter() - begin,
        "evaluations": model.cost.evaluations,
        # The tokens of the prompt are computed, but nothing is asked after them.
        "nodes": model.cost.nodes + _given(model, query) - 1,
        "passes": model.cost.calls,
        "listed": len(found.found),
        "texts": {match.text: match.logprob for match in found.found},
    }


def plain(model: HuggingFaceModel, query: q.Query, results: int) -> dict[str, Any]:
    """Token paths until they spell so many different texts; what was found of each, added up."""
    begin = time.perf_counter()
    texts: dict[str, float] = defaultdict(float)
    listed = 0
    compiled = compile_query(query, model.tokenizer, "texts")
    for last in query_plain.search(model.model, compiled, TOP_K):
        listed += 1
        texts[last.text.decode()] += math.exp(-last.cost)
        if len(texts) == results:
            break
    return {
        "seconds": time.perf_counter() - begin,
        "evaluations": last.evaluations,
        "nodes": last.nodes,
        "passes": last.nodes,
        "listed": listed,
        "texts": {text: math.log(chance) for text, chance in texts.items()},
    }


def _given(model: HuggingFaceModel, query: q.Query) -> int:
    (prompt,) = compile_query(query, model.tokenizer, "texts").prompts
    return len(prompt.tokens) + (model.tokenizer.bos is not None)


def main() -> None:
    """Measure one search."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("who", choices=("ours", "plain"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--results", type=int, default=100)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--encodings", default="prefix-canonical")
    options = parser.parse_args()
    query = question(options.whole, options.encodings)
    import torch

    torch.set_num_threads(1)  # the matrices of the small model are too small to share
    # What libraries set up at their first use, compiled code read from disk included, belongs to neither.
    warm = HuggingFaceModel(options.model, batch=options.batch)
    ours(warm, query, 2, options.batch)
    plain(warm, query, 2)
    model = HuggingFaceModel(options.model, batch=options.batch)
    if options.who == "ours":
        told = ours(model, query, options.results, options.batch)
    else:
        told = plain(model, query, options.results)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
