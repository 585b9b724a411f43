"""The server: plays the run of a TOML file, and leaves its answer in the folder of the run."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from holdfast.errors import InputError
from holdfast.federated.updates import write_weights
from holdfast.files import write_whole
from holdfast_flower.strategy import RunStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds, then ``weights.safetensors`` and ``result.json``, the JSON of `holdfast federated run`.

    Raises:
        InputError: ``missing-key`` without a configuration; what `RunStrategy` refuses.
    """
    settings = context.run_config
    if not settings["config"]:
        raise InputError(
            "no configuration",
            code="missing-key",
            place="config",
            remedy="flwr run APP SUPERLINK --run-config 'config=\"/absolute/path.toml\"'",
        )
    path, resume = Path(str(settings["config"])), bool(settings["resume"])
    strategy = RunStrategy(path, grid, resume, float(settings["join-timeout-s"]))
    torch.set_num_threads(strategy.engine.settings.threads)
    strategy.start(
        grid=grid,
        initial_arrays=strategy.arrays,
        num_rounds=strategy.rounds_left,
        timeout=float(settings["round-timeout-s"]),
    )
    result = strategy.result()
    write_weights(strategy.folder / "weights.safetensors", result.weights)
    write_whole(strategy.folder / "result.json", json.dumps(result.to_dict()).encode())
