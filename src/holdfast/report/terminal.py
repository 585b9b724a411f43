"""An answer in a terminal: findings, then the table of each question, at most one screen."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.numbers import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as Grid

    from holdfast.report.page import ColumnFormat, Finding, How, Section, Table, Unknown

MOST_ROWS = 15
MOST_FINDINGS = 5
MOST_TABLES = 4
"""Tables that share a screen."""
FEWEST_ROWS = 6
MOST_UNKNOWNS = 2
PIPE_WIDTH = 160


class Printable(Protocol):
    """What is printed of an answer."""

    def findings(self) -> Sequence[Finding]:
        """Sentences, the most valuable first."""

    def sections(self) -> Sequence[Section]:
        """Questions with their tables."""

    def unknowns(self) -> Sequence[Unknown]:
        """What could not be determined."""


def text(answer: Printable, verbose: bool = False, width: int = PIPE_WIDTH) -> str:
    """The answer as plain text."""
    from rich.console import Console

    file = io.StringIO()
    _print(answer, Console(file=file, width=width), verbose)
    return file.getvalue().rstrip("\n")


def show(answer: Printable, verbose: bool = False) -> None:
    """Print an answer on stdout."""
    from rich.console import Console

    # A pipe has no screen width: give tables the width they need.
    _print(answer, Console(width=None if sys.stdout.isatty() else PIPE_WIDTH), verbose)


def _print(answer: Printable, console: Console, verbose: bool) -> None:
    own = getattr(answer, "rendered", None)
    made = None if own is None else own(verbose)
    if made is not None:
        for part in made if isinstance(made, list) else [made]:
            # Lines of text stay whole: programs and editors look for the places that they name.
            console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
        return
    for part in _parts(answer, verbose):
        console.print(part, markup=False, highlight=False)


def _parts(answer: Printable, verbose: bool) -> list[RenderableType]:
    from rich.text import Text

    sections, found, unknowns = answer.sections(), answer.findings(), answer.unknowns()
    # What makes the findings doubtful stands above them, all of it.
    parts: list[RenderableType] = [
        Text(f"Doubtful: {each.text} {each.remedy}".rstrip(), style="bold yellow")
        for each in unknowns
        if each.doubt
    ]
    shown = found if verbose else found[:MOST_FINDINGS]
    for place, finding in enumerate(shown, 1):
        line = Text(f"{place}. " if len(found) > 1 else "")
        line.append(finding.lead, style="bold")
        parts.append(line.append(f"{' ' if finding.lead else ''}{finding.text}"))
    if len(found) > len(shown):
        parts.append(Text(f"({len(found) - len(shown)} more with --verbose)"))
    # Many questions are a report: its tables are for the page, or for who asks for details.
    tables = [[t for t in s.tables if verbose or not t.detail] for s in sections]
    count = sum(map(len, tables))
    if verbose or count <= MOST_TABLES:
        most = None if verbose else max(FEWEST_ROWS, MOST_ROWS // max(count, 1))
        for section, shown_tables in zip(sections, tables, strict=True):
            if len(sections) > 1 and (shown_tables or verbose):
                parts += [Text(), Text(section.question, style="bold")]
            if len(sections) > 1 and verbose:
                parts.append(Text(section.sentence))
            parts += [_table(table, most) for table in shown_tables]
            if verbose and section.how is not None:
                parts.append(_how(section.how))
    gaps = [each for each in unknowns if not each.doubt]
    parts += [
        Text(f"Not determined: {each.text} {each.remedy}".rstrip(), style="yellow")
        for each in (gaps if verbose else gaps[:MOST_UNKNOWNS])
    ]
    if not verbose and len(gaps) > MOST_UNKNOWNS:
        parts.append(Text(f"({len(gaps) - MOST_UNKNOWNS} more gaps with --verbose)"))
    return parts


def _how(how: How) -> RenderableType:
    from rich.text import Text

    from holdfast.report.parts import lay_out_how

    laid = lay_out_how(how)
    assumed = [f"{name}: {value}" for name, value in laid["parameters"]]
    return Text("\n".join([laid["formula"], *assumed, *laid["notes"], laid["source"]]), style="dim")


def _table(table: Table, most: int | None) -> RenderableType:
    from rich.text import Text

    from holdfast.report.grid import columns_of, is_right

    if not table.data.num_rows:
        return Text(table.empty)
    rows = table.data if most is None else table.data.slice(0, most)
    shown = [(name, form) for name, form in columns_of(table).items() if not form.veiled]
    formats = {name: form for name, form in shown if most is None or not form.detail}
    hidden = table.data.num_rows - rows.num_rows
    caption = table.caption if most is None else ""
    if hidden:
        caption = f"{counted(hidden, 'more row')} with --verbose or --json."
    columns, cells = [], []
    for name, form in formats.items():
        label = name.replace("_", " ") if form.label is None else form.label
        unit = form.unit or getattr(table.data.schema.field(name).type, "tz", None)
        right = is_right(table.data, name, form)
        columns.append((f"{label} ({unit})" if unit else label, "right" if right else "left"))
        cells.append(_cells(rows, name, form))
    return _grid(columns, zip(*cells, strict=True), "", caption)


def _cells(rows: Any, name: str, form: ColumnFormat) -> list[str]:
    from holdfast.report.grid import is_numeric, numbers, text_of

    values = {each: rows[each].to_pylist() for each in (name, *(form.interval or ()))}
    if hasattr(rows.schema.field(name).type, "tz"):
        return ["" if time is None else f"{time:%Y-%m-%d %H:%M:%S}" for time in values[name]]
    if not is_numeric(rows.schema.field(name).type):
        return [text_of(value) for value in values[name]]
    return [f"{text} {ends}".rstrip() for _, text, ends in numbers(name, form, values)]


def table(
    columns: Mapping[str, Literal["left", "right"]],
    rows: Iterable[Sequence[object]],
    title: str = "",
    caption: str = "",
) -> Grid:
    """A table for the terminal.

    Args:
        columns: header, with its unit, -> alignment; numbers stand right.
        rows: cells, formatted with `holdfast.numbers`; anything else prints as `str` gives it.
        title: the line above.
        caption: the line below.
    """
    return _grid(columns.items(), rows, title, caption)


def _grid(
    columns: Iterable[tuple[str, Any]], rows: Iterable[Sequence[object]], title: str, caption: str
) -> Grid:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    made = Grid(
        box=box.SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        caption=Text(caption) if caption else None,
        caption_justify="left",
        pad_edge=False,
    )
    for header, justify in columns:
        # What is cut cannot be copied.
        made.add_column(Text(header), justify=justify, overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made
