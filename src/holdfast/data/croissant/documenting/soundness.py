"""The sections of a card that judge: the author's statements, the rules, and how to load the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.data.croissant.document.reading import DescriptionSource
from holdfast.data.croissant.documenting.completeness import STANDINGS, Rai
from holdfast.data.croissant.documenting.sections import cut
from holdfast.data.croissant.documenting.statements import GROUPS
from holdfast.data.croissant.rules.findings import Finding as Fault
from holdfast.data.croissant.rules.findings import Severity
from holdfast.numbers import counted
from holdfast.report import ColumnFormat, Figure, Section, Table
from holdfast.report.theme import colour

_MOST = 2000
_COLOURS = {
    "stated": "good",
    "misspelt": "yellow",
    "short": "system",
    "placeholder": "hardware",
    "empty": "first",
    "absent": "unattributed",
}


@dataclass(frozen=True)
class Checked:
    """What the rules say of a description."""

    faults: tuple[Fault, ...]

    def count(self, severity: Severity) -> int:
        """How many findings have a severity."""
        return sum(one.severity == severity for one in self.faults)

    @property
    def lead(self) -> str:
        """The verdict in two words."""
        return "Invalid:" if self.count(Severity.ERROR) else "Valid:"

    @property
    def sentence(self) -> str:
        """The verdict's numbers."""
        counts = ", ".join(counted(self.count(one), one.value) for one in Severity)
        return f"{counts} by the rules of the standard."


def checked(source: DescriptionSource) -> Checked:
    """Hold a description against the rules; no data are read."""
    from holdfast.data.croissant.rules.checking import validate

    return Checked(tuple(validate(source).findings))


def sound_section(found: Checked) -> Section:
    """The findings of the rules, errors first."""
    order = list(Severity)
    faults = sorted(
        found.faults, key=lambda one: (order.index(one.severity), one.line, one.column)
    )[:_MOST]
    table = Table(
        pa.table(
            {
                "severity": [one.severity.value for one in faults],
                "code": [one.code for one in faults],
                "line": pa.array([one.line for one in faults], pa.int64()),
                "message": [one.message for one in faults],
                "hint": [one.hint for one in faults],
                "pointer": [one.pointer for one in faults],
            }
        ),
        {
            "severity": ColumnFormat(),
            "code": ColumnFormat(),
            "line": ColumnFormat(),
            "message": ColumnFormat("what is wrong"),
            "hint": ColumnFormat("what to do"),
        },
        caption="One row per finding, errors first.",
    )
    sentence = found.sentence
    return Section(
        id="sound",
        question="Is the description valid?",
        sentence=f"{sentence[0].upper()}{sentence[1:]}",
        tables=[table] if faults else [],
    )


def rai_section(said: Rai) -> Section:
    """Bars of completeness, the statements, and the questions that are open."""
    stated = [one for one in said.statements if one.texts]
    titles = {group.id: group.title for group in GROUPS}
    tables = []
    if stated:
        tables.append(
            Table(
                pa.table(
                    {
                        "about": [one.meaning.label for one in stated],
                        "says": [cut(" / ".join(one.texts), 2000) for one in stated],
                        "standing": [one.standing for one in stated],
                        "use_case": [titles[one.meaning.home] for one in stated],
                        "term": [f"rai:{one.term}" for one in stated],
                    }
                ),
                {
                    "about": ColumnFormat(),
                    "says": ColumnFormat(),
                    **({"standing": ColumnFormat()} if said.stated < len(stated) else {}),
                },
                caption="One row per statement, in the order of the vocabulary.",
            )
        )
    sentences = [("conditions of use", one) for one in said.use_conditions]
    sentences += [("provenance", one) for one in said.provenance]
    if sentences:
        tables.append(
            Table(
                pa.table(
                    {
                        "on": [one for one, _ in sentences],
                        "says": [cut(one, 1000) for _, one in sentences],
                    }
                ),
                caption="Conditions of use and provenance.",
            )
        )
    if said.questions:
        tables.append(
            Table(
                pa.table(
                    {
                        "question": [question for _, question in said.questions],
                        "term": [f"rai:{term}" for term, _ in said.questions],
                    }
                ),
                caption="Open questions.",
            )
        )
    return Section(
        id="said",
        question="Responsible AI: collection, annotation, bias, use",
        sentence=f"{said.stated} of {len(said.statements)} statements of the RAI vocabulary present.",
        figures=[_bars(said)],
        tables=tables,
    )


def _bars(said: Rai) -> Figure:
    rows: list[dict[str, Any]] = [
        {
            "use case": group.group.title,
            "standing": standing,
            "order": index,
            "properties": group.counts[standing],
            "of": group.of,
        }
        for group in said.score
        if group.of
        for index, standing in enumerate(STANDINGS)
        if group.counts.get(standing)
    ]
    drawn = [standing for standing in STANDINGS if any(row["standing"] == standing for row in rows)]
    most = max(row["of"] for row in rows)
    return Figure(
        chart={
            "data": {"values": rows},
            "height": {"step": 26},
            "mark": {"type": "bar"},
            "encoding": {
                "y": {
                    "field": "use case",
                    "type": "nominal",
                    "sort": [group.title for group in GROUPS],
                    "title": None,
                },
                "x": {
                    "field": "properties",
                    "type": "quantitative",
                    "title": "Properties of the vocabulary",
                    "scale": {"domain": [0, most], "nice": False},
                    "axis": {"tickMinStep": 1, "format": "d"},
                },
                "color": {
                    "field": "standing",
                    "type": "nominal",
                    "legend": None,
                    "scale": {"domain": drawn, "range": [colour(_COLOURS[one]) for one in drawn]},
                },
                "order": {"field": "order", "type": "quantitative"},
            },
        },
        legend={standing: _COLOURS[standing] for standing in drawn},
    )
