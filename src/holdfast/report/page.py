"""Parts of a report page: findings, tiles, sections and what could not be determined.

Every string is plain text; `render` escapes it. A page computes nothing: the rooms compute the
numbers, and put the value, its unit and its interval into these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    Chart: TypeAlias = Mapping[str, Any]

Trend = Literal["rising", "falling", "steady"]


@dataclass(frozen=True)
class Finding:
    """One sentence of the summary, the most valuable first."""

    text: str
    """A sentence with a number, its unit and its interval."""
    section_id: str | None = None
    """The section that proves it."""
    lead: str = ""
    """Words shown in bold before `text`: what a reader in a hurry must see."""


@dataclass(frozen=True)
class Tile:
    """One figure of the row under the findings; a page has at most six."""

    label: str
    """What is measured, for example ``"MTTF at 1,024 GPUs"``."""
    value: str
    """The formatted number, without its unit."""
    unit: str = ""
    """The unit of `value`."""
    interval: str = ""
    """The interval and its level, for example ``"[5.1, 9.8] at 95 %"``."""
    note: str = ""
    """A short remark: the base of a share, what a trend is against."""
    trend: Trend | None = None
    """Drawn as an arrow before `note`."""
    section_id: str | None = None
    """The section that proves it."""


@dataclass(frozen=True)
class ColumnFormat:
    """How a column of a table reads."""

    label: str | None = None
    """The header; by default the column's name with spaces."""
    unit: str = ""
    """Shown under the label. ``"%"`` multiplies by 100; times show the zone of their type."""
    digits: int | None = None
    """Decimals; by default four significant digits for floats and none for integers."""
    interval: tuple[str, str] | None = None
    """The columns that hold the lower and upper bound, shown in brackets after the value."""
    right: bool | None = None
    """Align right; by default numbers do."""
    detail: bool = False
    """Shown on the page, and in a terminal only with ``--verbose``."""
    link: str = ""
    """The address that a text leads to, with ``{}`` in the place of the text: ``"/nodes/{}"``."""
    veiled: bool = False
    """Texts that a reader may not want to see: blurred until clicked, and never in a terminal."""


@dataclass(frozen=True)
class Table:
    """The rows behind a figure: sortable, copyable and downloadable on the page."""

    data: pa.Table
    """At most 20,000 rows, in the order in which they are to be read."""
    columns: Mapping[str, ColumnFormat] = field(default_factory=dict)
    """The columns to show, in this order; without any, all. The CSV file holds all of them."""
    caption: str = ""
    """What one row is, and how the rows are ordered."""
    empty: str = "No rows."
    """The sentence that stands in the place of a table without rows."""
    detail: bool = False
    """Shown on the page, and in a terminal only with ``--verbose``."""


@dataclass(frozen=True)
class Figure:
    """A chart."""

    chart: Chart | Callable[[], Chart]
    """A Vega-Lite specification, or what makes one; at most 20,000 rows of data."""
    caption: str = ""
    """One line above the chart where a section has several."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Label -> a name in `theme.COLOURS`; drawn above the chart, where it wraps on any screen."""
    notes: Sequence[str] = ()
    """The texts of numbered marks, from number 1 on."""
    description: str = ""
    """Text alternative of the chart for screen readers (default: the section's sentence)."""


@dataclass(frozen=True)
class How:
    """How a section's numbers were computed: the fold-out under its table."""

    formula: str | Sequence[str]
    """The equation or equations, one a line, as plain text."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Every assumed or fitted parameter with its value and unit."""
    source: str = ""
    """The paper, section or equation it comes from."""
    notes: str | Sequence[str] = ()
    """What the reader should know about its limits, a paragraph each."""


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    id: str
    """The anchor: lower-case letters, digits and hyphens, unique in the page."""
    question: str
    """The heading, for example ``"Which nodes should I pull?"``."""
    sentence: str
    """The answer, in one sentence."""
    figures: Sequence[Figure] = ()
    """Usually one."""
    tables: Sequence[Table] = ()
    """Usually one: the rows behind the figure."""
    how: How | None = None
    """The fold-out."""


@dataclass(frozen=True)
class Unknown:
    """Something that the input did not allow to tell."""

    text: str
    """What is unknown, and how much it matters."""
    remedy: str = ""
    """What the user can do about it."""
    doubt: bool = field(default=False, kw_only=True)
    """Whether it makes the headline itself doubtful: then it stands above the findings."""


@dataclass(frozen=True)
class Page:
    """A report, in the order in which a busy person asks."""

    title: str
    subtitle: str = ""
    """One line: the fleet and the time range."""
    inputs: Sequence[tuple[str, str]] = ()
    """Label and value: files, time range and its zone, rows used and set aside."""
    findings: Sequence[Finding] = ()
    """Three to seven."""
    tiles: Sequence[Tile] = ()
    """At most six."""
    sections: Sequence[Section] = ()
    unknowns: Sequence[Unknown] = ()
    footer: str = ""
    """One line at the end, for example the version that wrote the page."""
