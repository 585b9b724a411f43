"""What is tested: a specification, and the items that it stands for.

A specification is a TOML file. Its items are templates filled with fragments (one item per fragment,
template and persona), complete prompts of a file, or both; each hazard's benign twin asks about the same
fragment for a reason that needs no refusal. Items are made one by one, so that a million take no memory.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
from msgspec import Meta

from holdfast.answer import Answer, Section, Table
from holdfast.command import Output
from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.files import atomic_file, write_whole
from holdfast.lm.safety.rows import invalid_row, read_rows

BENIGN = "benign"
"""The persona of items that need no refusal."""
PLACEHOLDER = "{fragment}"
Templates = Mapping[str, Mapping[str, Sequence[str]]]
"""Hazard -> persona -> texts."""


class Item(NamedTuple):
    """One prompt and where it comes from."""

    id: str
    """Hash of hazard, persona and prompt; or the id that a file of prompts gives."""
    hazard: str
    persona: str
    template: str
    """``vcr/typical/1``; empty for a complete prompt."""
    fragment: str
    """The fragment; empty for a complete prompt."""
    prompt: str


@dataclass(frozen=True)
class Settings:
    """How a system is asked; both benchmarks fix it."""

    max_tokens: Annotated[int, Meta(ge=1)] = 500
    """Longest response: 500 in v0.5, 3,000 in v1.x."""
    temperature: Annotated[float, Meta(ge=0)] = 0.01
    system_prompt: str = ""

    def messages(self, prompt: str) -> list[dict[str, str]]:
        """The conversation that asks one prompt."""
        system = [{"role": "system", "content": self.system_prompt}] * bool(self.system_prompt)
        return [*system, {"role": "user", "content": prompt}]


@dataclass(frozen=True)
class Specification:
    """A test, as its TOML file says it."""

    name: str
    version: str = "1"
    locale: str = "en_US"
    use_case: str = "general-purpose assistant, one turn"
    hazards: list[str] = field(default_factory=list)
    """Keys of hazards; empty: all."""
    personas: list[str] = field(default_factory=list)
    """Those of the templates that are used; empty: all."""
    fragments: str = ""
    """CSV with ``hazard`` and ``fragment``, relative to the specification."""
    templates: str = ""
    """TOML with a table per hazard and a list of texts per persona; empty: the templates that ship."""
    prompts: str = ""
    """CSV with ``hazard`` and ``prompt`` (and ``persona``, ``id``)."""
    benign: bool = True
    """Whether benign twins are asked too."""
    annotators: list[str] = field(default_factory=list)
    """Names of annotators that judge the responses."""
    system: Settings = field(default_factory=Settings)
    folder: str = ""
    """Set by `read_specification`: what the files are relative to."""


@cache
def hazards() -> Mapping[str, str]:
    """Every key of a hazard, of v0.5 too -> its key in AILuminate 1.x."""
    rows = table("hazards.toml").items()
    return {each: key for key, row in rows for each in (key, *row.get("also", ()))}


def hazard_key(key: str) -> str | None:
    """The key in AILuminate 1.x; parts of a hazard (``spc_fin``) belong to it. None: not a hazard."""
    return hazards().get(key) or hazards().get(key.partition("_")[0])


def hazard_name(key: str) -> str:
    """What a hazard is called."""
    return str(table("hazards.toml")[hazard_key(key) or key]["name"])


@cache
def shipped(name: str) -> str:
    """A text file of this folder."""
    return files("holdfast.lm.safety").joinpath(name).read_text(encoding="utf-8")


@cache
def table(name: str) -> dict[str, Any]:
    """A TOML file of this folder."""
    return tomllib.loads(shipped(name))


def read_specification(path: str | Path) -> Specification:
    """Read a specification.

    Raises:
        InputError: if a key, a value or a hazard is not known, or nothing is tested.
    """
    path = Path(path)
    specification = read_config(path, Specification, "the test specification")
    for place, key in enumerate(specification.hazards):
        checked_hazard(key, path, f"hazards[{place}]")
    if not (specification.fragments or specification.prompts):
        remedy = "set fragments (for the templates) or prompts (complete ones) to a file"
        facts = {"place": "fragments", "remedy": remedy}
        raise InputError("no prompts are named", code="missing-key", path=path, **facts)
    return replace(specification, folder=str(path.parent.resolve()))


def checked_hazard(hazard: str, path: Path, place: str) -> str:
    """The key of a hazard.

    Raises:
        InputError: if it is not known.
    """
    key = hazard_key(hazard)
    if key is None:
        facts = {"place": place, "found": hazard, "expected": ", ".join(sorted(hazards()))}
        raise InputError("unknown hazard", code="unknown-name", path=path, **facts)
    return key


def read_items(specification: Specification) -> Iterator[Item]:
    """The items in order: those of the fragments, then the complete prompts.

    Raises:
        InputError: for a row that cannot be used, with its line.
    """
    selected = {hazard_key(key) for key in specification.hazards} or set(hazards().values())
    personas = set(specification.personas)
    if specification.fragments:
        yield from _filled(specification, selected, personas)
    if specification.prompts:
        path = Path(specification.folder, specification.prompts)
        for line, row in read_rows(path, ("hazard", "prompt"), "the prompts"):
            key = _checked(path, line, row, "prompt")
            persona = row.get("persona") or "typical"
            if key in selected and (not personas or persona in personas or persona == BENIGN):
                prompt = row["prompt"]
                name = row.get("id") or item_id(row["hazard"], persona, prompt)
                yield Item(name, row["hazard"], persona, "", "", prompt)


def _filled(
    specification: Specification, selected: set[str | None], personas: set[str]
) -> Iterator[Item]:
    """Templates with fragments in them."""
    templates = read_templates(specification)
    known = {persona for table in templates.values() for persona in table}
    if personas - known:
        found, expected = (", ".join(sorted(each)) for each in (personas - known, known))
        problem, code = "no template has this persona", "unknown-name"
        raise InputError(problem, code=code, place="personas", found=found, expected=expected)
    used = (personas or known - {BENIGN}) | ({BENIGN} if specification.benign else set())
    path = Path(specification.folder, specification.fragments)
    for line, row in read_rows(path, ("hazard", "fragment"), "the fragments"):
        key = _checked(path, line, row, "fragment")
        if key not in selected:
            continue
        if key not in templates:
            expected = f"a hazard with templates: {', '.join(templates)}"
            raise invalid_row(path, line, "no template for this hazard", row["hazard"], expected)
        for persona, texts in templates[key].items():
            for number, text in enumerate(texts, 1) if persona in used else ():
                prompt = text.replace(PLACEHOLDER, row["fragment"])
                yield Item(
                    item_id(row["hazard"], persona, prompt),
                    row["hazard"],
                    persona,
                    f"{key}/{persona}/{number}",
                    row["fragment"],
                    prompt,
                )


def _checked(path: Path, line: int, row: Mapping[str, str], text: str) -> str:
    """The key of a row's hazard."""
    if not row[text].strip():
        raise invalid_row(path, line, f"empty {text}", row[text], "text")
    return checked_hazard(row["hazard"], path, f"line {line}")


def read_templates(specification: Specification) -> Templates:
    """The templates of a specification, or those that ship.

    Raises:
        InputError: if one has no place for a fragment, or a hazard is not known.
    """
    if not specification.templates:
        return table("templates.toml")
    path = Path(specification.folder, specification.templates)
    found = read_config(path, dict[str, dict[str, list[str]]], "the templates")
    for hazard, personas in found.items():
        checked_hazard(hazard, path, hazard)
        for persona, texts in personas.items():
            for number, text in enumerate(texts):
                check_place(PLACEHOLDER, text, path, f"{hazard}.{persona}[{number}]")
    return {hazard_key(hazard) or hazard: personas for hazard, personas in found.items()}


def check_place(placeholder: str, text: str, path: Path, place: str) -> None:
    """Refuse a template without a place for what is filled in."""
    if placeholder not in text:
        facts = {"place": place, "found": text[:80], "expected": f"a text with {placeholder}"}
        raise InputError("an incomplete template", code="invalid-value", path=path, **facts)


def item_id(hazard: str, persona: str, prompt: str) -> str:
    """16 hexadecimal digits that stand for an item."""
    text = json.dumps([hazard, persona, prompt])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def duplicate(item: Item) -> InputError:
    """The error of an item that occurs twice."""
    return InputError(
        "two items are the same",
        code="duplicate",
        place=item.id,
        found=f"{item.hazard}, {item.persona}: {item.prompt[:60]}",
        remedy="remove the fragment or prompt that occurs twice",
    )


class Content:
    """The items of a specification, and the digest of those that were read and of how they are asked."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._digest = hashlib.sha256(json.dumps(asdict(specification.system)).encode())

    def items(self) -> Iterator[Item]:
        """The items in order.

        Raises:
            InputError: if one cannot be made, or there is none.
        """
        item = None
        for item in read_items(self._specification):
            self._digest.update(json.dumps(item).encode())
            yield item
        if item is None:
            raise InputError(
                "the test specification has no items",
                code="no-data",
                path=self._specification.folder,
                place=self._specification.name,
                remedy="check hazards and personas against the files of fragments and prompts",
            )

    @property
    def hash(self) -> str:
        """SHA-256, in hexadecimal digits."""
        return self._digest.hexdigest()


@dataclass(frozen=True)
class Items(Answer):
    """The items of a specification, counted.

    Args:
        name, version: of the specification.
        content_hash: SHA-256 of the items and of how the system is asked.
        count: number of items.
        groups: one row per hazard and persona: ``hazard``, ``name``, ``persona``, ``items``.
    """

    name: str
    version: str
    content_hash: str
    count: int
    groups: list[dict[str, Any]]

    def sections(self) -> Sequence[Section]:
        """Items per hazard and persona."""
        benign = sum(row["items"] for row in self.groups if row["persona"] == BENIGN)
        count = len({hazard_key(row["hazard"]) for row in self.groups})
        sentence = (
            f"{self.name} {self.version} has {self.count - benign:,} items for {count} hazards and "
            f"{benign:,} benign ones (content {self.content_hash[:12]})."
        )
        table = Table(pa.Table.from_pylist(self.groups))
        return [Section("items", "What is tested?", sentence, tables=[table])]


def count_items(specification: Specification) -> Items:
    """Count the items of a specification and hash their content.

    Raises:
        InputError: if an item cannot be made or occurs twice, or there is none.
    """
    content, ids = Content(specification), set[str]()
    counts = Counter[tuple[str, str]]()
    for item in content.items():
        if item.id in ids:
            raise duplicate(item)
        ids.add(item.id)
        counts[item.hazard, item.persona] += 1
    rows = [
        {"hazard": hazard, "name": hazard_name(hazard), "persona": persona, "items": count}
        for (hazard, persona), count in counts.items()
    ]
    return Items(specification.name, specification.version, content.hash, len(ids), rows)


def write_items(specification: Specification, path: str | Path) -> None:
    """Write the items to a CSV file.

    Raises:
        InputError: if an item cannot be made.
        OSError: if the file cannot be written.
    """
    with atomic_file(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        writer = csv.writer(text)
        writer.writerow(Item._fields)
        writer.writerows(read_items(specification))
        text.detach()


def import_ailuminate(source: str | Path, /, output: Output) -> Items:
    """Make a test specification of a prompt set of AILuminate.

    Args:
        source: CSV of a release, with release_prompt_id, prompt_text, hazard, persona and locale.
        output: TOML file to write; it names the CSV, which stays in place.

    Raises:
        InputError: if a column is missing, a hazard unknown, or an id given twice.
    """
    source = Path(source).resolve()
    ids: set[str] = set()
    locale = ""
    for line, row in read_rows(
        source, ("id", "prompt", "hazard", "persona", "locale"), "the prompts"
    ):
        locale = locale or row["locale"]
        if row["id"] in ids:
            raise invalid_row(source, line, "an id is given twice", row["id"], "one row per id")
        ids.add(row["id"])
    text = shipped("ailuminate.toml").format(
        *(json.dumps(each) for each in (source.stem, locale, str(source)))
    )
    release = Specification(source.stem, prompts=str(source), system=Settings(max_tokens=3000))
    items = count_items(release)  # before anything is written: every row can be used
    write_whole(output, text.encode())
    return items
