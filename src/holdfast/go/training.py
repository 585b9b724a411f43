"""Training by self-play: games, steps of the network, a rating now and then; all state is on the disk.

DIR/state.pt has weights, optimizer and ledger after an iteration and is replaced as a whole: a run that was
killed resumes after its last iteration, and after the parts of games that it has finished since.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from holdfast import progress
from holdfast.config import read_config
from holdfast.errors import HoldfastError, InputError
from holdfast.fanout import fan_out
from holdfast.files import write_whole
from holdfast.go.ablation import Ablation, ablate
from holdfast.go.inference import Network, inference_server
from holdfast.go.ledger import Iteration, Training
from holdfast.go.matches import match
from holdfast.go.net import Net, NetSize, save_net
from holdfast.go.puct import oriented
from holdfast.go.rules import Game, read_size
from holdfast.go.selfplay import Part, SelfPlay, play_part

_TRIES = 5
"""How often games are begun whose processes end."""


@dataclass(frozen=True)
class Steps:
    """Settings of the optimizer (AdamW)."""

    batch: int = 128
    learning_rate: float = 1e-3
    """At the start of an iteration; it falls to 0 until its end, so that what is published is settled."""
    uses: float = 8.0
    """How often a sample is used, on average."""
    window: int = 20
    """Iterations whose samples are kept."""


@dataclass(frozen=True)
class Rating:
    """How strength is measured: matches of the net with playout search."""

    every: int = 5
    """Iterations between two ratings; 0: none."""
    games: int = 40
    visits: int = 100
    opponent_visits: int = 200


@dataclass(frozen=True)
class Config:
    """A training run."""

    iterations: int
    size: str = "7x7"
    komi: float = 7.5
    rules: str = "chinese"
    first_playouts: int = 1
    """Iterations whose games playout search plays; 0: the network begins with random moves."""
    processes: int = 1
    seed: int = 1
    net: NetSize = field(default_factory=NetSize)
    selfplay: SelfPlay = field(default_factory=SelfPlay)
    steps: Steps = field(default_factory=Steps)
    rating: Rating = field(default_factory=Rating)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: what differs from this configuration, for an ablation."""


class Diverged(HoldfastError):
    """A network whose weights are not finite, which is never published."""

    code = "diverged"


def train(
    config: str | Path | Mapping[str, Any], output: Path, ray: str | None = None
) -> Training | Ablation:
    """Train a network by self-play, or resume an interrupted run; with changes, an ablation of them.

    Args:
        config: TOML file of a `Config`, or its content.
        output: folder of the run: net.safetensors (the last network), state.pt, games/.
        ray: address of a Ray cluster that plays the games; it shares the folder.

    Raises:
        InputError: an invalid configuration, or a folder of a run with another one.
        Diverged: weights that are not finite; the last network stays.
        HoldfastError: a process of the games ended; another call resumes.
    """
    settings = read_config(config, Config, "the training run")
    start = Game(*read_size(settings.size), settings.rules, settings.komi)
    if settings.changes:
        return ablate(settings, output, ray)
    (output / "games").mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    net = Net(settings.net)
    optimizer = torch.optim.AdamW(net.parameters(), settings.steps.learning_rate)
    state, path = output / "state.pt", output / "net.safetensors"
    # The length of a run and its processes may change.
    fixed = asdict(replace(settings, iterations=0, processes=0))
    rows = _restore(state, net, optimizer, fixed)
    with contextlib.ExitStack() as stack:
        server: tuple[Any, bytes] = None, b""
        if settings.processes > 1 or ray is not None:
            server = stack.enter_context(inference_server(ray not in (None, "local")))
        bar = stack.enter_context(progress.track("training", settings.iterations, "iterations"))
        bar.advance(len(rows))
        for number in range(len(rows), settings.iterations):
            # 1. Games, in a part per process; parts that are there are not played again.
            save_net(net, path)
            games, processes = settings.selfplay.games, settings.processes
            parts = [
                Part(
                    Network(path, number, *server) if number >= settings.first_playouts else None,
                    start,
                    settings.selfplay,
                    len(range(place, games, processes)),
                    (settings.seed * 10_000 + number) * 100_000 + place * games,
                    output / "games" / f"{number:05}-{place}-of-{processes}.npz",
                )
                for place in range(min(processes, games))
            ]
            _play(parts, processes, ray)
            # 2. Steps.
            began = time.thread_time()
            loss, fresh, costs = _steps(net, optimizer, output / "games", number, settings)
            if not net.finite():
                raise Diverged(
                    f"{path}: weights that are not finite in iteration {number + 1}; the network before it "
                    "stays\n  remedy: lower steps.learning_rate and train in another folder"
                )
            save_net(net, path)
            spent = time.thread_time() - began
            row = Iteration(number + 1, games, fresh, loss, *costs, spent)
            # 3. Strength; then everything to the disk at once.
            if settings.rating.every and row.number % settings.rating.every == 0:
                row = _rated(row, path, settings.rating, start)
            rows.append(row)
            kept = {
                "config": fixed,
                "iterations": [asdict(each) for each in rows],
                "net": net.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            content = io.BytesIO()
            torch.save(kept, content)
            write_whole(state, content.getbuffer())
            bar.advance(1)
    return Training(str(path), f"visits:{settings.rating.opponent_visits}", rows)


def _play(parts: Sequence[Part], processes: int, ray: str | None) -> None:
    """Play all parts; those of a process that ended are played again."""
    for left in reversed(range(_TRIES)):
        try:
            for _ in fan_out(parts, play_part, processes=processes, ray=ray):
                pass
        except HoldfastError as error:
            if not isinstance(error.__cause__, BrokenProcessPool) or not left:
                raise
            progress.remark("a process of self-play ended; its games are played again")
        else:
            return


def _steps(
    net: Net, optimizer: torch.optim.Optimizer, folder: Path, number: int, settings: Config
) -> tuple[float, int, tuple[float, float, float]]:
    """Train on the samples of the last iterations.

    Returns:
        Mean loss of the last half of the steps; samples and costs (search, inference, waiting) of the games
        of this iteration.
    """
    steps = settings.steps
    played = []
    for each in range(max(0, number + 1 - steps.window), number + 1):
        for path in sorted(folder.glob(f"{each:05}-*.npz")):
            with np.load(path, allow_pickle=False) as file:
                played.append((each == number, dict(file)))
    names = ("planes", "policy", "score", "owners")
    data = {name: np.concatenate([one[name] for _, one in played]) for name in names}
    new = [one for fresh, one in played if fresh]
    fresh = sum(len(one["score"]) for one in new)
    search, inference, waiting = np.sum([one["costs"] for one in new], axis=0).tolist()
    random = np.random.default_rng([settings.seed, number])
    rows, cols = data["owners"].shape[1:]
    losses = []
    length = max(1, round(steps.uses * fresh / steps.batch))
    for step in range(length):
        optimizer.param_groups[0]["lr"] = steps.learning_rate * (1.0 - step / length)
        # A batch is seen in one of the symmetries.
        drawn = random.integers(len(data["score"]), size=steps.batch)
        turn = int(random.integers(8 if rows == cols else 4))

        def shown(points: NDArray[Any], turn: int = turn) -> torch.Tensor:
            turned = oriented(points.astype(np.float32), turn)
            return torch.from_numpy(np.ascontiguousarray(turned))

        policy = data["policy"][drawn]
        board = shown(policy[:, :-1].reshape(-1, rows, cols))
        target = torch.cat([board.flatten(1), torch.from_numpy(policy[:, -1:])], 1)
        score = torch.from_numpy(data["score"][drawn])
        logits, win, lead, owner = net(shown(data["planes"][drawn]))
        loss = (
            cross_entropy(logits, target)
            + binary_cross_entropy_with_logits(win, 0.5 + 0.5 * score.sign())
            + 0.5 * mse_loss(lead, score / (rows * cols))
            + 0.5
            * binary_cross_entropy_with_logits(owner, 0.5 + 0.5 * shown(data["owners"][drawn]))
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[len(losses) // 2 :])), fresh, (search, inference, waiting)


def _rated(row: Iteration, path: Path, rating: Rating, start: Game) -> Iteration:
    """The row with a match of the network against playout search."""
    found = match(
        f"{path}:{rating.visits}",
        f"visits:{rating.opponent_visits}",
        rating.games,
        size=(start.rows, start.cols),
        komi=start.komi,
        rules=start.rules,
        seed=row.number,
    )
    return replace(
        row,
        wins=found.wins,
        losses=found.losses,
        draws=found.draws,
        rating_s=sum(found.core_s),
    )


def _restore(
    path: Path, net: Net, optimizer: torch.optim.Optimizer, fixed: Mapping[str, object]
) -> list[Iteration]:
    """Put weights and optimizer back, if there are any; gives the iterations that are done."""
    if not path.exists():
        return []
    state = torch.load(path, weights_only=True)  # executes nothing in the file
    if changed := [name for name in fixed if state["config"].get(name) != fixed[name]]:
        raise InputError(
            "the folder has a run with another configuration",
            code="conflict",
            path=path,
            found=", ".join(changed),
            remedy="name another folder, or take the changes back",
        )
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return [Iteration(**row) for row in state["iterations"]]
