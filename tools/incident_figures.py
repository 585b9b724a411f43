"""In logs of known fleets: how often the rate's interval holds the truth, and which lemons are found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from known_fleets import GPUS, Drawn, Known, draw
from published_figures import Figures

if TYPE_CHECKING:
    from holdfast.fleet.log import FleetLog

LOGS = 2_000  # Of each fleet
WANTED, FALSE = 0.94, 0.05  # Share of intervals that hold the truth, of logs with a false lemon
CHANCE = 0.001  # Below it a count is not off by chance
TRUTH_LOGS = 100  # From which the truth is taken, at least
STRENGTH_LOGS = 100  # Of each strength of the lemons
STRENGTHS = (2, 4, 8, 20)
MONTHS = (3, 12)  # Lengths of the logs in which they are sought

SHARED, WHOLE = (1, GPUS), (1, 1)
MIXED = (SHARED, (4, 1), WHOLE, (8, 1))
FLEETS = {
    "one job per node": Known(jobs=(WHOLE,)),
    "eight jobs share a node": Known(),
    "eight jobs share a node, three failures expected": Known(rate=0.0025),
    "eight jobs share a node and end one by one": Known(even=False),
    "jobs over 1, 4 and 8 nodes": Known(jobs=MIXED),
    "jobs over 24 nodes beside small ones": Known(nodes=96, jobs=((24, 1), SHARED, WHOLE)),
    "failed jobs come back to their nodes": Known(requeued=True),
    "looping jobs": Known(loops=12),
    "a switch takes 16 nodes": Known(nodes=96, rate=0.005, bursts=15),
    "all of these": Known(nodes=96, jobs=MIXED, requeued=True, loops=12, bursts=15),
}
"""Fleets without a lemon: the interval holds the truth, and no node is called one."""

WITH_LEMONS = {"4 of 48 nodes fail 8 times as often": Known(lemons=4, factor=8)}
"""The interval holds the truth of these too."""

LIMITS = {"a switch takes 16 nodes, three times in all": Known(nodes=96, rate=0.005, bursts=3)}
"""What no interval can promise: a log that happens to have no such failure cannot know of them."""

SOUGHT = Known(nodes=128, rate=0.0065, jobs=(SHARED, WHOLE, WHOLE, (4, 1)), lemons=4)
"""The fleet in which lemons of each strength are sought; which of four nodes failed a job is unknown."""


def opened(known: Known, logs: int) -> Iterator[tuple[Drawn, FleetLog]]:
    """Logs of a fleet, each open in turn."""
    from holdfast import fleet

    with TemporaryDirectory() as folder:
        for seed in range(logs):
            drawn = draw(known, seed)
            log = fleet.open(drawn.store(Path(folder)))
            yield drawn, log
            log.engine.close()


def coverage(known: Known, logs: int = LOGS) -> Figures:
    """Intervals of `fleet.mttf` that hold the truth, and logs in which `fleet.lemons` finds any.

    The truth is the expected number of failures of nodes per node-day in use: over at least
    `TRUTH_LOGS` logs as they were drawn.
    """
    from holdfast import fleet

    incidents, node_days = 0, 0.0
    for seed in range(max(logs, TRUTH_LOGS)):
        drawn = draw(known, seed)
        incidents, node_days = incidents + drawn.incidents, node_days + drawn.node_days
    truth = 1000 * incidents / node_days
    held = finds = 0
    for _, log in opened(known, logs):
        low, high = fleet.mttf(log).model.ci95_
        held += low <= truth <= high
        finds += bool(fleet.lemons(log).lemons)
    return {"logs": logs, "truth": truth, "held": held, "finds": finds}


def recall(factor: float, months: int, logs: int = STRENGTH_LOGS) -> Figures:
    """Lemons of one strength: how many there were, were found, and how many other nodes were named."""
    from holdfast import fleet

    known = replace(SOUGHT, factor=factor, periods=months * 10)
    lemons = found = wrong = 0
    for each, log in opened(known, logs):
        true = {f"n{node:03d}" for node in each.lemons}
        named = set(fleet.lemons(log).lemons)
        lemons, found = lemons + len(true), found + len(named & true)
        wrong += len(named - true)
    return {"logs": logs, "lemons": lemons, "found": found, "wrong": wrong}


def measure_incidents(folder: Path) -> Figures:
    """All of them, minutes of CPU for each fleet; what is in the folder already is not measured again."""
    folder.mkdir(parents=True, exist_ok=True)
    fleets = {
        name: partial(coverage, known) for name, known in (FLEETS | WITH_LEMONS | LIMITS).items()
    }
    lemons = {
        f"{factor} {months}": partial(recall, factor, months)
        for months in MONTHS
        for factor in STRENGTHS
    }

    def measured(name: str, measure: Callable[[], Figures]) -> Figures:
        file = folder / f"{name}.json"
        if not file.exists():
            file.write_text(json.dumps(measure()), encoding="utf-8")
        return dict(json.loads(file.read_text(encoding="utf-8")))

    kinds = {"fleets": fleets, "lemons": lemons}
    return {
        kind: {name: measured(name, each) for name, each in of.items()}
        for kind, of in kinds.items()
    }


def verdict_of(f: Figures, alike: bool) -> str:
    """Whether a fleet's counts are as wanted: yes, no, or off by no more than chance."""
    from scipy.stats import binom

    logs, held, finds = f["logs"], f["held"], f["finds"] if alike else 0
    if held >= WANTED * logs and finds <= FALSE * logs:
        return "yes"
    by_chance = min(binom.cdf(held, logs, WANTED), binom.sf(finds - 1, logs, FALSE))
    return "within chance" if by_chance >= CHANCE else "**no**"


def incident_lines(kept: Figures) -> Iterator[str]:
    """The page's section."""
    yield from (
        "## Does the interval hold the truth, and are lemons lemons?",
        "",
        "Logs of fleets whose failures are known, drawn by `tools/known_fleets.py`, which shares nothing "
        "with the simulator or the",
        "analyses: nodes fail as Poisson processes while a job uses them, and each failure ends all that "
        "runs there.",
        "*Truth*: expected failures of nodes per 1,000 node-days in use, each node at a moment once. "
        "*Hold*: 95 % intervals",
        "of `holdfast fleet mttf` that contain it; wanted are 94 % or more. *False*: logs in which "
        "`holdfast fleet lemons`",
        "names a node although all are alike; wanted are 5 % or fewer. Of 100 logs both have "
        "a standard error of two",
        "points, of 2,000 of half a point.",
        "`python tools/reproduction.py FOLDER known-fleets` draws and measures them again.",
        "",
        "| fleet | logs | truth | hold | false | as wanted |",
        "|-|-:|-:|-:|-:|-|",
    )
    for name in FLEETS | WITH_LEMONS | LIMITS:
        f = kept["fleets"][name]
        alike = name not in WITH_LEMONS
        verdict = "no promise" if name in LIMITS else verdict_of(f, alike)
        false = f"{100 * f['finds'] / f['logs']:.1f} %" if alike else ""
        held = f"{100 * f['held'] / f['logs']:.1f} %"
        yield f"| {name} | {f['logs']:,} | {f['truth']:.2f} | {held} | {false} | {verdict} |"
    yield from (
        "",
        "The last fleet is a limit: its switches fail three times in the mean, in one log of five once or "
        "never. Such a log",
        "cannot tell what they cost in others, and its interval ends too low.",
        "",
        f"Whether a lemon is found depends on how strong it is, and on how long the log is. Four of "
        f"{SOUGHT.nodes} nodes fail more often than the",
        f"others, which fail {1000 * SOUGHT.rate:g} times per 1,000 node-days, in jobs on a shared node, "
        "one node and four nodes:",
        "",
        "| a lemon fails | log | lemons | found | other nodes named, per log |",
        "|-|-|-:|-:|-:|",
    )
    for months, factor in product(MONTHS, STRENGTHS):
        f = kept["lemons"][f"{factor} {months}"]
        share, wrong = f["found"] / f["lemons"], f["wrong"] / f["logs"]
        many = f"{factor} times as often | {months} months | {f['lemons']:,}"
        yield f"| {many} | {100 * share:.0f} % | {wrong:.2f} |"
    yield ""
