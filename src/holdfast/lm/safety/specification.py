"""What is tested: a specification, and the items that it stands for.

A specification is a TOML file. Its items are templates filled with fragments (one item per fragment,
template and persona), complete prompts of a file, or both; each hazard's benign twin asks about the same
fragment for a reason that needs no refusal. Items are made one by one, so that a million take no memory.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Section, Table
from holdfast.config import parse_config, read_config
from holdfast.errors import InputError
from holdfast.files import atomic_file
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

    max_tokens: int = 500
    """Longest response: 500 in v0.5, 3,000 in v1.x."""
    temperature: float = 0.01
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
    """CSV or JSON lines with ``hazard`` and ``fragment``, relative to the specification."""
    templates: str = ""
    """TOML with a table per hazard and a list of texts per persona; empty: the templates that ship."""
    prompts: str = ""
    """CSV or JSON lines with ``hazard`` and ``prompt`` (and ``persona``, ``id``)."""
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
    table = shipped("hazards.toml")
    return {each: key for key, row in table.items() for each in (key, *row.get("also", ()))}


def hazard_key(key: str) -> str | None:
    """The key in AILuminate 1.x; parts of a hazard (``spc_fin``) belong to it. None: not a hazard."""
    return hazards().get(key) or hazards().get(key.partition("_")[0])


def hazard_name(key: str) -> str:
    """What a hazard is called."""
    return str(shipped("hazards.toml")[hazard_key(key) or key]["name"])


@cache
def shipped(name: str) -> dict[str, Any]:
    """A table of this folder."""
    return tomllib.loads(files("holdfast.lm.safety").joinpath(name).read_text(encoding="utf-8"))


def read_specification(path: str | Path) -> Specification:
    """Read a specification.

    Raises:
        InputError: if a key, a value or a hazard is not known, or nothing is tested.
    """
    path = Path(path)
    specification = read_config(path, Specification, "the test specification")
    for place, key in enumerate(specification.hazards):
        if hazard_key(key) is None:
            raise _unknown_hazard(key, path, f"hazards[{place}]")
    if not (specification.fragments or specification.prompts):
        raise InputError(
            "the test specification names no prompts",
            code="missing-key",
            path=path,
            place="fragments",
            remedy="set fragments (for the templates) or prompts (complete ones) to a file",
        )
    settings = specification.system
    if settings.max_tokens < 1 or not settings.temperature >= 0:
        raise InputError(
            "invalid settings of the system",
            code="out-of-range",
            path=path,
            place="system",
            expected="max_tokens of at least 1, temperature of at least 0",
        )
    return replace(specification, folder=str(path.parent.resolve()))


def _unknown_hazard(key: str, path: Path | str, place: str) -> InputError:
    return InputError(
        "unknown hazard",
        code="unknown-name",
        path=path,
        place=place,
        found=key,
        expected=", ".join(sorted(hazards())),
    )


def read_items(specification: Specification) -> Iterator[Item]:
    """The items in order: those of the fragments, then the complete prompts.

    Raises:
        InputError: for a row that cannot be used, with its line.
    """
    wanted = {hazard_key(key) for key in specification.hazards} or set(hazards().values())
    personas = set(specification.personas)
    if specification.fragments:
        yield from _filled(specification, wanted, personas)
    if specification.prompts:
        path = Path(specification.folder, specification.prompts)
        for line, row in read_rows(path, ("hazard", "prompt"), "the prompts"):
            key = _checked(path, line, row, "prompt")
            persona = row.get("persona") or "typical"
            if key in wanted and (not personas or persona in personas or persona == BENIGN):
                prompt = row["prompt"]
                name = row.get("id") or item_id(row["hazard"], persona, prompt)
                yield Item(name, row["hazard"], persona, "", "", prompt)


def _filled(
    specification: Specification, wanted: set[str | None], personas: set[str]
) -> Iterator[Item]:
    """Templates with fragments in them."""
    templates = read_templates(specification)
    known = {persona for table in templates.values() for persona in table}
    if personas - known:
        raise InputError(
            "no template has this persona",
            code="unknown-name",
            place="personas",
            found=", ".join(sorted(personas - known)),
            expected=", ".join(sorted(known - {BENIGN})),
        )
    used = (personas or known - {BENIGN}) | ({BENIGN} if specification.benign else set())
    path = Path(specification.folder, specification.fragments)
    for line, row in read_rows(path, ("hazard", "fragment"), "the fragments"):
        key = _checked(path, line, row, "fragment")
        if key not in wanted:
            continue
        if key not in templates:
            raise InputError(
                "no template for this hazard",
                code="missing-key",
                path=path,
                place=f"line {line}",
                found=row["hazard"],
                remedy="add a table of this name to the templates",
            )
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
    key = hazard_key(row["hazard"])
    if key is None:
        raise _unknown_hazard(row["hazard"], path, f"line {line}")
    if not row[text].strip():
        raise invalid_row(path, line, f"empty {text}", row[text], "text")
    return key


def read_templates(specification: Specification) -> Templates:
    """The templates of a specification, or those that ship.

    Raises:
        InputError: if one has no place for a fragment, or a hazard is not known.
    """
    if not specification.templates:
        return shipped("templates.toml")
    path = Path(specification.folder, specification.templates)
    content = parse_config(path, "the templates")
    table = read_config({"hazards": content}, _TemplateFile, "the templates").hazards
    for hazard, personas in table.items():
        if hazard_key(hazard) is None:
            raise _unknown_hazard(hazard, path, hazard)
        for persona, texts in personas.items():
            for number, text in enumerate(texts):
                if PLACEHOLDER not in text:
                    raise InputError(
                        "a template has no place for the fragment",
                        code="invalid-value",
                        path=path,
                        place=f"{hazard}.{persona}[{number}]",
                        found=text[:80],
                        expected=f"a text with {PLACEHOLDER}",
                    )
    return {hazard_key(hazard) or hazard: personas for hazard, personas in table.items()}


@dataclass(frozen=True)
class _TemplateFile:
    hazards: dict[str, dict[str, list[str]]]


def item_id(hazard: str, persona: str, prompt: str) -> str:
    """16 hexadecimal digits that stand for an item."""
    text = json.dumps([hazard, persona, prompt])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class ContentHash:
    """The digest of a specification: of every item in order, and of how the system is asked."""

    def __init__(self, settings: Settings) -> None:
        self._digest = hashlib.sha256(json.dumps(asdict(settings)).encode())

    def add(self, item: Item) -> Item:
        """Count an item, and give it back."""
        self._digest.update(json.dumps(item).encode())
        return item

    def text(self) -> str:
        """Of the items so far."""
        return self._digest.hexdigest()


@dataclass(frozen=True)
class Items(Answer):
    """The items of a specification, counted.

    Args:
        name, version: of the specification.
        content_hash: SHA-256 of the items and of how the system is asked.
        count: number of items.
        groups: one row per hazard and persona: ``hazard``, ``name``, ``persona``, ``items``, ``example``.
    """

    name: str
    version: str
    content_hash: str
    count: int
    groups: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """The heading."""
        return f"Test specification {self.name}"

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Which specification."""
        return [("version", self.version), ("content", self.content_hash)]

    def sections(self) -> Sequence[Section]:
        """Items per hazard and persona."""
        columns = {
            "hazard": ColumnFormat("Hazard"),
            "name": ColumnFormat("Name"),
            "persona": ColumnFormat("Persona"),
            "items": ColumnFormat("Items"),
            "example": ColumnFormat("First prompt", detail=True),
        }
        benign = sum(row["items"] for row in self.groups if row["persona"] == BENIGN)
        count = len({hazard_key(row["hazard"]) for row in self.groups})
        sentence = (
            f"{self.name} {self.version} has {self.count - benign:,} items for {count} hazards and "
            f"{benign:,} benign ones (content {self.content_hash[:12]})."
        )
        table = Table(pa.Table.from_pylist(self.groups), columns)
        return [Section("items", "What is tested?", sentence, tables=[table])]


def count_items(specification: Specification) -> Items:
    """Count the items of a specification and hash their content.

    Raises:
        InputError: if an item cannot be made, or there is none.
    """
    digest = ContentHash(specification.system)
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for item in read_items(specification):
        digest.add(item)
        counts[item.hazard, item.persona] += 1
        examples.setdefault((item.hazard, item.persona), item.prompt[:100])
    if not counts:
        raise no_items(specification)
    groups = [
        {
            "hazard": hazard,
            "name": hazard_name(hazard),
            "persona": persona,
            "items": count,
            "example": examples[hazard, persona],
        }
        for (hazard, persona), count in counts.items()
    ]
    return Items(specification.name, specification.version, digest.text(), counts.total(), groups)


def write_items(specification: Specification, path: str | Path) -> None:
    """Write the items to a file, one JSON object per line.

    Raises:
        InputError: if an item cannot be made.
        OSError: if the file cannot be written.
    """
    with atomic_file(path) as file:
        for item in read_items(specification):
            file.write(json.dumps(item._asdict(), ensure_ascii=False).encode() + b"\n")


def no_items(specification: Specification) -> InputError:
    """The error of a specification without items."""
    return InputError(
        "the test specification has no items",
        code="no-data",
        path=specification.folder,
        place=specification.name,
        remedy="check hazards and personas against the files of fragments and prompts",
    )
