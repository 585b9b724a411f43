"""A page -> one HTML file that needs no network.

Each figure is compiled to Vega and drawn as SVG here, so that the page reads without JavaScript;
with it, the inlined Vega runtime replaces a drawing by a live one as it comes into view. A content
security policy admits the page's own style and scripts by their hashes and nothing else: no eval,
no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.report import grid, theme
from holdfast.report.page import Figure, How, Page, Section

if TYPE_CHECKING:
    from jinja2 import Template

MAX_ROWS = 20_000
MAX_TILES = 6
_MAX_DRAWING = 400_000  # characters of SVG; a larger figure is drawn by the reader's browser only
_PRINTED_ROWS = 25
_ARROWS = {"rising": "▲", "falling": "▼", "steady": "▬"}
UNKNOWN = "unknown"
"""The id of "What we could not tell", for a finding that it proves."""
_RESERVED_IDS = frozenset({"findings", UNKNOWN, "tip"})


def render(page: Page) -> str:
    """The HTML of a page: the same page gives the same bytes.

    Raises:
        ValueError: if the page breaks a rule: more than six tiles, an id that is malformed, taken
            or unknown, a figure or table with more than 20,000 rows.
    """
    from markupsafe import Markup

    _check(page)
    sections = [_section(section) for section in page.sections]
    live = any(section["figures"] for section in sections)
    css, script = _style(), _inline(_resource("page.js"))
    runtime = _runtime() if live else ""
    html = _template().render(
        page=page,
        sections=sections,
        arrows=_ARROWS,
        printed_rows=_PRINTED_ROWS,
        policy=_policy(css, [runtime, script] if live else [script]),
        css=Markup(css),
        runtime=Markup(runtime),
        script=Markup(script),
    )
    return html + "\n"


def write(page: Page, path: str | Path) -> Path:
    """Write a page as an HTML file, whole or not at all.

    Returns:
        The path that was written.

    Raises:
        HoldfastError: if the file cannot be written.
        ValueError: as `render`.
    """
    path = Path(path)
    text = render(page)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise HoldfastError(
            f"{path}: the report cannot be written\n  found: {error.strerror}\n"
            "  remedy: name a file in a folder that exists, on a disk with room"
        ) from error
    return path


def warm_up() -> None:
    """Start the drawing engine in the background: it takes a second that the caller can use."""

    def start() -> None:
        import vl_convert

        vl_convert.vega_to_svg({})

    Thread(target=start, daemon=True).start()


def _check(page: Page) -> None:
    if len(page.tiles) > MAX_TILES:
        raise ValueError(f"a page has at most {MAX_TILES} tiles, not {len(page.tiles)}")
    ids = [section.id for section in page.sections]
    for name in ids:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"a section id is lower-case letters, digits and hyphens: {name!r}")
        if ids.count(name) > 1 or name in _RESERVED_IDS:
            raise ValueError(f"the section id {name!r} is taken")
    if page.unknowns:
        ids.append(UNKNOWN)
    targets = [part.section_id for part in page.findings]
    targets += [part.section_id for part in page.tiles]
    for target in targets:
        if target is not None and target not in ids:
            raise ValueError(f"no section has the id {target!r}")
    for section in page.sections:
        for table in section.tables:
            if table.data.num_rows > MAX_ROWS:
                raise ValueError(
                    f"section {section.id}: a table of {table.data.num_rows:,} rows; "
                    f"aggregate to at most {MAX_ROWS:,}"
                )


def _section(section: Section) -> dict[str, Any]:
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
        "how": _how(section.how),
    }


def _how(how: How | None) -> dict[str, Any] | None:
    if how is None:
        return None
    return {
        "formula": how.formula if isinstance(how.formula, str) else "\n".join(how.formula),
        "parameters": [(name, _parameter(value)) for name, value in how.parameters.items()],
        "source": how.source,
        "notes": [how.notes] if isinstance(how.notes, str) else list(how.notes),
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
    """The Vega-Lite specification, without the configuration that Altair adds by default."""
    chart = figure.chart
    # Altair validated each part when it was made; the whole need not be validated again.
    made = dict(chart) if isinstance(chart, Mapping) else chart.to_dict(validate=False)
    made.pop("config", None)
    single = "mark" in made or "layer" in made
    if single and not isinstance(made.get("width"), Mapping):
        made["width"] = theme.WIDTH
        made["autosize"] = {"type": "fit-x", "contains": "padding"}
    return made


def _count_rows(specification: Mapping[str, Any]) -> int:
    named = specification.get("datasets", {})
    total = sum(len(rows) for rows in named.values())
    pending: list[Any] = [{k: v for k, v in specification.items() if k != "datasets"}]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            data = part.get("data")
            if isinstance(data, Mapping) and isinstance(data.get("values"), list):
                total += len(data["values"])
            pending.extend(value for key, value in part.items() if key != "data")
        elif isinstance(part, list):
            pending.extend(part)
    return total


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


def _inline(script: str) -> str:
    """A script that cannot end the element that holds it."""
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--").strip()


@cache
def _resource(name: str) -> str:
    return files("holdfast.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_unbroken_percentages
    )
    return environment.from_string(_resource("template.html.j2"))


def _unbroken_percentages(value: Any) -> Any:
    """Text in which no line ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) (?=%)", "\u00a0", value) if type(value) is str else value


@cache
def _style() -> str:
    light, dark = theme.css_variables()
    variables = f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f"{variables}\n{_resource('page.css').strip()}"


@cache
def _runtime() -> str:
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
    script = _inline(vl_convert.javascript_bundle("window.holdfastEmbed=vegaEmbed;"))
    script = f"(function(){{{script}{end}"
    temporary = kept.with_name(f"{kept.name}.{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(script, encoding="utf-8")
        temporary.replace(kept)
    except OSError:
        with suppress(OSError):  # no cache is no failure: the next report bundles again
            temporary.unlink()
    return script


def _policy(css: str, scripts: list[str]) -> str:
    def admit(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {admit(css)}; script-src "
        f"{' '.join(admit(script) for script in scripts)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
