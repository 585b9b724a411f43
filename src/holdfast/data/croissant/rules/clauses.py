"""The sections of the standard that rules come from."""

from __future__ import annotations

from typing import NamedTuple

STANDARD = "https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html"


class Clause(NamedTuple):
    """A section of a standard, and its address."""

    section: str
    url: str


def _section(name: str) -> Clause:
    """A section of Croissant 1.1; its anchor is made of its heading, as the site makes it."""
    words = "".join(letter for letter in name.lower() if letter.isalnum() or letter in " -")
    return Clause(name, f"{STANDARD}#{words.replace(' ', '-')}")


JSON = Clause("RFC 8259, The JavaScript Object Notation", "https://www.rfc-editor.org/rfc/rfc8259")

NAMESPACES = _section("Namespaces")
IDS = _section("ID and Reference Mechanism")
REQUIRED = _section("Required")
RECOMMENDED = _section("Recommended")
MODIFIED = _section("Modified and Added Properties")
CHECKSUMS = _section("Checksums")
FILE_OBJECT = _section("FileObject")
FILE_SET = _section("FileSet")
RECORD_SET = _section("RecordSet")
FIELD = _section("Field")
DATA_SOURCE = _section("DataSource")
EXTRACT = _section("Extract")
TRANSFORM = _section("Transform")
FORMAT = _section("Format")
DATA_TYPE = _section("DataType")
EMBEDDING = _section("Embedding data")
JOINS = _section("Joins")
HIERARCHY = _section("Hierarchical RecordSets")
EXTERNAL = _section("Using External Vocabularies")
CONTEXT = _section("Appendix 1 JSON-LD context")
