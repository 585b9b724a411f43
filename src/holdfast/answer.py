"""What a room's function returns: one answer, of which JSON, terminal, page and notebook are views.

A result is a frozen dataclass that inherits `Answer` and says two things once: its values for programs
(`to_dict`, by default its fields) and its sections for people (question, sentence, tables, figures, how it
was computed). Everything else is derived, and so are figures and sections that a result does not say:

    answer = fleet.status("store")
    answer.to_dict()         # what ``--json`` prints
    print(answer)            # what the terminal shows
    answer.page()            # what ``--html`` writes
    answer.document()        # what ``--save`` writes and `holdfast diff` compares
    answer                   # in a notebook: the page
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast import __version__
from holdfast.numbers import number
from holdfast.plain import plain
from holdfast.report.page import ColumnFormat, Finding, Page, Section, Table, Tile, Unknown
from holdfast.report.page import Figure as Figure  # rooms take what an answer is made of from here
from holdfast.report.page import How as How

SCHEMA = "holdfast-answer/1"
"""Version of `Answer.document`; docs/answers.md has its JSON schema."""

LARGEST_BITS = 1000
"""Of a whole number that is a figure itself; of a larger one, its logarithm is."""
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Value:
    """One figure of an answer, as `holdfast diff` compares it."""

    name: str
    """Key, unique in the answer and stable across releases: ``"lost_gpu_hours"``."""
    value: float | None
    """None where it could not be determined."""
    unit: str = ""
    """For example ``"GPU-hours"``; empty for shares and counts."""
    ci95: tuple[float | None, float | None] | None = None
    """The 95 % interval; an end without limit is None. No interval: the value is exact."""
    better: Literal["lower", "higher", ""] = ""
    """The direction of improvement; empty if neither is."""
    how: str = ""
    """The formula, or where it comes from."""
    source: str = ""
    """The paper, table or file behind it."""


def measured(result: Any, **kinds: str) -> list[Value]:
    """Figures of a result: its attributes by name, each with ``"unit"`` or ``"unit, lower"``.

    What has parts counts as many; ``lower`` or ``higher`` is the direction of improvement.
    """
    values = []
    for name, kind in kinds.items():
        value, (unit, _, better) = getattr(result, name), kind.partition(", ")
        counted = len(value) if hasattr(value, "__len__") else value
        values.append(Value(name, counted, unit, better=better))  # type: ignore[arg-type]
    return values


class Answer:
    """Base of results; override what the result has, and nothing else."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return type(self).__name__

    @property
    def exit_code(self) -> int:
        """0: done; 1: the answer is a failure, such as a gate that was not met."""
        return 0

    def to_dict(self) -> Any:
        """The JSON of ``--json``: stable keys with the unit in the name."""
        return plain({part.name: getattr(self, part.name) for part in dataclasses.fields(self)})  # type: ignore[arg-type]

    def sections(self) -> Sequence[Section]:
        """One question part with its answer, the most valuable first."""
        return ()

    def findings(self) -> Sequence[Finding]:
        """Three to seven sentences, the most valuable first; by default the sections' sentences."""
        return [Finding(part.sentence, part.id) for part in self.sections() if part.sentence]

    def values(self) -> Sequence[Value]:
        """The figures that a later answer is compared by; by default the numbers of `to_dict`."""
        return list(_numbers(plain(self.to_dict())))

    def tiles(self) -> Sequence[Tile]:
        """At most six figures under the findings of the page."""
        return ()

    def unknowns(self) -> Sequence[Unknown]:
        """What the input did not allow to determine, with the remedy."""
        return ()

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Label and text: files, time range, rows used and set aside."""
        return ()

    def written(self) -> Mapping[str, Path]:
        """What the command wrote, by kind, such as ``"store"``."""
        return {}

    @property
    def headline(self) -> str:
        """The first finding, in one sentence."""
        for finding in self.findings():
            return _sentence(finding)
        return self._shown_sections()[0].sentence  # sections may quote the headline themselves

    def _shown_sections(self) -> Sequence[Section]:
        """The sections of page and document: the result's own, or its JSON as tables."""
        return self.sections() or [_as_section(plain(self.to_dict()))]

    def page(self) -> Page:
        """The answer as a page; `holdfast.report.write` makes a file of it."""
        return Page(
            title=self.title,
            inputs=self.inputs(),
            findings=self.findings(),
            tiles=self.tiles(),
            sections=self._shown_sections(),
            unknowns=self.unknowns(),
            footer=f"holdfast {__version__}",
        )

    def document(self) -> dict[str, Any]:
        """The whole answer as JSON: values with units and intervals, tables with their columns."""
        return {
            "schema": SCHEMA,
            "holdfast": __version__,
            "title": self.title,
            "headline": self.headline,
            "findings": [
                {"text": _sentence(part), "section": part.section_id} for part in self.findings()
            ],
            "values": [_fields(value) for value in _distinct(self.values())],
            "sections": [_section(section) for section in self._shown_sections()],
            "unknown": [_fields(part) for part in self.unknowns()],
            "inputs": dict(self.inputs()),
            "data": plain(self.to_dict()),
        }

    def __str__(self) -> str:
        from holdfast.report.terminal import text

        return text(self)

    def _repr_html_(self) -> str:
        from html import escape

        from holdfast.report import render

        # A frame keeps the page's style and scripts apart from those of the notebook.
        page = escape(render(self.page()), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:44em;border:0"></iframe>'


def _sentence(finding: Finding) -> str:
    return " ".join((finding.lead, finding.text)).strip()


def _fields(part: Any) -> dict[str, Any]:
    return {field.name: plain(getattr(part, field.name)) for field in dataclasses.fields(part)}


def _numbers(data: Any, name: str = "") -> Iterator[Value]:
    """The numbers of an answer's JSON, named by their keys; of a list, its length."""
    if isinstance(data, dict):
        for key, part in data.items():
            yield from _numbers(part, f"{name}.{key}".lstrip("."))
    elif isinstance(data, list):
        yield Value(f"{name}.count".lstrip("."), len(data))
    elif isinstance(data, int) and data.bit_length() > LARGEST_BITS:
        yield Value(f"{name}.log10", math.log10(data))
    elif isinstance(data, (int, float)):
        yield Value(name, float(data))


def _as_section(data: Any) -> Section:
    """An answer's JSON as tables: its parts, then each list of records."""
    import pyarrow as pa

    parts = data if isinstance(data, dict) else {"records": data}
    rows = [{"part": name.replace("_", " "), "value": _text(part)} for name, part in parts.items()]
    tables = [Table(pa.Table.from_pylist(rows))]
    for name, part in parts.items():
        if isinstance(part, list) and part and isinstance(part[0], dict):
            cells = [{key: _text(cell) for key, cell in row.items()} for row in part[:MOST_ROWS]]
            tables.append(Table(pa.Table.from_pylist(cells), caption=name.replace("_", " ")))
    sentence = "; ".join(f"{row['part']}: {row['value']}" for row in rows[:3])
    return Section("answer", "What is the result?", f"{sentence}.", tables=tables)


def _text(value: Any) -> str:
    """A value of JSON for people; of a list, its length."""
    if type(value) in (int, float):
        return number(value)
    return f"{len(value):,}" if isinstance(value, (list, dict)) else str(value)


def _distinct(values: Iterable[Value]) -> list[Value]:
    by_name: dict[str, Value] = {}
    for value in values:
        if value.name in by_name:
            raise ValueError(f"two values of an answer have the name {value.name!r}")
        by_name[value.name] = value
    return list(by_name.values())


def _section(section: Section) -> dict[str, Any]:
    return {
        "id": section.id,
        "question": section.question,
        "sentence": section.sentence,
        "tables": [_table(table) for table in section.tables],
        "how": None if section.how is None else _fields(section.how),
    }


def _table(table: Table) -> dict[str, Any]:
    formats: Mapping[str, ColumnFormat] = table.columns
    columns = []
    for name in table.data.column_names:
        form = formats.get(name, ColumnFormat())
        column: dict[str, Any] = {"name": name, "label": form.label or name.replace("_", " ")}
        if form.unit:
            column["unit"] = form.unit
        if form.interval:
            column["ci95"] = list(form.interval)
        columns.append(column)
    return {"caption": table.caption, "columns": columns, "rows": plain(table.data)}
