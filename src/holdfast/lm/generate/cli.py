"""`holdfast lm generate`, `calibrate-heads`, `train-exits`: each calls the function of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Output, Positive, option, room
from holdfast.lm.generate.exit_recipe import ExitRecipe
from holdfast.lm.generate.schedule import Schedule
from holdfast.lm.generate.settings import AS_THE_CHECKPOINT, Sampling

app = room(
    "generate", "Continue prompts faster: drafts by early exit, verified by the whole model."
)


@app.default
def generate(
    model: str,
    /,
    *,
    prompt_file: Annotated[Path | None, option(metavar="FILE")] = None,
    prompt: Annotated[tuple[str, ...], option(metavar="TEXT")] = (),
    chat: bool = False,
    max_new: Positive = 128,
    speculate: Annotated[str, option(metavar="PLAN")] = "auto",
    heads: Annotated[str, option(metavar="FILE")] = "auto",
    heads_mode: Literal["auto", "static", "online"] = "auto",
    exact: bool = False,
    low_memory: bool = False,
    batch: Positive = 1,
    stop: Annotated[tuple[str, ...], option(metavar="TEXT")] = (),
    check: bool = False,
    sampling: Sampling = AS_THE_CHECKPOINT,
) -> Answer:
    """Continue prompts: draft with the first layers of the model, verify with all of them.

    Args:
        model: Folder of a model of Hugging Face, or hf:FOLDER?dtype=bfloat16&device=cuda.
        prompt_file: File with one prompt per line; in a .jsonl file each line is a JSON text, an object
            with the key prompt or messages, or a list of token ids.
        prompt: Prompt; may be given several times.
        chat: Prompts are messages of a user, written by the chat template.
        max_new: Largest number of new tokens per prompt.
        speculate: auto (measured on this machine), off, early-exit:E,D (D drafts by the first E layers),
            lookup or lookup:D (drafts copied from the text).
        heads: Calibration of calibrate-heads, off, or auto (chai.json in the model's folder if it exists).
        heads_mode: Clusters within the calibrated perplexity, per prompt (auto) or of the calibration
            (static), or those of the elbow per prompt (online).
        exact: Pad every pass, so that drafts do not change a bit of the result (slower).
        low_memory: Hold the weights once, without a copy for faster products.
        batch: Number of prompts that are decoded together.
        stop: End a text before TEXT; may be given several times.
        check: Decode again without drafts; fail on a difference that is not a near-tie.
    """
    from holdfast.lm.generate.loading import generate_file

    return generate_file(
        model,
        prompt_file,
        prompt,
        chat=chat,
        heads=heads,
        heads_mode=heads_mode,
        exact=exact,
        low_memory=low_memory,
        max_new=max_new,
        speculate=speculate,
        batch=batch,
        stop=stop,
        check=check,
        sampling=sampling,
    )


calibrate_heads_app = room(
    "calibrate-heads", "Find attention heads that attend alike, to compute fewer of them."
)


@calibrate_heads_app.default
def calibrate_heads(
    model: Path,
    data: Path,
    /,
    *,
    output: Output,
    level: Literal["kv", "query"] = "kv",
    samples: Positive = 16,
    length: Positive = 128,
    tolerance: Annotated[float, option(metavar="SHARE", at_least=0)] = 0.01,
) -> Answer:
    """Cluster the attention heads of a model by sample text, and measure the change of perplexity.

    Args:
        model: Folder of a model and its tokenizer.
        data: File or folder of text.
        output: JSON file to write; `chai.json` in the model's folder is used by `lm generate`.
        level: Cluster key/value heads, which saves memory, or the query heads that share one.
        samples: Windows of text to cluster by, and as many to measure perplexity on.
        length: Tokens per window.
        tolerance: Largest relative increase of perplexity in mode auto.
    """
    from holdfast.lm.generate.heads_calibration import calibrate_heads as run

    return run(
        model, data, output, level=level, samples=samples, length=length, tolerance=tolerance
    )


train_exits_app = room(
    "train-exits", "Train a language model whose early layers predict the next token too."
)
TRAINING = Schedule(), ExitRecipe()


@train_exits_app.default
def train_exits(
    model: Path,
    data: Path,
    /,
    *,
    output: Output,
    schedule: Schedule = TRAINING[0],
    recipe: ExitRecipe = TRAINING[1],
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
