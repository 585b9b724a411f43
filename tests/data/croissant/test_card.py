"""The card: one page that says what a dataset is; nothing in a description can break it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import good_description as good
import pytest

from holdfast.data.croissant.cards.card_page import card, card_page
from holdfast.data.croissant.document.reading import read_metadata
from holdfast.errors import InputError
from holdfast.report import render

SHOWN = [
    "1.0/titanic/metadata.json",
    "1.1/huggingface-pollen-robotics-apple-storage/metadata.json",
    "1.0/bigcode-the-stack/metadata.json",
    "1.1/image_test/metadata.json",
    "1.0/huggingface-lmms-eval-lite/metadata.json",
    "0.8/recipes/minimal.json",
]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'\"&"


class Tags(HTMLParser):
    """Elements, attributes that lead somewhere, and text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.events: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag
        for name, value in attrs:
            if name in ("href", "src", "action", "xlink:href", "data", "srcset"):
                self.links.append(value or "")
            if name.startswith("on"):
                self.events.append(name)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def put(folder: Path, document: Any) -> Path:
    """Write a description."""
    path = folder / "metadata.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHOWN)
def test_a_card_stands_alone(name: str, shared_data: Path, tmp_path: Path) -> None:
    suite = shared_data / "croissant" / "datasets"
    made = card(suite / name, tmp_path / "card.html")
    html = made.out.read_text(encoding="utf-8")
    assert made.bytes == len(html.encode()) < 3_000_000
    tags = Tags(html)
    assert all(link.startswith(("#", "data:")) for link in tags.links)
    assert tags.events == []
    assert "default-src &#39;none&#39;" in html
    for question in (
        "What is in it?", "What does each record look like?", "Which splits?",
        "Is the description valid?", "What we could not tell",
    ):  # fmt: skip
        assert question in tags.text
    metadata = read_metadata(suite / name)
    assert str(metadata.name) in tags.text
    for records in metadata.record_sets:
        for part in records.fields:
            assert part.short in tags.text
    assert json.loads(json.dumps(made.to_dict()))["title"] == metadata.name


def test_what_the_findings_say(tmp_path: Path) -> None:
    page = card_page(put(tmp_path, good.GOOD))
    said = [f"{one.lead} {one.text}".strip() for one in page.findings]
    assert said == [
        "5 record sets with 20 fields, from 3 files and 1 set of files, 353.2 kB.",
        "License: https://spdx.org/licenses/CC-BY-4.0.html.",
        "Responsible-AI statements: 2 of 20 are made; 18 questions open.",
        "Valid: 0 errors, 0 warnings, 0 notes by the rules of the standard.",
    ]


def test_nothing_hostile_comes_alive(tmp_path: Path) -> None:
    def spoilt(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            return {
                name: part if name == "@context" else spoilt(part, name)
                for name, part in node.items()
            }
        if isinstance(node, list):
            return [spoilt(part, key) for part in node]
        keep = key in ("@type", "@id", "dataType", "conformsTo", "fileProperty", "encodingFormat")
        return node if keep or not isinstance(node, str) else f"{node} {HOSTILE}"

    document = spoilt(good.GOOD)
    document["recordSet"][0]["field"][0]["@id"] += HOSTILE
    html = render(card_page(put(tmp_path, document)))
    tags = Tags(html)
    plain = Tags(render(card_page(put(tmp_path, good.GOOD))))
    assert tags.tags.count("script") == plain.tags.count("script")
    assert "img" not in tags.tags
    assert tags.events == []
    assert "alert(1)" in tags.text  # shown as it is written
    assert "{{7*7}}" in tags.text
    assert "<script>alert" not in html
    assert "<img src=x" not in html


def test_minimal_and_empty_descriptions(tmp_path: Path) -> None:
    for document in (
        {"@type": "sc:Dataset"},
        {"name": "x", "recordSet": []},
        {},
        {"recordSet": [{"field": 5}]},
    ):
        page = card_page(put(tmp_path, document))
        assert render(page)
        assert page.sections[1].tables == []
    with pytest.raises(InputError):
        card_page(put(tmp_path, 5))


def test_an_unreadable_name_has_a_title(tmp_path: Path) -> None:
    assert card_page(put(tmp_path, {"@type": "sc:Dataset"})).title == "A dataset without a name"


def test_a_card_of_a_broken_description_says_so(tmp_path: Path) -> None:
    broken = good.edited({"/recordSet/0/field/0/source/fileObject/@id": "nowhere.csv"})
    leads = {one.lead for one in card_page(put(tmp_path, broken)).findings}
    assert "Invalid:" in leads
    unknown = {one.text for one in card_page(put(tmp_path, good.GOOD)).unknowns}
    assert any(text.startswith("Whether the data are as described") for text in unknown)


def test_splits_are_told_by_their_type_and_by_references(tmp_path: Path) -> None:
    (section,) = (one for one in card_page(put(tmp_path, good.GOOD)).sections if one.id == "splits")
    assert section.tables[0].data["field"].to_pylist() == [
        "images/split",
        "splits/name",
        "splits/url",
    ]


def test_examples_are_shown(tmp_path: Path) -> None:
    html = render(card_page(put(tmp_path, good.GOOD)))
    cells = re.findall(r"<td>([^<]*)</td>", html)
    assert "train; test" in cells
    assert "Manx; Rex" in cells
