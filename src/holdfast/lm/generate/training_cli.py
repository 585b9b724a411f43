"""`holdfast lm train-exits`: calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Count, Output, Positive, Share, option, room

app = room("train-exits", "Train a language model whose early layers predict the next token too.")


@app.default
def train_exits(
    model: Path,
    data: Path,
    /,
    *,
    output: Output,
    steps: Positive = 1000,
    batch: Positive = 16,
    length: Positive = 128,
    learning_rate: Annotated[float, option(metavar="RATE")] = 1e-3,
    save_every: Positive = 200,
    dropout: Share = 0.1,
    ramp: bool = False,
    exit_scale: Annotated[float, option(metavar="SCALE", at_least=0)] = 0.2,
    weights: Literal["layerskip", "torchtune"] = "layerskip",
    curriculum: Literal["rotational", "gradual", "all"] = "rotational",
    every: Positive = 4,
    seed: Count = 0,
) -> Answer:
    """Train a model for early exits; rerun the command to resume an interrupted run.

    Args:
        model: Folder of a model and its tokenizer, or config.json of a new model.
        data: File or folder of text; one file in 20 is held out.
        output: Folder of the trained model.
        steps: Optimizer steps.
        batch: Windows of text per step.
        length: Tokens per window.
        learning_rate: Peak of the learning rate.
        save_every: Steps between checkpoints.
        dropout: Probability with which a sample skips the last layer.
        ramp: Raise the dropout from 0 during the run (training from scratch).
        exit_scale: Weight of early exits relative to the last layer.
        weights: Weights of the exits, of the paper or of torchtune.
        curriculum: Train every N-th exit in turn, exits from the last one downwards, or all.
        every: Distance of the exits that the rotational curriculum trains in one step.
        seed: Random seed.
    """
    from holdfast.lm.generate.exit_recipe import ExitRecipe
    from holdfast.lm.generate.training import Schedule
    from holdfast.lm.generate.training import train_exits as run

    recipe = ExitRecipe(dropout, ramp, exit_scale, weights, curriculum, every, seed)
    schedule = Schedule(steps, batch, length, learning_rate, save_every)
    return run(model, data, output, recipe, schedule)
