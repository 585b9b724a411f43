"""`holdfast lm train-exits`: calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path

from holdfast.command import Answer, Output, room
from holdfast.lm.generate.exit_recipe import ExitRecipe
from holdfast.lm.generate.schedule import Schedule

app = room("train-exits", "Train a language model whose early layers predict the next token too.")
DEFAULTS = Schedule(), ExitRecipe()


@app.default
def train_exits(
    model: Path,
    data: Path,
    /,
    *,
    output: Output,
    schedule: Schedule = DEFAULTS[0],
    recipe: ExitRecipe = DEFAULTS[1],
) -> Answer:
    """Train a model for early exits; rerun the command to resume an interrupted run.

    Args:
        model: Folder of a model and its tokenizer, or config.json of a new model.
        data: File or folder of text; one file in 20 is held out.
        output: Folder of the trained model.
        schedule: Steps, batches, learning rate.
        recipe: Layer dropout and exit loss.
    """
    from holdfast.lm.generate.training import train_exits as run

    return run(model, data, output, recipe, schedule)
