"""`holdfast lm calibrate-heads`: calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Output, Positive, option, room

app = room("calibrate-heads", "Find attention heads that attend alike, to compute fewer of them.")


@app.default
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
