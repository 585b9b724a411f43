"""`holdfast lm safety`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.command import Answer, Options, Output, Positive, Share, option, room

if TYPE_CHECKING:
    from holdfast.lm.safety.verdicts import Ensemble

app = room("safety", "AI safety benchmark: hazards, grades, and how certain they are.")


@Options
@dataclass(frozen=True)
class EnsembleOptions:
    """Annotators whose verdicts count, and how their verdicts become one."""

    annotators: Annotated[tuple[str, ...], option(metavar="NAME")] = ()
    """Annotator whose verdicts count; may be given several times (default: all of the run)."""
    ensemble: Literal["majority", "any-unsafe"] = "majority"
    """Majority of the valid verdicts, or unsafe as soon as one annotator says so."""
    tie: Literal["unsafe", "safe", "invalid"] = "unsafe"
    """Verdict where as many annotators say safe as unsafe."""
    min_valid: Positive = 1
    """Number of valid verdicts that an item needs."""

    def build(self) -> Ensemble:
        """The ensemble."""
        from holdfast.lm.safety.verdicts import Ensemble

        return Ensemble(self.annotators, self.ensemble, self.tie, self.min_valid)


_Money = Annotated[float | None, option(metavar="AMOUNT", at_least=0)]


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
def run(spec: Path, /, *, system: str, output: Output, budget: _Money = None) -> Answer:
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


@app.command
def resume(run: Path, /, *, budget: _Money = None) -> Answer:
    """Resume a run: only items without a response are asked, only those without a judgement judged.

    Args:
        run: Folder of the run.
        budget: Stop before the cost, with that of earlier sessions, passes AMOUNT.
    """
    from holdfast.lm.safety.running import resume as go_on

    return go_on(run, budget=budget)


@app.command
def annotate(
    run: Path, /, *, annotator: Annotated[tuple[str, ...], option(metavar="NAME")] = ()
) -> Answer:
    """Judge the responses of a run; the system under test is not needed.

    Args:
        run: Folder of the run.
        annotator: llama-guard-3:SYSTEM, judge:FILE.toml:SYSTEM, rules:FILE.toml, python:MODULE:FUNCTION
            or replay:FILE; may be given several times (default: those of the specification).
    """
    from holdfast.lm.safety.running import annotate as judge

    return judge(run, annotator)


@app.command
def calibrate(
    run: Path,
    /,
    *,
    labels: Annotated[Path, option(metavar="FILE")],
    votes: EnsembleOptions = EnsembleOptions(),
) -> Answer:
    """Hold the verdicts of a run against labels of people, and correct the share of unsafe responses.

    Args:
        run: Folder of the run.
        labels: CSV with item and label (safe or unsafe), of a random sample of the run.
    """
    from holdfast.lm.safety.calibration import calibrate as hold

    return hold(run, labels, ensemble=votes.build())


@app.command
def grade(
    run: Path,
    /,
    *,
    scheme: Annotated[str, option(metavar="NAME")] = "v1.0",
    cluster: Literal["fragment", "template", "none"] = "fragment",
    interval: Literal["clopper-pearson", "wilson"] | None = None,
    votes: EnsembleOptions = EnsembleOptions(),
) -> Answer:
    """Grade a run: shares with intervals, the probability of each grade, and what is missing.

    Args:
        run: Folder of the run.
        scheme: v0.5, v1.0, v1.1, or a TOML file of the same form.
        cluster: What items share that are answered alike.
        interval: At least 95 % (clopper-pearson) or 95 % on average (wilson); default: by the scheme.
    """
    from holdfast.lm.safety.grading import grade as compute

    return compute(run, scheme, ensemble=votes.build(), cluster=cluster, interval=interval)


@app.command
def compare(
    first: Path, second: Path, /, *, alpha: Share = 0.05, votes: EnsembleOptions = EnsembleOptions()
) -> Answer:
    """Compare two runs item by item; exit with 1 if the second is less safe.

    Args:
        first: Folder of the run to compare with.
        second: Folder of the run to test.
        alpha: False discovery rate over the hazards.
    """
    from holdfast.lm.safety.comparing import compare as hold

    return hold(first, second, ensemble=votes.build(), alpha=alpha)


@app.command(name="import-ailuminate")
def import_ailuminate(source: Path, /, *, output: Output) -> Answer:
    """Make a test specification of a prompt set of AILuminate.

    Args:
        source: CSV of a release, with release_prompt_id, prompt_text, hazard, persona and locale.
        output: TOML file to write; it names the CSV, which stays in place.
    """
    from holdfast.lm.safety.specification import import_ailuminate as make

    return make(source, output)
