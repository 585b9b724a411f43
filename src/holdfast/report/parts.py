"""The parts of a page, for `render` and for a server that embeds them in its own pages.

`parts.html.j2` holds the macros for findings, tiles, sections and what could not be determined; they
take the output of `lay_out` for a section. A server sends `style`, `script` and `runtime` as files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.files import atomic_file
from holdfast.report import grid, theme
from holdfast.report.page import Figure, How, Section

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_ROWS = 20_000
_MAX_DRAWING = 400_000  # characters of SVG; a larger figure is drawn by the reader's browser only
_PRINTED_ROWS = 25
_ARROWS = {"rising": "▲", "falling": "▼", "steady": "▬"}


def environment(source: Callable[[str], str | None]) -> Environment:
    """Jinja as pages use it: everything is escaped, and an undefined name is an error.

    Args:
        source: name of a template -> its text; None if there is none.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_unbroken_percentages,
        loader=FunctionLoader(source),
    )
    made.globals.update(arrows=_ARROWS, printed_rows=_PRINTED_ROWS)
    return made


def lay_out(section: Section) -> dict[str, Any]:
    """A section as the macro `section` takes it: figures drawn, tables in cells.

    Raises:
        ValueError: if a figure has more than 20,000 rows, or a table names a column it lacks.
    """
    return {
        "id": section.id,
        "question": section.question,
        "sentence": section.sentence,
        "figures": [
            _figure(figure, f"{section.id}-figure-{index}", section)
            for index, figure in enumerate(section.figures, start=1)
        ],
        "tables": [
            grid.lay_out(table, f"{section.id}-table-{index}")
            for index, table in enumerate(section.tables, start=1)
        ],
        "how": None if section.how is None else lay_out_how(section.how),
    }


def lay_out_how(how: How) -> dict[str, Any]:
    """The fold-out under a section: formula (a line per equation), parameters, source, notes."""
    return {
        "formula": how.formula if isinstance(how.formula, str) else "\n".join(how.formula),
        "parameters": [(name, _parameter(value)) for name, value in how.parameters.items()],
        "source": how.source,
        "notes": [how.notes] * bool(how.notes) if isinstance(how.notes, str) else list(how.notes),
    }


def _parameter(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.6g}"
    return str(value)


def _figure(figure: Figure, name: str, section: Section) -> dict[str, Any]:
    from markupsafe import Markup

    specification = _specification(figure)
    rows = _count_rows(specification)
    if rows > MAX_ROWS:
        raise ValueError(
            f"section {section.id}: a chart of {rows:,} rows; aggregate to at most {MAX_ROWS:,}"
        )
    vega, drawing = _draw(specification)
    # Drawings number their clip paths from 0; in one document the names must differ.
    drawing = re.sub(r'(\bid="|url\(#)(?=(?:clip|gradient|pattern)[^"]*)', rf"\1{name}-", drawing)
    if len(drawing) > _MAX_DRAWING:
        drawing = "<p>This figure needs JavaScript; the table has its values.</p>"
    return {
        "id": name,
        "caption": figure.caption,
        "legend": [(label, theme.colour(name)) for label, name in figure.legend.items()],
        "notes": list(figure.notes),
        "description": figure.description or f"{section.question} {section.sentence}",
        "svg": Markup(drawing),
        "spec": Markup(_json_for_script(vega)),
    }


def _specification(figure: Figure) -> dict[str, Any]:
    """The Vega-Lite specification, as wide as the page."""
    made = dict(figure.chart() if callable(figure.chart) else figure.chart)
    if not isinstance(made.get("width"), Mapping):
        made["width"] = theme.WIDTH
        made["autosize"] = {"type": "fit-x", "contains": "padding"}
    return made


def _count_rows(specification: Mapping[str, Any]) -> int:
    parts = [specification, *specification.get("layer", ())]
    return sum(len(part["data"]["values"]) for part in parts if "data" in part)


def _draw(specification: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    import vl_convert

    compiled = vl_convert.vegalite_to_vega(dict(specification), config=theme.config())
    compiled.pop("$schema", None)
    vega: dict[str, Any] = _in_utc(compiled)
    return vega, vl_convert.vega_to_svg(vega)


def _in_utc(part: Any) -> Any:
    """A Vega specification whose tooltips show times as its axes do, not in the reader's zone."""
    if isinstance(part, str):
        return re.sub(r"\btimeFormat\(", "utcFormat(", part)
    if isinstance(part, list):
        return [_in_utc(item) for item in part]
    if isinstance(part, dict):
        return {k: item if k == "values" else _in_utc(item) for k, item in part.items()}
    return part


def _json_for_script(value: object) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def inline(script: str) -> str:
    """A script that cannot end the element that holds it."""
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--").strip()


@cache
def script() -> str:
    """The script of every page: tables sort and copy, figures come alive."""
    return inline(resource("page.js"))


@cache
def resource(name: str) -> str:
    """The text of a file of this package, such as the template ``"parts.html.j2"``."""
    return files("holdfast.report").joinpath(name).read_text(encoding="utf-8")


def _unbroken_percentages(value: Any) -> Any:
    """Text in which no line ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) (?=%)", "\u00a0", value) if type(value) is str else value


@cache
def style() -> str:
    """The style sheet of every page: the colours of light and dark, and the layout."""
    light, dark = theme.css_variables()
    variables = f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f"{variables}\n{resource('page.css').strip()}"


@cache
def runtime() -> str:
    """The Vega runtime as one script.

    Bundling takes a second, so the script is kept in the user's cache folder under the version of
    the library that made it.
    """
    import vl_convert

    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    kept = folder / f"vega-{version('vl-convert-python')}.js"
    end = "})();/* whole */"
    with suppress(OSError, UnicodeDecodeError):
        script = kept.read_text(encoding="utf-8")
        if script.endswith(end):
            return script
    script = inline(vl_convert.javascript_bundle("window.holdfastEmbed=vegaEmbed;"))
    script = f"(function(){{{script}{end}"
    with suppress(OSError):  # caching is optional: the next report bundles again
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(kept) as file:
            file.write(script.encode())
    return script
