"""What files beside the data say about it: licences, citations, the cards of dataset hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from holdfast.data.croissant.describing.description import Note

_MOST = 1 << 20  # bytes that are read of such a file
_LICENCE_FILES = ("license", "licence", "copying", "license.txt", "licence.txt", "license.md",
                  "licence.md", "copying.txt", "unlicense")  # fmt: skip
# SPDX id -> phrases that all stand in its text, and that no other licence here has together.
_PHRASES: dict[str, tuple[str, ...]] = {
    "CC-BY-NC-SA-4.0": ("attribution-noncommercial-sharealike 4.0 international",),
    "CC-BY-NC-ND-4.0": ("attribution-noncommercial-noderivatives 4.0 international",),
    "CC-BY-NC-4.0": ("attribution-noncommercial 4.0 international",),
    "CC-BY-SA-4.0": ("attribution-sharealike 4.0 international",),
    "CC-BY-ND-4.0": ("attribution-noderivatives 4.0 international",),
    "CC-BY-4.0": ("attribution 4.0 international", "creative commons"),
    "CC-BY-SA-3.0": ("attribution-sharealike 3.0 unported",),
    "CC-BY-3.0": ("attribution 3.0 unported", "creative commons"),
    "CC0-1.0": ("cc0 1.0 universal",),
    "Apache-2.0": ("apache license version 2.0, january 2004",),
    "MIT": (
        "permission is hereby granted, free of charge, to any person obtaining a copy",
        "the above copyright notice and this permission notice shall be included in all copies",
    ),
    "BSD-3-Clause": (
        "redistribution and use in source and binary forms, with or without modification, are permitted",
        "neither the name of",
    ),
    "BSD-2-Clause": (
        "redistribution and use in source and binary forms, with or without modification, are permitted",
    ),
    "AGPL-3.0-only": ("gnu affero general public license version 3, 19 november 2007",),
    "LGPL-3.0-only": ("gnu lesser general public license version 3, 29 june 2007",),
    "GPL-3.0-only": ("gnu general public license version 3, 29 june 2007",),
    "GPL-2.0-only": ("gnu general public license version 2, june 1991",),
    "MPL-2.0": ("mozilla public license version 2.0",),
    "ODbL-1.0": ("open database license", "odbl"),
    "ODC-By-1.0": ("odc attribution license",),
    "PDDL-1.0": ("public domain dedication & license",),
    "CDLA-Permissive-2.0": ("community data license agreement - permissive - version 2.0",),
    "CDLA-Permissive-1.0": ("community data license agreement - permissive - version 1.0",),
    "CDLA-Sharing-1.0": ("community data license agreement - sharing - version 1.0",),
    "Unlicense": ("this is free and unencumbered software released into the public domain",),
}
_SHORT = {name.lower(): name for name in _PHRASES} | {
    "gpl-3.0": "GPL-3.0-only",
    "gpl-2.0": "GPL-2.0-only",
    "agpl-3.0": "AGPL-3.0-only",
    "lgpl-3.0": "LGPL-3.0-only",
    "gpl-3.0-or-later": "GPL-3.0-or-later",
    "odbl": "ODbL-1.0",
    "odc-by": "ODC-By-1.0",
    "pddl": "PDDL-1.0",
    "cc0": "CC0-1.0",
}


@dataclass
class Said:
    """What is known of the dataset as a whole; each with the file that says it, for the notes.

    Attributes:
        values: property of schema.org -> its JSON value.
        sources: property -> the file; "" where the caller said it.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def say(self, name: str, value: Any, source: str) -> None:
        """Keep a value, if nothing said it before and it is something."""
        if value not in (None, "", [], {}) and name not in self.values:
            self.values[name], self.sources[name] = value, source

    def notes(self) -> list[Note]:
        """One for each value, saying where it comes from."""
        return [
            Note("", "inferred", f"{name} is taken from {source}")
            for name, source in sorted(self.sources.items())
            if source
        ]


def look_around(said: Said, folder: Path, paths: Sequence[str]) -> None:
    """Add what the files of a dataset's top folder say about the dataset.

    A citation file comes first, then the host's card, then the licence's text: what one says, a later one
    does not change.

    Args:
        said: what is known already.
        folder: the dataset's.
        paths: its files, relative to it.
    """
    top = {path.lower(): path for path in sorted(paths) if "/" not in path}
    if name := top.get("citation.cff"):
        _citation(said, _mapping(_text(folder / name)), name)
    if name := top.get("dataset_infos.json") or top.get("dataset_info.json"):
        _infos(said, _mapping(_text(folder / name)), name)
    for name in (
        top[each] for each in ("readme.md", "readme.rst", "readme.txt", "readme") if each in top
    ):
        _card(said, _text(folder / name), name)
    for name in (top[each] for each in _LICENCE_FILES if each in top):
        if licence := recognised(_text(folder / name)):
            said.say("license", as_url(licence), name)
    for name in (top[each] for each in ("citation.bib", "citation.txt", "citation") if each in top):
        said.say("citeAs", _text(folder / name).strip(), name)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""


def _mapping(text: str) -> Mapping[str, Any]:
    """A YAML (or JSON) document that is a mapping; empty where it is none."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _citation(said: Said, cff: Mapping[str, Any], source: str) -> None:
    """What a Citation File Format file (version 1.2) says."""
    said.say("name", _line(cff.get("title")), source)
    said.say("description", _line(cff.get("abstract")), source)
    said.say("datePublished", _line(cff.get("date-released")), source)
    said.say("license", _licences(cff.get("license")), source)
    said.say("keywords", _lines(cff.get("keywords")), source)
    doi = _line(cff.get("doi"))
    for url in (
        cff.get("url"),
        cff.get("repository"),
        cff.get("repository-code"),
        doi and f"https://doi.org/{doi}",
    ):
        said.say("url", _line(url), source)
    authors = cff.get("authors")
    creators = (
        [_author(each) for each in authors if isinstance(each, dict)]
        if isinstance(authors, list)
        else []
    )
    said.say("creator", [each for each in creators if each], source)


def _author(author: Mapping[str, Any]) -> dict[str, str]:
    """An author of a citation file: a person by given and family names, else what has one name."""
    parts = [
        author.get(part) for part in ("given-names", "name-particle", "family-names", "name-suffix")
    ]
    made = {}
    if person := " ".join(str(part) for part in parts if part):
        made = {"@type": "Person", "name": person}
    elif name := _line(author.get("name")):
        made = {"@type": "Organization", "name": name}
    if made and (url := _line(author.get("orcid") or author.get("website"))):
        made["url"] = url
    return made


def _infos(said: Said, infos: Mapping[str, Any], source: str) -> None:
    """What the `datasets` library wrote beside its data: one object, or one for each configuration."""
    first = next(iter(infos.values()), None)
    info = infos if "features" in infos or not isinstance(first, dict) else first
    said.say("description", _line(info.get("description")), source)
    said.say("license", _licences(info.get("license")), source)
    said.say("url", _line(info.get("homepage")), source)
    said.say("citeAs", _line(info.get("citation")), source)


def _card(said: Said, text: str, source: str) -> None:
    """What a README says: front matter as on the Hugging Face hub, a first paragraph, a BibTeX entry."""
    front: Mapping[str, Any] = {}
    if matter := re.match(r"---\r?\n(.*?)\r?\n---\r?\n(.*)", text, re.DOTALL):
        front, text = _mapping(matter[1]), matter[2]
    said.say("name", _line(front.get("pretty_name")), source)
    licence = front.get("license_name") if front.get("license") == "other" else front.get("license")
    said.say("license", _line(front.get("license_link")) or _licences(licence), source)
    said.say("inLanguage", _lines(front.get("language")), source)
    said.say("keywords", _lines(front.get("tags")), source)
    if entry := re.search(r"```(?:bibtex|latex)?\s*\n(\s*@\w+\{.*?)```", text, re.DOTALL):
        said.say("citeAs", entry[1].strip(), source)
    said.say("description", _first_paragraph(text), source)


def _first_paragraph(text: str) -> str:
    """The first paragraph that is prose: no heading, list, badge, table, quotation or code."""
    text = re.sub(r"<!--.*?-->|```.*?```", "", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        prose = [line for line in lines if not re.match(r"[#=\-*+|<>!\[:.]|\d+\.\s", line)]
        if prose and len(prose) == len([line for line in lines if not line.startswith("#")]):
            paragraph = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(prose))
            if len(paragraph) >= 20:
                return paragraph
    return ""


def _line(value: Any) -> str:
    """A scalar as text; "" for anything else."""
    if isinstance(value, (dict, list)) or value is None:
        return ""
    return str(value).strip()


def _lines(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := _line(each))]


def _licences(value: Any) -> str | list[str]:
    """One licence as its address, several as a list."""
    found = [as_url(each) for each in _lines(value)]
    return found[0] if len(found) == 1 else found


def recognised(text: str) -> str | None:
    """The SPDX id of a licence's text; None if it is none of the common ones word for word."""
    plain = re.sub(r"[\s*#=_]+", " ", text.lower().replace("–", "-"))
    for name, phrases in _PHRASES.items():
        if all(phrase in plain for phrase in phrases):
            return name
    return None


def as_url(licence: str) -> str:
    """The address of a licence that is given by a short name in any case; other text as it is."""
    name = _SHORT.get(licence.strip().lower())
    return f"https://spdx.org/licenses/{name}.html" if name else licence.strip()
