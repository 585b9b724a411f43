"""How often the watcher cries wolf, how late it sees a fault, and what it costs.

    python benchmarks/runs_watch.py

prints the tables of docs/runs-watch.md: simulated healthy trainings of 1,000 hours, faults at a known time,
and the processor time for each event of 1,024 ranks.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from holdfast.runs.recording.tailing import EventTail
from holdfast.runs.watching.alarms import Alarm
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.replaying import by_process, in_order, replayed
from holdfast.runs.watching.run_clock import RunClock
from simulated_training import START_S, Training, process, start_line

POLL_S = 5.0

HEALTHY = {
    "steady steps of 1 s": Training(hours=100),
    "noisy steps of 5 s (sigma 0.3)": Training(hours=200, step_s=5, sigma=0.3),
    "heavy tail: 2 % of 3-s steps take up to 20 times longer": Training(
        hours=200, step_s=3, sigma=0.1, heavy_tail=0.02
    ),
    "slow episodes of minutes (sigma 0.2, correlation 0.95)": Training(
        hours=200, step_s=5, sigma=0.2, persistence=0.95
    ),
    "four data stalls an hour, long garbage collections": Training(
        hours=100, step_s=2, gc_every=200, gc_s=10, stalls_per_hour=4
    ),
    "steps of 30 s, checkpoints of 10 min, drift of 50 % a day": Training(
        hours=200,
        step_s=30,
        sigma=0.2,
        checkpoint_every=60,
        checkpoint_s=600,
        evaluation_every=200,
        evaluation_s=1200,
        drift_per_day=0.5,
    ),
}
"""1,000 hours together."""

FAULT_AT_S = 3 * 3600.0
FAULTS = {
    "steps take twice as long": ("slow_steps", {"slow_from_s": FAULT_AT_S}),
    "the input halves the throughput": ("throughput", {"starve_from_s": FAULT_AT_S}),
    "a hang": ("hang", {"hang_at_s": FAULT_AT_S}),
    "a death": ("silence", {"die_at_s": FAULT_AT_S}),
}
SPEEDS = {
    "1 s": Training(hours=5, step_s=1, sigma=0.1),
    "10 s": Training(hours=8, step_s=10, sigma=0.1),
    "10 s, noisy (sigma 0.3)": Training(hours=8, step_s=10, sigma=0.3),
    "60 s": Training(hours=24, step_s=60, sigma=0.1, checkpoint_every=60),
}


def alarms(training: Training) -> list[Alarm]:
    """The alarms that were opened, at default settings."""
    changes = replayed(Lookout(), training.events(), POLL_S)
    opened = [change.alarm for _, change in changes if change.event == "opened"]
    if training.die_at_s < training.hours * 3600:  # nothing is written that would bring on a look
        opened += _afterwards(training)
    return opened


def _afterwards(training: Training) -> list[Alarm]:
    lookout = Lookout()
    for _ in replayed(lookout, training.events(), POLL_S):
        pass
    at, found = lookout.run.heard_at, []
    while at < lookout.run.heard_at + 300:
        at += POLL_S
        found += [change.alarm for change in lookout.look(at) if change.event == "opened"]
    return found


def delays(training: Training, fault: str, seeds: int) -> list[float | None]:
    """Seconds from the fault to its alarm, for each seed; None: not seen."""
    kind, change = FAULTS[fault]
    at = FAULT_AT_S if training.step_s < 60 else 4 * FAULT_AT_S
    change = dict.fromkeys(change, at)
    found: list[float | None] = []
    for seed in range(seeds):
        opened = alarms(training.but(seed=seed, **change))
        first = [alarm.opened_s - at for alarm in opened if alarm.kind == kind]
        found.append(first[0] if first else None)
    return found


def cost(ranks: int, steps: int, folder: Path) -> tuple[float, float, int]:
    """CPU seconds per event (reading and judging), per look, and how many events there were.

    The files grow by five steps of a second between two looks, a data wait and a step for each.
    """
    own = folder / "simulated"
    own.mkdir()
    files = []
    for rank in range(ranks):
        who = process(rank, ranks)
        path = own / f"rank-{rank:05d}-{int(START_S * 1000)}-{who.pid}.jsonl"
        path.write_text(json.dumps(start_line(who)) + "\n")
        files.append(path)
    tail, clock, lookout = EventTail(own), RunClock(), Lookout()
    now, events, spent, looks = 0.0, 0, 0.0, 0
    for step in range(1, steps + 1):
        now += 1.0
        wait = {"event": "data_wait", "seconds": 0.011, "t": now - 0.99}
        line = {
            "event": "step",
            "step": step,
            "tokens": 8192,
            "loss": 2.513,
            "seconds": 0.98131,
            "t": now,
        }
        text = json.dumps(wait) + "\n" + json.dumps(line) + "\n"
        for path in files:
            with path.open("a") as file:
                file.write(text)
        if step % POLL_S:
            continue
        begun = time.process_time()
        grown = tail.poll()
        for _, who, event, opened_at in in_order(by_process(grown), clock):
            lookout.take(who, event, now, opened_at)
        lookout.look(now)
        spent += time.process_time() - begun
        events += len(grown)
        looks += 1
    assert lookout.run.completed == steps
    return spent / events, spent / looks, events


def main() -> None:
    """Print the tables."""
    print("| healthy training | hours | alarms |\n|-|-:|-:|")
    total = 0
    for name, training in HEALTHY.items():
        found = alarms(training)
        total += len(found)
        kinds = ", ".join(sorted({alarm.kind for alarm in found}))
        print(
            f"| {name} | {training.hours:g} | {len(found)}{f' ({kinds})' if kinds else ''} |",
            flush=True,
        )
    print(f"| together | {sum(one.hours for one in HEALTHY.values()):,g} | {total} |\n")
    print("| fault | " + " | ".join(f"steps of {speed}" for speed in SPEEDS) + " |")
    print("|-|" + "-:|" * len(SPEEDS))
    for fault in FAULTS:
        cells = []
        for training in SPEEDS.values():
            found_s = delays(training, fault, 10)
            seen = [value for value in found_s if value is not None]
            missed = len(found_s) - len(seen)
            text = f"{median(seen):.0f} s ({max(seen):.0f} s)" if seen else "–"
            cells.append(text + (f", {missed} of {len(found_s)} not seen" if missed else ""))
        print(f"| {fault} | {' | '.join(cells)} |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        event_s, look_s, events = cost(1024, 100, Path(name))
    print(
        f"\n{event_s * 1e6:.1f} us of processor time per event ({events:,} events of 1,024 ranks): "
        f"{100 * look_s / POLL_S:.1f} % of one core at one step a second, a look every {POLL_S:g} s"
    )


if __name__ == "__main__":
    main()
