"""`holdfast data pipeline`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, option, room

app = room(
    "pipeline", "Input pipelines: find the stage that limits one, and settings that are faster."
)

PLACE = "MODULE:FUNCTION"
Target = Annotated[str, option(metavar=PLACE)]
Seconds = Annotated[float, option(at_least=0.1, metavar="SECONDS")]


@app.command
def explain(target: Target, /, *, seconds: Seconds = 10.0) -> Answer:
    """Trace a pipeline, name the stage that limits it, and predict what changes would bring.

    Args:
        target: Function that returns the DataLoader, or the loader and a consumer of its batches.
        seconds: Seconds to trace, after the warm-up.
    """
    from holdfast.data.pipeline.explanation import explain as run
    from holdfast.data.pipeline.tracing import built, trace
    from holdfast.targets import load

    loader, consumer = built(load(target, PLACE))
    return run(trace(loader, seconds, consumer, calibration_s=min(1.0, seconds / 5)), target)


@app.command
def tune(
    target: Target,
    /,
    *,
    output: Annotated[Path | None, option("--output", "-o", metavar="SETTINGS.toml")] = None,
    seconds: Seconds = 30.0,
    draws: Literal["keep", "any"] = "keep",
    cache: bool = True,
) -> Answer:
    """Find faster settings, verify them, and roll back what is slower or changes the data.

    Args:
        target: Function that returns the DataLoader, or the loader and a consumer of its batches.
        output: Settings file, for `holdfast.data.pipeline.apply`.
        seconds: Seconds that tuning may take.
        draws: Keep the random draws of a seeded pipeline, or allow settings that change them.
        cache: Cache samples in memory where they never change; it pays from the second epoch on.
    """
    from holdfast.data.pipeline.tuning import tune as run
    from holdfast.targets import load

    return run(load(target, PLACE), seconds=seconds, draws=draws, cache=cache, output=output)
