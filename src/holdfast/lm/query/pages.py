"""The report of a mass: how its bounds converged."""

from __future__ import annotations

from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import CLOSED, Mass
from holdfast.numbers import counted, number, probability
from holdfast.report import Figure, Finding, How, Page, Section, Tile, Unknown, figures

EVENTS = {
    "exact": "the output is a text that matches, and ends",
    "prefix": "the output starts with a text that matches",
}

ENDINGS = {
    "closed": "no mass is left open",
    "tolerance": "the gap is within the tolerance",
    "exact": "summed exactly",
    "budget": "the budget is spent",
    "interrupted": "interrupted",
}


def mass_page(query: Query, model: str, found: Mass) -> Page:
    """The report of a mass."""
    lower, upper = probability(found.lower), probability(found.upper)
    ending = ENDINGS.get(found.stopped, found.stopped)
    return Page(
        title="Probability of a regular expression",
        subtitle=query.regex,
        inputs=asked_inputs(query, model),
        findings=[
            Finding(
                f"{lower} to {upper}: the probability that {EVENTS[found.event]}"
                f"{', given the prefix' if query.prefix or query.prompt else ''}.",
                "bounds",
            ),
            Finding(
                f"{counted(found.evaluations, 'evaluated token')} for "
                f"{counted(found.nodes, 'distinct prefix', 'distinct prefixes')}; "
                f"stopped: {ending}.",
                "bounds",
            ),
        ],
        tiles=[
            Tile("Lower bound", lower),
            Tile("Upper bound", upper),
            Tile("Gap", probability(found.upper - found.lower)),
            Tile("Evaluations", number(found.evaluations), "tokens"),
        ],
        sections=[
            Section(
                "bounds",
                "Convergence of the bounds",
                f"After {counted(found.evaluations, 'evaluation')} the probability is between "
                f"{lower} and {upper}.",
                figures=[bounds_figure(found)],
                how=How(
                    "lower = mass of the texts found;  upper = lower + mass of the prefixes left open",
                    {"event": found.event, **found.decoding},
                    notes="Both bounds hold at any time; what a server did not list, and what lies beyond "
                    "the context, counts in the upper one.",
                ),
            )
        ],
        unknowns=incomplete(None if found.stopped in CLOSED else found.stopped),
    )


def incomplete(stopped: str | None) -> list[Unknown]:
    """What a page says of an answer that is not complete."""
    if stopped is None:
        return []
    why = ENDINGS.get(stopped, stopped)
    return [
        Unknown(
            f"The answer is not complete: {why}.",
            "Raise the budget, or query fewer or shorter texts.",
            doubt=True,
        )
    ]


def asked_inputs(query: Query, model: str) -> list[tuple[str, str]]:
    """Label and value of each input."""
    rows = [("Model", model), ("Regular expression", query.regex)]
    if query.prefix is not None:
        rows.append(("Prefix", query.prefix))
    if query.prompt is not None:
        rows.append(("Prompt", query.prompt))
    rows.append(("Encodings", query.encodings))
    if query.decoding():
        rows.append(("Decoding", ", ".join(f"{k}={v}" for k, v in query.decoding().items())))
    return rows


def bounds_figure(found: Mass) -> Figure:
    """Lower and upper bound against evaluations."""
    rows = [
        {"evaluations": step.evaluations, "bound": name, "mass": value}
        for step in found.steps
        for name, value in (("upper", step.upper), ("lower", step.lower))
    ]
    return figures.lines(
        rows,
        "evaluations",
        "mass",
        "Evaluated tokens",
        "Probability",
        series="bound",
        meanings={"upper": "system", "lower": "user"},
        steps=True,
    )
