"""The HTML of a page: complete, safe, small, the same every time, and silent on the network."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import stat
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from sample_page import page as sample_page

from holdfast.errors import HoldfastError
from holdfast.report import (
    ColumnFormat,
    Figure,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    render,
    write,
)

HOSTILE = "</script><!--<img src=x onerror=alert(1)>\"'&{{7*7}}\u2028=cmd()"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Collects elements with their text and fails on tags that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def sample() -> str:
    return render(sample_page())


@pytest.fixture(scope="module")
def parsed(sample: str) -> Reader:
    return read(sample)


def bars(values: list[dict[str, object]]) -> dict[str, object]:
    encoding = {
        "x": {"field": "n", "type": "quantitative"},
        "y": {"field": "name", "type": "nominal"},
        "tooltip": {"field": "name", "type": "nominal"},
    }
    return {"data": {"values": values}, "mark": "bar", "encoding": encoding}


def section(**changes: object) -> Section:
    made = Section("one", "Why?", "Because.")
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_the_sample_reads_in_the_order_of_a_busy_person(sample: str) -> None:
    places = [
        sample.index(mark)
        for mark in (
            "<h1>Fleet report",
            "sacct_D.txt",
            "1,204 GPU-hours lost since",
            "MTTF at 1,024 GPUs",
            'id="status-heading"',
            'id="lemons-table-1"',
            "What we could not tell <a",
        )
    ]
    assert places == sorted(places)


def test_nothing_is_loaded(sample: str, parsed: Reader) -> None:
    links = parsed.attributes("href")
    assert links
    assert all(link.startswith(("#", "data:text/csv;", "data:,")) for link in links)
    for name in ("src", "srcset", "action", "formaction", "background", "poster", "xlink:href"):
        assert parsed.attributes(name) == []
    style = parsed.texts["style"][0]
    assert "@import" not in style
    assert "url(" not in style
    assert "http-equiv" in sample.split("<style>")[0]
    assert not {tag for tag, _ in parsed.elements} & {"iframe", "object", "embed", "base", "form"}
    for name in parsed.attributes("fill") + parsed.attributes("clip-path"):
        assert "http" not in name


def test_the_policy_admits_exactly_the_inline_style_and_scripts(parsed: Reader) -> None:
    policy = next(
        attrs["content"]
        for tag, attrs in parsed.elements
        if tag == "meta" and "http-equiv" in attrs
    )
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    scripts = [
        text
        for text, (_, attrs) in zip(
            parsed.texts["script"],
            [element for element in parsed.elements if element[0] == "script"],
            strict=True,
        )
        if attrs.get("type") != "application/json"
    ]
    assert len(scripts) == 2
    for text in (*scripts, parsed.texts["style"][0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert parsed.attributes("style") == []  # an attribute would be refused by the policy
    assert [name for _, attrs in parsed.elements for name in attrs if name.startswith("on")] == []


def test_small_and_deterministic(sample: str) -> None:
    assert len(sample.encode()) < 3_000_000
    assert render(sample_page()) == sample


def test_ids_are_unique_and_links_lead_somewhere(parsed: Reader) -> None:
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids))
    targets = {link[1:] for link in parsed.attributes("href") if link.startswith("#")}
    assert targets <= set(ids)
    assert {"lemons", "unknown", "findings"} <= targets
    for name in parsed.attributes("clip-path"):
        assert name.removeprefix("url(#").removesuffix(")") in ids


def test_every_figure_is_drawn_and_described_without_scripts(parsed: Reader) -> None:
    plots = [attrs for _, attrs in parsed.elements if attrs.get("class") == "plot"]
    assert len(plots) == 8
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in plots)
    assert "Failures per 1,000 node-days" in parsed.texts["text"]


def test_times_read_in_the_zone_of_the_axis(sample: str) -> None:
    assert not re.search(r"\btimeFormat\(datum", sample)
    assert "utcFormat(datum" in sample


def test_hostile_text_is_inert() -> None:
    page = Page(
        title=HOSTILE,
        subtitle=HOSTILE,
        inputs=[(HOSTILE, HOSTILE)],
        findings=[Finding(HOSTILE, "one", HOSTILE)],
        tiles=[Tile(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, "rising", "one")],
        sections=[
            Section(
                "one",
                HOSTILE,
                HOSTILE,
                [Figure(bars([{"name": HOSTILE, "n": 1}]), HOSTILE, {HOSTILE: "user"}, [HOSTILE])],
                [
                    Table(
                        pa.table({HOSTILE: [HOSTILE], "n": [1.0]}),
                        {HOSTILE: ColumnFormat(HOSTILE, HOSTILE), "n": ColumnFormat()},
                        HOSTILE,
                    ),
                    Table(pa.table({"n": pa.array([], pa.int64())}), empty=HOSTILE),
                ],
                How(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE, [HOSTILE]),
            )
        ],
        unknowns=[Unknown(HOSTILE, HOSTILE)],
        footer=HOSTILE,
    )
    html = render(page)
    parsed = read(html)
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert len(parsed.texts["script"]) == 3
    assert "<!--" not in html
    assert "49" not in parsed.texts["h1"][0]
    assert parsed.texts["h1"][0].startswith("</script><!--<img")
    assert parsed.texts["td"][0].startswith("</script><!--<img")


def test_a_page_without_figures_carries_no_runtime() -> None:
    html = render(Page("Empty", sections=[section()]))
    assert len(html) < 40_000
    assert "No findings." in html
    assert len(read(html).texts["script"]) == 1


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (Page("x", tiles=[Tile("a", "1")] * 7), "at most 6 tiles"),
        (Page("x", findings=[Finding("a", "nowhere")]), "no section has the id 'nowhere'"),
        (Page("x", tiles=[Tile("a", "1", section_id="nowhere")]), "no section has the id"),
        (Page("x", sections=[section(), section()]), "is taken"),
        (Page("x", sections=[section(id="unknown")]), "is taken"),
        (Page("x", sections=[section(id="A b")]), "lower-case"),
        (
            Page("x", sections=[section(tables=[Table(pa.table({"n": range(20_001)}))])]),
            "20,001 rows",
        ),
        (
            Page(
                "x",
                sections=[
                    section(figures=[Figure(bars([{"name": "a", "n": n} for n in range(20_001)]))])
                ],
            ),
            "20,001 rows",
        ),
        (
            Page(
                "x", sections=[section(tables=[Table(pa.table({"n": [1]}), {"m": ColumnFormat()})])]
            ),
            "no column 'm'",
        ),
    ],
)
def test_rules_of_a_page(page: Page, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        render(page)


def test_a_plain_specification_is_a_figure_too() -> None:
    specification = {
        "data": {"values": [{"a": 1, "b": 2}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative"}},
    }
    html = render(Page("x", sections=[section(figures=[Figure(specification)])]))
    assert "<svg" in html
    assert "width" not in specification  # the caller's object stays as it was


def test_a_figure_too_large_to_draw_is_left_to_the_browser() -> None:
    axes = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
    points = [{"x": n, "y": n} for n in range(4000)]
    figure = Figure({"data": {"values": points}, "mark": "point", "encoding": axes})
    html = render(Page("x", sections=[section(figures=[figure])]))
    assert "This figure needs JavaScript" in html


def test_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    page = Page("x", sections=[section()])
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write(page, path) == path
    assert path.read_text(encoding="utf-8") == render(page)
    assert stat.S_IMODE(path.stat().st_mode) & 0o400
    with pytest.raises(HoldfastError, match="cannot be written"):
        write(page, tmp_path / "nowhere" / "report.html")
    with pytest.raises(HoldfastError, match="cannot be written"):
        write(page, tmp_path)
    with pytest.raises(ValueError, match="tiles"):
        write(Page("x", tiles=[Tile("a", "1")] * 7), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_the_runtime_is_kept_and_its_absence_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert

    from holdfast.report.parts import runtime

    # Bundling takes seconds of a processor and gives the same every time.
    monkeypatch.setattr(vl_convert, "javascript_bundle", cache(vl_convert.javascript_bundle))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runtime.cache_clear()
    bundled = runtime()
    (kept,) = (tmp_path / "holdfast").iterdir()
    assert kept.read_text(encoding="utf-8") == bundled
    assert "</script" not in bundled
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    runtime.cache_clear()
    assert runtime() == bundled
    kept.write_text(bundled[:1000])  # torn by a power cut
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runtime.cache_clear()
    assert runtime() == bundled
    runtime.cache_clear()
