"""Random games of Go in a peer; run by an environment that has it.

    PEERS/NAME/bin/python benchmarks/go_playouts_peers.py NAME SIZE

Prints CPU seconds and moves per game, and the version.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from importlib.metadata import version
from typing import Any


def open_spiel(size: int) -> tuple[float, float]:
    """Rollouts of OpenSpiel's own evaluator; their number is what a search of one simulation takes."""
    import pyspiel

    game = pyspiel.load_game("go", {"board_size": size, "komi": 7.5})
    state = game.new_initial_state()
    moves, counted = 0, 50
    for _ in range(counted):
        played = state.clone()
        while not played.is_terminal():
            played.apply_action(random.choice(played.legal_actions()))
            moves += 1

    def seconds(rollouts: int) -> float:
        evaluator = pyspiel.RandomRolloutEvaluator(rollouts, 1)
        bot = pyspiel.MCTSBot(game, evaluator, 1.0, 1, 100, False, 1, False)
        begin = time.process_time()
        bot.step(state)
        return time.process_time() - begin

    games = 2_000 if size == 9 else 300
    return (seconds(games + 1) - seconds(1)) / games, moves / counted


def pgx(size: int) -> tuple[float, float]:
    """Batches of games in one compiled loop, compiled before the clock runs; the fastest batch."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax
    import jax.numpy as jnp
    import pgx as peer

    env = peer.make(f"go_{size}x{size}")

    def games(key: Any, batch: int) -> Any:
        first, second = jax.random.split(key)
        start = jax.vmap(env.init)(jax.random.split(first, batch))

        def step(carried: Any) -> Any:
            states, key, moves = carried
            key, own = jax.random.split(key)
            logits = jnp.where(states.legal_action_mask, 0.0, -1e9)
            actions = jax.random.categorical(own, logits, axis=-1)
            moves += jnp.sum(~states.terminated)
            return jax.vmap(env.step)(states, actions), key, moves

        def running(carried: Any) -> Any:
            return ~jnp.all(carried[0].terminated)

        return jax.lax.while_loop(running, step, (start, second, jnp.int32(0)))[2]

    compiled = jax.jit(games, static_argnums=1)
    best = (float("inf"), 0.0)
    for batch in (1, 16, 128) if size == 9 else (1, 16):
        compiled(jax.random.PRNGKey(0), batch).block_until_ready()
        begin = time.process_time()
        moves = int(compiled(jax.random.PRNGKey(1), batch))
        best = min(best, ((time.process_time() - begin) / batch, moves / batch))
    return best


if __name__ == "__main__":
    name = sys.argv[1]
    found = {"open_spiel": open_spiel, "pgx": pgx}[name](int(sys.argv[2]))
    print(json.dumps({"seconds": found[0], "moves": found[1], "version": version(name)}))
