"""What a page is made of before its numbers: addresses, templates, files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast import __version__
from holdfast.report import parts

NODE_LINK = "/nodes/{}"
JOB_LINK = "/jobs/{}"
CLUSTER_LINK = "/?cluster={}"

# Address -> name, in the order of the navigation
PAGES = {
    "/": "This morning",
    "/summary": "Summary",
    "/rate": "Failure rate",
    "/nodes": "Nodes",
    "/jobs": "Jobs",
    "/ettr": "ETTR",
    "/actions": "Actions",
}

# Address -> the sections of the report that stand there
SECTIONS = {
    "/": ("changes",),
    "/summary": ("loss", "causes", "preemptions", "status"),
    "/rate": ("rate", "mttf"),
    "/nodes": ("lemons",),
    "/jobs": ("loops", "owners"),
    "/ettr": ("ettr",),
}

# Section -> its address
PLACES = {
    **{section: f"{page}#{section}" for page, sections in SECTIONS.items() for section in sections},
    "unknown": "/summary#unknown",
}

PARTS = "parts.html.j2"
JAVASCRIPT = "text/javascript; charset=utf-8"


@cache
def environment() -> Any:
    """The templates (of Jinja), with what all of them use."""
    templates = parts.environment(_source)
    templates.globals.update(asset=asset, navigation=PAGES, places=PLACES, version=__version__)
    return templates


def _source(name: str) -> str | None:
    if name == PARTS:
        return parts.resource(name)
    file = files("holdfast.fleet.console").joinpath("templates", name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def html(template: str, context: Mapping[str, Any]) -> str:
    """A page."""
    names = ("subtitle", "here", "live", "generation", "watching", "sources", "extent")
    empty = {"fleet": "holdfast", "on_news": "tell", **dict.fromkeys(names, "")}
    text: str = environment().get_template(template).render({**empty, **context})
    return text


def _own(name: str) -> str:
    return files("holdfast.fleet.console").joinpath("static", name).read_text(encoding="utf-8")


# Name -> media type and text
_ASSETS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "console.css": (
        "text/css; charset=utf-8",
        lambda: f"{parts.style()}\n{_own('console.css')}",
    ),
    "page.js": (JAVASCRIPT, parts.script),
    "vega.js": (JAVASCRIPT, parts.runtime),
    "console.js": (JAVASCRIPT, lambda: _own("console.js")),
}


@cache
def asset_file(name: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of a file below ``/static/``; None if there is no such file."""
    if name not in _ASSETS:
        return None
    media_type, text = _ASSETS[name]
    return media_type, text().encode()


@cache
def asset(name: str) -> str:
    """The address of a file, which changes with its content, so that browsers may keep it."""
    file = asset_file(name)
    if file is None:
        raise KeyError(name)
    return f"/static/{name}?v={hashlib.sha256(file[1]).hexdigest()[:12]}"


def alert_rules() -> str:
    """The Prometheus alert rules that ship with the console, as a YAML file for its `rule_files`."""
    return files("holdfast.fleet.console").joinpath("alerts.yaml").read_text(encoding="utf-8")
