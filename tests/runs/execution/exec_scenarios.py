"""Trainings with one fault, run as real processes below `runs exec`, and how right its verdict is.

A verdict scores 1 if it is right, 0.5 if it says that it cannot tell, and -1 if it names a false cause.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.runs import breakdown, stragglers
from holdfast.runs.execution.verdict import judged
from holdfast.runs.straggling.verdict import Stragglers

PROGRAM = Path(__file__).with_name("scenario_training.py")
HOLDFAST = (sys.executable, "-c", "from holdfast.cli import main; main()", "runs", "exec")
HOUR_S = 3600.0
KINDS: dict[str, tuple[str, ...]] = {
    "load": ("ddp", "pipeline"),
    "kill": ("ddp", "fsdp", "pipeline", "tensor"),
    "nan": ("ddp", "fsdp"),
    "slow": ("ddp", "fsdp", "pipeline", "tensor"),
    "exception": ("ddp", "fsdp", "pipeline", "tensor"),
    "kill-start": ("ddp", "fsdp"),
    "exit": ("ddp",),
    "memory": ("ddp", "fsdp"),
    "frozen-loader": ("ddp", "fsdp", "tensor"),
    "skip": ("ddp", "fsdp", "tensor"),
    "branch": ("ddp", "fsdp", "tensor"),
    "half-slow": ("ddp", "fsdp"),
    "network": ("ddp", "ddp"),
    "none": ("ddp", "fsdp", "tensor"),
    "corruption": ("ddp", "ddp"),
    "preemption": ("ddp", "fsdp"),
    "two-nodes": ("kill", "exception", "none"),
    "two-nodes-by-hand": ("kill", "exception", "none"),
}
"""Kind -> the layouts that it is tried with; of two nodes, the faults."""
QUICK = ("kill", "exception", "nan", "slow")
"""Kinds of which one scenario is run quickly, without a launcher: a fault that others notice."""


@dataclass(frozen=True)
class Scenario:
    """One training and its fault."""

    kind: str
    layout: str
    fault: str
    world: int
    victims: tuple[int, ...]
    at: int
    compute_s: float
    slow_s: float
    ahead_s: float
    """Seconds by which the second node's clock is ahead."""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.layout}-{self.world}"

    @property
    def nodes(self) -> int:
        return 2 if self.kind.startswith("two-nodes") else 1

    def plan(self) -> str:
        """What the program is told."""
        timed = self.fault in ("slow", "network", "none") and self.nodes == 1
        steps = 120 if self.fault == "corruption" else 50 if timed else 30
        plan = {"layout": self.layout, "fault": self.fault, "victims": self.victims, "at": self.at}
        return json.dumps(
            {**plan, "steps": steps, "compute_s": self.compute_s, "slow_s": self.slow_s}
        )


def scenarios(seed: int) -> list[Scenario]:
    """All scenarios, with parameters drawn from a seed."""
    return [
        _drawn(kind, each, random.Random(f"{seed} {kind} {place}"))
        for kind, chosen in KINDS.items()
        for place, each in enumerate(chosen)
    ]


def _drawn(kind: str, chosen: str, drawn: random.Random) -> Scenario:
    nodes = kind.startswith("two-nodes")
    fault = chosen if nodes else {"half-slow": "slow", "preemption": "none"}.get(kind, kind)
    layout = "ddp" if nodes else chosen
    world = drawn.choice([2, 3])
    if layout == "pipeline" or nodes:
        world = 2
    if kind in ("corruption", "skip", "branch"):
        world = 3
    victims = tuple(sorted(drawn.sample(range(world), 1)))
    if kind == "half-slow":
        world, victims = 4, tuple(sorted(drawn.sample(range(4), 2)))
    if fault in ("none", "network"):
        victims = ()
    compute_s = drawn.uniform(0.03, 0.05)
    return Scenario(
        kind,
        layout,
        fault,
        world,
        victims,
        at=drawn.randint(12, 25),
        compute_s=0.005 if fault == "corruption" else compute_s,
        slow_s=compute_s * drawn.uniform(*((2.0, 3.0) if fault == "network" else (0.5, 1.0))),
        ahead_s=drawn.choice([-1, 1]) * drawn.uniform(0.5, 1.5) * HOUR_S,
    )


# --- Running -------------------------------------------------------------------------------------


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _by_hand(each: Scenario, ranks: Sequence[int], port: str) -> list[str]:
    """A shell that starts ranks without a launcher."""
    train = shlex.join([sys.executable, str(PROGRAM), each.plan()])
    begun = [f"RANK={rank} LOCAL_RANK={place} {train} &" for place, rank in enumerate(ranks)]
    setting = f"export WORLD_SIZE={each.world} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}"
    waits = "for p in $(jobs -p); do wait $p || code=$?; done; exit ${code:-0}"
    return ["bash", "-c", "\n".join([setting, *begun, waits])]


def _torchrun(each: Scenario, node: int, port: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(each.nodes)]
    where = ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", port]
    number = ["--nproc-per-node", str(each.world // each.nodes)]
    return [*launcher, *where, *number, str(PROGRAM), each.plan()]


def train(each: Scenario, folder: Path, launcher: bool = True) -> dict[str, Any]:
    """Run a scenario; the JSON of the verdict."""
    port, commands = free_port(), []
    for node in range(each.nodes):
        mine = range(each.world)[node :: each.nodes]
        by_hand = not launcher or each.kind == "two-nodes-by-hand"
        commands.append(_by_hand(each, mine, port) if by_hand else _torchrun(each, node, port))
    options = ("--json", "-o", str(folder), "--stop-on-hang", "--hang-after", "4s", "--")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    outputs = [folder.parent / f"{folder.name}-{node}.txt" for node in range(each.nodes)]
    with ExitStack() as files:
        running = []
        for command, path in zip(commands, outputs, strict=True):
            output = files.enter_context(path.open("w"))
            below = [*HOLDFAST, *options, *command]
            running.append(subprocess.Popen(below, env=environment, stdout=output, stderr=output))
        if each.kind == "preemption":
            _preempt(running[0], folder, each.at)
        codes = [one.wait(240) for one in running]
    if each.nodes == 2:
        return _of_two_nodes(folder / "run", each, max(codes))
    text = outputs[0].read_text()
    found: dict[str, Any] = json.loads(
        text[text.rindex('{\n  "command"') :].partition("\n}\n")[0] + "\n}"
    )
    return found


def _preempt(running: subprocess.Popen[bytes], folder: Path, step: int) -> None:
    """SIGTERM once a rank has made some steps."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and running.poll() is None:
        lines = "".join(each.read_text() for each in folder.glob("run/rank-00000-*.jsonl"))
        if f'"step":{step},' in lines:
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)


def _of_two_nodes(own: Path, each: Scenario, code: int) -> dict[str, Any]:
    """The verdict on what two machines would have recorded, of which one has another clock."""
    for path in own.glob("rank-*.jsonl"):
        first, _, rest = path.read_text().partition("\n")
        start = json.loads(first)
        if start["rank"] % 2:
            start |= {
                "node": "node1",
                "boot_id": "another",
                "opened_s": start["opened_s"] + each.ahead_s,
            }
            start["monotonic_s"] += 12345.0
        path.write_text(f"{json.dumps(start)}\n{rest}")
    return judged(own, ("train",), code, 0.0, ()).to_dict()


# --- Scoring -------------------------------------------------------------------------------------


def score(each: Scenario, folder: Path, found: dict[str, Any]) -> tuple[float, str]:
    """How right a verdict is, and what it said."""
    said = f"{found['action']}: {found['advice']} {found['sentence']}"
    if each.fault in ("slow", "network", "none") and each.kind != "preemption" and each.nodes == 1:
        told = stragglers(folder)
        return _of_speed(each, told), told.sentence
    if each.kind == "preemption":
        right = found["action"] == "restart" and found["ending"]["ended"] == "signal"
        return (1.0 if right and found["rank"] is None else -1.0), said
    if each.fault == "none":
        right = found["action"] == "none" and found["ending"]["attempt"] == 1
        return (1.0 if right else -1.0), said
    victim = each.victims[0]
    if each.fault in ("nan", "corruption"):
        made = breakdown(folder)
        told_of = made.losses_not_finite if each.fault == "nan" else made.disagreements
        if not told_of:
            return 0.5, said
        step = told_of[0].first_step or 0
        since = step == each.at if each.fault == "nan" else each.at <= step <= each.at + 50
        right = told_of[0].ranks == (victim,) and since and found["action"] == "stop"
        return (1.0 if right else -1.0), said
    return _of_end(each, found, victim), said


def _of_speed(each: Scenario, told: Stragglers) -> float:
    if told.verdict == "cannot_tell":
        return 0.5
    slow = {row["rank"] for row in told.persistent}
    if told.groups is not None:
        slow |= {int(told.matrix.ranks[place]) for place in told.groups.slow}
    verdict = {"slow": "slow_ranks", "network": "slow_network", "none": "no_slow_rank"}[each.fault]
    return 1.0 if told.verdict == verdict and slow == {*each.victims} else -1.0


def _line(text: str) -> str:
    """A line of the program, as it is named."""
    number = PROGRAM.read_text().partition(text)[0].count("\n") + 1
    return f"{PROGRAM.name}:{number}"


ENDS = {
    "load": ("exception", False),
    "exception": ("exception", False),
    "memory": ("exception", False),
    "kill": ("killed", False),
    "kill-start": ("killed", False),
    "exit": ("killed", False),
}
"""Fault -> how the attempt ends, and whether it hung; others hang, and end as they are ended."""
LINES = {
    "load": "# the load's line",
    "exception": "# the exception's line",
    "memory": "torch.zeros(1 << 34)",
    "skip": "# the right branch",
    "branch": "# the wrong branch",
}
"""Fault -> what stands in the line that the verdict shall name."""


def _of_end(each: Scenario, found: dict[str, Any], victim: int) -> float:
    ending = found["ending"] or {"ended": "", "hung": False}
    ended, hung = ENDS.get(each.fault, (ending["ended"], True))
    if found["action"] == "cannot tell":
        return 0.5
    if (ending["ended"], ending["hung"]) != (ended, hung) or found["rank"] not in (victim, None):
        return -1.0
    line = each.fault not in LINES or _line(LINES[each.fault]) in found["sentence"]
    return 1.0 if found["rank"] == victim and line else 0.5
