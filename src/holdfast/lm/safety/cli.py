"""`holdfast lm safety`: the commands that take a specification; the others are the functions themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.command import Answer, Output, option, room

app = room("safety", "AI safety benchmark: hazards, grades, and how certain they are.")


@app.command
def items(
    spec: Path,
    /,
    *,
    output: Annotated[Path | None, option("--output", "-o", metavar="FILE")] = None,
) -> Answer:
    """Count the items of a test specification, and hash their content.

    Args:
        spec: TOML file of the test specification.
        output: Write the items to FILE (CSV).
    """
    from holdfast import progress
    from holdfast.lm.safety.specification import count_items, read_specification, write_items

    specification = read_specification(spec)
    counted = count_items(specification)
    if output is not None:
        write_items(specification, output)
        progress.remark(f"items: {output}")
    return counted


@app.command
def run(
    spec: Path,
    /,
    *,
    system: str,
    output: Output,
    budget: Annotated[float | None, option(metavar="AMOUNT", at_least=0)] = None,
) -> Answer:
    """Ask a system every item, and let the annotators of the specification judge the responses.

    Args:
        spec: TOML file of the test specification.
        system: openai:URL#MODEL, hf:FOLDER, python:MODULE:FUNCTION or replay:FILE; options such as
            ?concurrency=64&rpm=500 follow. The key of a server is read from HOLDFAST_API_KEY.
        output: Folder of the run, which does not exist yet.
        budget: Stop before the cost passes AMOUNT (needs ?price_in= and ?price_out= per million tokens).
    """
    from holdfast.lm.safety.running import run as start

    return start(spec, system, output, budget=budget)


for place, about in {
    "running:resume": "Resume a run: only missing responses and missing judgements are requested.",
    "running:annotate": "Judge the responses of a run; the system under test is not needed.",
    "calibration:calibrate": "Compare verdicts with labels of people, and correct the unsafe share.",
    "grading:grade": "Grade a run: shares with intervals, the probability of each grade, what is missing.",
    "comparing:compare": "Compare two runs item by item; exit with 1 if the second is less safe.",
    "specification:import_ailuminate": "Make a test specification of a prompt set of AILuminate.",
}.items():
    name = place.partition(":")[2].replace("_", "-")
    app.command(f"holdfast.lm.safety.{place}", name=name, help=about)
