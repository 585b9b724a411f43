"""`holdfast lm generate`: calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Positive, option, room
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
