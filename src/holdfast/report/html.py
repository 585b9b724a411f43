"""A page -> one HTML file that needs no network.

Each figure is compiled to Vega and drawn as SVG, so that the page reads without JavaScript;
with it, the inlined Vega runtime replaces a drawing by a live one as it comes into view. A content
security policy admits the page's own style and scripts by their hashes and nothing else: no eval,
no network.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from holdfast.files import write_whole
from holdfast.report import parts
from holdfast.report.page import Page

if TYPE_CHECKING:
    from jinja2 import Template

MAX_TILES = 6
UNKNOWN = "unknown"
"""The id of "What we could not tell", for a finding that it proves."""
_RESERVED_IDS = frozenset({"findings", "doubts", UNKNOWN, "tip"})


def render(page: Page) -> str:
    """The HTML of a page: the same page gives the same bytes.

    Raises:
        ValueError: if the page breaks a rule: more than six tiles, an id that is malformed, taken
            or unknown, a figure or table with more than 20,000 rows.
    """
    from markupsafe import Markup

    _check(page)
    sections = [parts.lay_out(section) for section in page.sections]
    live = any(section["figures"] for section in sections)
    css, script = parts.style(), parts.script()
    runtime = parts.runtime() if live else ""
    html = _template().render(
        page=page,
        sections=sections,
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
    write_whole(path, render(page).encode())
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
    if not all(part.doubt for part in page.unknowns):
        ids.append(UNKNOWN)
    targets = [part.section_id for part in page.findings]
    targets += [part.section_id for part in page.tiles]
    for target in targets:
        if target is not None and target not in ids:
            raise ValueError(f"no section has the id {target!r}")
    for section in page.sections:
        for table in section.tables:
            if table.data.num_rows > parts.MAX_ROWS:
                raise ValueError(
                    f"section {section.id}: a table of {table.data.num_rows:,} rows; "
                    f"aggregate to at most {parts.MAX_ROWS:,}"
                )


@cache
def _template() -> Template:
    return parts.environment(parts.resource).get_template("template.html.j2")


def _policy(css: str, scripts: list[str]) -> str:
    def admit(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {admit(css)}; script-src "
        f"{' '.join(admit(script) for script in scripts)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
