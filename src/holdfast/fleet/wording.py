"""How a fleet's figures are worded, so that a page, a table and a finding say it alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.answer import ColumnFormat, How, Table
from holdfast.config import parse_config
from holdfast.fleet.moments import with_times
from holdfast.fleet.schema import Row
from holdfast.numbers import brief, counted, duration

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.fleet.analysis import Analysis

PAPER = (
    "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, arXiv 2410.21680v2"
)
RATE_UNIT = "per 1,000 node-days"
SIGNIFICANT_DIGITS = 3
MOST_ROWS = 500  # Rows of a table on the page; the commands give all with --json
MOST_NAMES = 12
COLUMNS = parse_config(Path(__file__).with_name("columns.toml"), "the columns of tables")
METHODS = parse_config(Path(__file__).with_name("methods.toml"), "the methods of sections")


def table(
    data: pa.Table | Sequence[Row],
    columns: str,
    caption: str = "",
    empty: str = Table.empty,
    *,
    detail: bool = False,
    **changes: Any,
) -> Table:
    """A table whose columns read as ``columns.toml`` says.

    Args:
        data: the rows; of a list, only what is shown.
        columns: names of the columns to show, in order, with spaces between.
        caption: what one row is.
        empty: the sentence in the place of no rows.
        detail: see `Table`.
        changes: column -> its header here, or fields of `ColumnFormat` that differ here.
    """
    import pyarrow as pa

    forms: dict[str, dict[str, Any]] = {}
    for name in columns.split():
        here = changes.get(name, {})
        here = {"label": here} if isinstance(here, str) else here
        forms[name] = {**COLUMNS.get(name, {}), **here}
    if not isinstance(data, pa.Table):
        ends = [end for form in forms.values() for end in form.get("interval", ())]
        data = pa.table({name: [row[name] for row in data] for name in [*forms, *ends]})
    data = with_times(data, *(name for name, form in forms.items() if form.pop("time", False)))
    for name, form in forms.items():
        if scaled := form.pop("scaled", None):
            alike = [name] if scaled is True else scaled
            values = [value for each in alike for value in data[each].to_pylist()]
            bounds = (data[end].to_pylist() for end in form.get("interval", ()))
            form.setdefault("digits", decimals(values) or max(map(decimals, bounds), default=0))
    return Table(data, {k: ColumnFormat(**v) for k, v in forms.items()}, caption, empty, detail)


def how(
    section: str, parameters: Mapping[str, object] | None = None, notes: str | Sequence[str] = ()
) -> How:
    """How a section was computed, as ``methods.toml`` says.

    Args:
        section: its name there.
        parameters: every assumed or fitted parameter with its value.
        notes: further limits.
    """
    method = METHODS[section]
    source = method.get("source", PAPER)
    return How(method["formula"], parameters or {}, source, notes or method.get("notes", ()))


def brief_interval(low: float | None, high: float | None) -> str:
    """``"[6.74, 8.76]"``; without an upper end ``"[27.1, ∞)"``."""
    end = ")" if high is not None and math.isinf(high) else "]"
    return f"[{brief(low)}, {brief(high)}{end}"


def duration_interval(low_s: float | None, high_s: float | None) -> str:
    """``"[5 h 21 min, 6 h 57 min]"``; an end of None is none."""
    return f"[{duration(low_s)}, {'∞)' if high_s is None else duration(high_s) + ']'}"


def probability(name: str, value: float, digits: int = 3) -> str:
    """``"q = 0.024"``, ``"p < 0.001"``."""
    least = 10.0**-digits
    return f"{name} < {least:.{digits}f}" if value < least else f"{name} = {value:.{digits}f}"


def decimals(values: Iterable[float | None]) -> int:
    """Decimals that give the larger values of a column three significant digits."""
    known = (abs(value) for value in values if value is not None and math.isfinite(value))
    largest = max(known, default=0.0)
    if largest == 0:
        return 0
    return min(max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest))), 4)


def listed(names: list[str], most: int = MOST_NAMES) -> str:
    """The first names of a list that may be long: ``"n1, n2 and 488 more"``, ``"none"``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most]) or 'none'}{more}"


def size(analysis: Analysis, nodes: int) -> str:
    """A job's size, ``"4,096 GPUs"``, or in nodes where the log has no GPUs."""
    if analysis.without_gpus:
        return counted(nodes, "node")
    return counted(nodes * analysis.log.gpus_per_node, "GPU")


def ettr_settings(analysis: Analysis) -> list[dict[str, Any]]:
    """The parameters of the expected ETTR: at the fitted failure rate, and at its interval's ends.

    Without failures the first is at the upper end: an ETTR of 100 % is not an expectation.
    """
    assert analysis.mttf is not None
    model = analysis.mttf.model
    low, high = model.ci95_
    rates = (model.rate_per_1000_node_days_ if model.failures_ else high, low, high)
    return [{**analysis.ettr_setting, "rate_per_node_day": rate / 1000} for rate in rates]
