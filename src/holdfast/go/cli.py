"""`holdfast go`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Count, Facts, Positive, common, option, room

app = room("go", "Go: a GTP engine, matches with Elo, ladders, and the rules themselves.")

_Rules = Literal["tromp-taylor", "chinese", "aga", "new-zealand", "simple-ko"]
_Size = Annotated[str, option(metavar="RxC")]
_Player = Annotated[str, option(metavar="PLAYER")]


@app.command
def gtp(
    *,
    net: Annotated[Path | None, option(metavar="FILE")] = None,
    visits: Annotated[int | None, option(at_least=1, metavar="N")] = None,
    time: Annotated[float | None, option("--time", at_least=0, metavar="SECONDS")] = None,
    size: _Size = "19x19",
    rules: _Rules = "chinese",
    komi: float = 7.5,
    seed: Count = 1,
) -> None:
    """Play as an engine of the Go Text Protocol on standard input and output.

    Args:
        net: Network of `holdfast go train` (default: search by playouts).
        visits: Simulations per move (default: 5,000 where no time is set).
        time: Seconds per move; time settings of the controller are kept, too.
        size: Board before the controller sets one.
        rules: Rules of ko and suicide; the score is the area.
        komi: Points for white before the controller sets them.
        seed: Random seed.
    """
    from holdfast.go.controller import Lines
    from holdfast.go.gtp import Engine, protocol_stream, serve
    from holdfast.go.rules import Game, read_size

    engine = Engine(Game(*read_size(size), rules, komi), visits, time, seed, net)
    with protocol_stream() as target:
        serve(engine, Lines(sys.stdin.fileno()), target)


@app.command
def serve(
    *,
    net: Annotated[Path | None, option(metavar="FILE")] = None,
    visits: Annotated[int, option(at_least=1, at_most=1_000_000, metavar="N")] = 1000,
    port: Count = 8361,
    seed: Count = 1,
) -> None:
    """Show a board in the browsers of this machine, with win rates and owners, until Ctrl-C.

    Args:
        net: Network of `holdfast go train` (default: search by playouts).
        visits: Simulations per position.
        port: Port; 0 picks a free one.
        seed: Random seed.
    """
    from holdfast.go.serving import serve as run
    from holdfast.progress import remark

    run(
        net,
        visits=visits,
        port=port,
        seed=seed,
        on_start=lambda url: remark(f"board: {url} (Ctrl-C ends it)"),
    )


@app.command
def match(
    a: _Player,
    b: _Player,
    /,
    *,
    games: Positive = 100,
    size: _Size = "9x9",
    rules: _Rules = "chinese",
    komi: float = 7.5,
    seed: Count = 1,
) -> Answer:
    """Play games between two players; say which is stronger, by how much Elo, and what it cost.

    Args:
        a: First player: visits:N (playout search), FILE.safetensors:N (a network), or the command line of a
            GTP engine.
        b: Second player.
        games: Number of games; the players have black in turn.
        size: Board.
        rules: Rules of ko and suicide; an illegal move loses.
        komi: Points for white.
        seed: Random seed.
    """
    from holdfast.go.matches import match as compute
    from holdfast.go.rules import read_size

    return compute(a, b, games, size=read_size(size), komi=komi, rules=rules, seed=seed)


@app.command
def train(
    config: Annotated[Path, option(metavar="CONFIG")],
    /,
    *,
    output: Annotated[Path, option("-o", "--output", metavar="DIR")],
    ray: Annotated[str | None, option(metavar="ADDRESS")] = None,
) -> Answer:
    """Train a network by self-play, and account for what its strength cost; rerun to resume.

    Args:
        config: Configuration (TOML); with changes, an ablation of them.
        output: Folder of the run: the last network, the state, the samples of the games.
        ray: Address of a Ray cluster that plays the games; it shares the folder.
    """
    from holdfast.go.training import train as compute

    return compute(config, output, ray)


@app.command
def ladder(
    file: Annotated[Path, option(metavar="FILE")],
    /,
    *,
    ply: Annotated[int | None, option(at_least=0, metavar="N")] = None,
) -> Answer:
    """Prove which chains of a position are captured in a ladder, and which escape.

    Args:
        file: Game record (SGF).
        ply: Number of moves before the position (default: all).
    """
    from holdfast.go.ladders import ladder as compute

    return compute(file, ply)


@app.command
def perft(
    *,
    depth: Annotated[int, option(at_least=0, at_most=40, metavar="N")],
    size: _Size = "9x9",
    rules: _Rules = "tromp-taylor",
) -> Answer:
    """Count the sequences of legal moves from the empty board, to compare implementations of the rules.

    Args:
        depth: Number of moves; passes are moves, and two end the game.
        size: Board.
        rules: Rules of ko and suicide.
    """
    from holdfast.go.rules import perft as compute
    from holdfast.go.rules import read_size

    nodes = compute(*read_size(size), depth, rules)
    if not common().as_json:
        print(f"{nodes:,}")
    return Facts({"nodes": nodes})
