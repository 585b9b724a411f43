"""Regular expressions over a vocabulary: holdfast beside outlines-core, llguidance and xgrammar.

    python benchmarks/query_compile.py [--quick] [--only PATTERN] [--tokenizers DIR]

Compares languages first: texts of each language and near misses, spelled by the published encoder and byte
by byte, are asked of every contender, and of Python's `re`. Then times, in one process, in turn: from an
expression's text to an index of all states; to the first mask; masks along token sequences. Peak memory of
an index is measured in fresh processes (`query_compile_memory`).
Writes `benchmarks/results/query_compile.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.tokenizers.tokenizer import Tokenizer
from measuring import CORES, compared, limited, machine, run
from query_compile_inputs import PATTERNS, SMALL_LANGUAGES, VOCABULARIES, texts, vocabulary
from query_compile_memory import ARCS
from query_compile_peers import OURS, Peer, installed, our_arcs, versions

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "query_compile.json"
TOKENIZERS = HERE.parents[1] / "shared" / "data" / "tokenizers"

REPEATS = 7
TEXTS, MASKED = 25, 5
WIDE = ("e-mail", "URL", "JSON-like", "long repetition")
"""Whose index takes megabytes: less drowns in the pages of the process."""
INDEX_GOAL, MEDIAN_GOAL, FIRST_MASK_GOAL, MEMORY_GOAL = 10, 20, 0.5, 5


@dataclass
class Measured:
    """What was measured of one vocabulary and expression."""

    vocabulary: str
    pattern: str
    states: int = 0
    arcs: int = 0
    effects: int = 0
    index_bytes: int = 0
    texts: int = 0
    members: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Contender -> token sequences of texts in the language that it does not admit."""
    admitted: dict[str, int] = field(default_factory=dict)
    """Contender -> token sequences of texts outside the language that it admits."""
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """"what: contender" -> runs."""
    rise_mb: dict[str, float] = field(default_factory=dict)

    def median(self, what: str, contender: str) -> float:
        """The median of some runs, in seconds."""
        return statistics.median(self.seconds[f"{what}: {contender}"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:CORES])
    try:
        _run(options)
    finally:
        os.sched_setaffinity(0, allowed)


def _run(options: argparse.Namespace) -> None:
    host, peers = machine(), installed()
    for name in {"outlines-core", "llguidance", "xgrammar"} - {peer.name for peer in peers}:
        print(f"{name}: absent")
    measured, preparation = [], {}
    for name in VOCABULARIES:
        tokenizer = vocabulary(name, options.tokenizers)
        prepared = {}
        for contender in [OURS, *peers]:
            if contender is OURS:
                contender.prepare(tokenizer)  # loads the machine code
            begin = time.perf_counter()
            prepared[contender.name] = contender.prepare(tokenizer)
            preparation[f"{name}, {contender.name}"] = time.perf_counter() - begin
            contender.first_mask(prepared[contender.name], "[0-9]x")
            contender.masks(prepared[contender.name], "[0-9]{12}")(tokenizer.encode(b"5" * 9))
            if contender.index is not None:
                contender.index(prepared[contender.name], "[0-9]x")
        for pattern in SMALL_LANGUAGES:
            if options.only in pattern:
                one = Measured(name, pattern)
                _compare_languages(one, pattern, tokenizer, prepared, peers)
                _print(one)
                measured.append(one)
        for pattern, regex in PATTERNS.items():
            if options.only in pattern:
                one = Measured(name, pattern)
                paths = _compare_languages(one, regex, tokenizer, prepared, peers)
                _time(one, regex, paths, prepared, peers, options)
                if pattern in WIDE and not options.quick:
                    _measure_memory(one, options, peers)
                _print(one)
                measured.append(one)
    told = _results(measured, preparation, host, peers)
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(json.dumps(told, indent=2) + "\n")
    print(f"wrote {options.result}")


# --- Measuring -----------------------------------------------------------------------------------


def _compare_languages(
    one: Measured, regex: str, tokenizer: Tokenizer, prepared: dict[str, Any], peers: list[Peer]
) -> list[list[int]]:
    """Count who admits what; returns some token sequences of the language that all admit."""
    tried = texts(compile_regex(regex), TEXTS)
    judge = re.compile(regex)
    base = {piece: token for token, piece in enumerate(tokenizer.pieces) if piece}
    asked = {peer.name: peer.admits(prepared[peer.name], regex) for peer in [OURS, *peers]}
    one.refused = dict.fromkeys(asked, 0)
    one.admitted = dict.fromkeys(asked, 0)
    shared = []
    for text in tried:
        spelled = text.encode()
        belongs = judge.fullmatch(text) is not None
        one.texts += 1
        one.members += belongs
        encoded = tokenizer.encode(spelled)
        if belongs and all(admits(encoded) for admits in asked.values()):
            shared.append(encoded)
        ways = {tuple(encoded), tuple(base[bytes([byte])] for byte in spelled)}
        for tokens in ways:
            for name, admits in asked.items():
                if admits(tokens) != belongs:
                    (one.refused if belongs else one.admitted)[name] += 1
    if one.refused[OURS.name] or one.admitted[OURS.name]:
        raise SystemExit(f"{one.vocabulary}, {one.pattern}: the language differs from Python's re")
    return shared[:MASKED]


def _time(
    one: Measured,
    regex: str,
    paths: list[list[int]],
    prepared: dict[str, Any],
    peers: list[Peer],
    options: argparse.Namespace,
) -> None:
    """Every contender in turn, again and again."""
    made = our_arcs(prepared[OURS.name], regex)
    one.states, one.arcs, one.index_bytes = made.num_states, made.num_arcs, made.nbytes
    one.effects = len(made.effect_offsets) - 1
    del made
    number = sum(map(len, paths))
    for _ in range(2 if options.quick else options.repeats):
        for contender in [OURS, *peers]:
            ready, name = prepared[contender.name], contender.name
            if contender.index is not None:
                one.seconds[f"index: {name}"].append(_seconds(contender.index, ready, regex))
            if contender is OURS:
                one.seconds[f"index: {ARCS}"].append(_seconds(our_arcs, ready, regex))
            one.seconds[f"first mask: {name}"].append(_seconds(contender.first_mask, ready, regex))
            # Nothing is kept from run to run but what the library itself keeps of a vocabulary.
            masks = contender.masks(ready, regex)
            begin = time.perf_counter()
            for path in paths:
                masks(path)
            one.seconds[f"later mask: {name}"].append((time.perf_counter() - begin) / number)


def _seconds(work: Callable[[Any, str], Any], prepared: Any, regex: str) -> float:
    begin = time.perf_counter()
    made = work(prepared, regex)
    taken = time.perf_counter() - begin
    del made
    return taken


def _measure_memory(one: Measured, options: argparse.Namespace, peers: list[Peer]) -> None:
    for name in [OURS.name, ARCS, *(peer.name for peer in peers if peer.index)]:
        command = [sys.executable, HERE / "query_compile_memory.py", name, one.vocabulary]
        told = run([*command, one.pattern, options.tokenizers]).output
        one.rise_mb[name] = json.loads(told)["rise_mb"]


def _print(one: Measured) -> None:
    print(f"{one.vocabulary}, {one.pattern}: {one.texts} texts, {one.members} of the language")
    for kind, counts in (("does not admit", one.refused), ("wrongly admits", one.admitted)):
        for name, number in counts.items():
            if number:
                print(f"  {name} {kind} {number} token sequences")
    if one.seconds:
        print(f"  {one.states} states, {one.arcs:,} arcs, {one.effects} effects")
    for what in one.seconds:
        ours = one.median(what.partition(": ")[0], OURS.name)
        median = statistics.median(one.seconds[what])
        print(f"  {what:40s} {median * 1e3:10.3f} ms, {median / ours:8.2f} of ours")
    for name, rise in one.rise_mb.items():
        print(f"  memory: {name:32s} {rise:10.2f} MB")


# --- Results -------------------------------------------------------------------------------------


def _results(
    measured: list[Measured], preparation: dict[str, float], host: dict[str, Any], peers: list[Peer]
) -> dict[str, Any]:
    timed = [one for one in measured if one.seconds]
    names = {peer.name for peer in peers}
    rows: list[dict[str, Any]] = []
    for of in VOCABULARIES:
        some = [one for one in timed if one.vocabulary == of]
        if "outlines-core" in names:
            rows += _rows(some, "index", "outlines-core", INDEX_GOAL, MEDIAN_GOAL)
            rows += _rows(some, "index", "outlines-core", None, None, ARCS)
        if "llguidance" in names:
            rows += _rows(some, "first mask", "llguidance", FIRST_MASK_GOAL, None)
        for name in sorted(names):
            if name != "llguidance":
                rows += _rows(some, "first mask", name, None, None)[-1:]
            rows += _rows(some, "later mask", name, None, None)[-1:]
    return {
        "title": "Regular expressions over a vocabulary",
        "script": "benchmarks/query_compile.py",
        "input": (
            "nine regular expressions (dates, times, IP addresses, SSNs, phones, e-mail addresses, URLs, "
            " JSON-like text, long repetition) over the vocabularies of GPT-2 (50,257 tokens) and "
            "cl100k (100,277)"
        ),
        "comparisons": rows,
        "limits": _limits(timed, preparation),
        "figures": {f"{one.vocabulary}, {one.pattern}": _figures(one) for one in measured},
        "machine": host,
        "versions": {"holdfast": version("holdfast"), "numba": version("numba")} | versions(peers),
        "notes": _notes(measured, peers),
    }


def _rows(
    some: list[Measured],
    what: str,
    peer: str,
    goal: float | None,
    median_goal: float | None,
    us: str = OURS.name,
) -> list[dict[str, Any]]:
    """A row for each expression, and one for the median ratio."""
    if not some:
        return []
    name = f"{some[0].vocabulary}, {what}" + (", every arc listed" if us == ARCS else "")
    rows = [
        compared(f"{name}, {one.pattern}", one.median(what, us), peer, one.median(what, peer), goal)
        for one in some
    ]
    # The row of the expression in the middle, so that its times belong to its ratio.
    middle = sorted(rows, key=lambda row: float(row["ratio"] or 0))[(len(rows) - 1) // 2]
    label = f"{name}, median ({str(middle['what']).rpartition(', ')[2]})"
    return [*rows, middle | {"what": label, "target": median_goal}]


def _limits(timed: list[Measured], preparation: dict[str, float]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for one in timed:
        name = f"{one.vocabulary}, {one.pattern}"
        for peer, rise in one.rise_mb.items():
            if peer == OURS.name:
                continue
            ours = one.rise_mb[OURS.name]
            if peer == ARCS:
                rows.append(limited(f"{name}, peak memory, {ARCS}", rise, "MB"))
                continue
            # A page is the least that can be told.
            ratio = rise / max(ours, 0.004)
            what = f"{name}, peak memory of {peer}'s index ({rise:.1f} MB) by ours ({ours:.2f} MB)"
            rows.append(limited(what, ratio, "", MEMORY_GOAL) | {"least": True})
    rows += [
        limited(f"vocabulary prepared, once for all expressions: {name}", seconds, "s")
        for name, seconds in preparation.items()
    ]
    return rows


def _figures(one: Measured) -> dict[str, Any]:
    return {
        "states": one.states,
        "arcs": one.arcs,
        "effects": one.effects,
        "index_bytes": one.index_bytes,
        "texts": one.texts,
        "members": one.members,
        "refused": one.refused,
        "admitted": one.admitted,
        "median_ms": {
            what: round(statistics.median(runs) * 1e3, 4) for what, runs in one.seconds.items()
        },
        "range_ms": {
            what: [round(min(runs) * 1e3, 4), round(max(runs) * 1e3, 4)]
            for what, runs in one.seconds.items()
        },
        "rise_mb": one.rise_mb,
    }


def _notes(measured: list[Measured], peers: list[Peer]) -> list[str]:
    notes = [
        f"One process on {CORES} cores, contenders in turn, medians; an index and a first mask are counted "
        "from the text of the expression, what is made once of a vocabulary is told apart.",
        "Our index keeps, for each state, what tokens do rather than the tokens one by one: 'every arc "
        "listed' is the time to write all of them out as well.",
        "Memory: how far the resident memory of a fresh process rose while the index was made.",
        f"Languages: {sum(one.texts for one in measured):,} texts, members and near misses, each spelled "
        "by the published encoder and byte by byte; ours agrees with Python's re on all.",
    ]
    for peer in peers:
        for kind, says in (
            ("refused", "refuses texts of"),
            ("admitted", "admits texts outside of"),
        ):
            where = [
                f"{one.pattern} over {one.vocabulary} ({getattr(one, kind)[peer.name]} token sequences)"
                for one in measured
                if getattr(one, kind)[peer.name]
            ]
            if where:
                notes.append(f"{peer.name} {says} the language: " + ", ".join(where) + ".")
    return notes


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizers", type=Path, default=TOKENIZERS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--only", default="", help="expressions with this in their name")
    parser.add_argument("--quick", action="store_true", help="two runs, no memory")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
