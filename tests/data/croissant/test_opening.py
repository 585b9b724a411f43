"""A description from a file, a folder, a URL, stdin or a dict: everywhere the same."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_server import DataServer
from described_files import refused

from command_line import invoke
from holdfast.data import croissant
from holdfast.data.cli import app

CSV = b"a,b\n1,x\n2,y\n"
PATH = "/api/datasets/people/croissant"


def description(url: str = "people.csv", **more: Any) -> dict[str, Any]:
    return {
        "@context": {
            "@vocab": "https://schema.org/",
            "sc": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "dct": "http://purl.org/dc/terms/",
            "conformsTo": "dct:conformsTo",
            "recordSet": "cr:recordSet",
            "field": "cr:field",
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            "source": "cr:source",
            "fileObject": "cr:fileObject",
            "extract": "cr:extract",
            "column": "cr:column",
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "people",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "table",
                "contentUrl": url,
                "encodingFormat": "text/csv",
                **more,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "people",
                "field": {
                    "@type": "cr:Field",
                    "@id": "people/a",
                    "dataType": "sc:Integer",
                    "source": {"fileObject": {"@id": "table"}, "extract": {"column": "a"}},
                },
            }
        ],
    }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DataServer]:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "user-cache"))
    monkeypatch.chdir(tmp_path)
    with DataServer() as running:
        running.add(PATH, json.dumps(description(), indent=1).encode(), etag='"1"')
        running.add("/api/datasets/people/people.csv", CSV)
        yield running


def records(source: Any, **how: Any) -> list[Any]:
    with croissant.Dataset(source, **how) as dataset:
        return [row["people/a"] for row in dataset.records("people")]


def test_a_url_without_a_suffix(server: DataServer) -> None:
    assert records(server.url + PATH) == [1, 2]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("people.csv", "/api/datasets/people/people.csv"),
        ("./sub/my file.csv", "/api/datasets/people/sub/my%20file.csv"),
        ("sub/my%20file.csv", "/api/datasets/people/sub/my%20file.csv"),
        ("../people.csv", "/api/datasets/people.csv"),
        ("/data/people.csv", "/data/people.csv"),
        ("what?#1.csv", "/api/datasets/people/what%3F%231.csv"),
    ],
)
def test_relative_paths_start_at_the_url_after_redirects(
    server: DataServer, url: str, path: str
) -> None:
    server.add("/short", redirect=f"{server.url}{PATH}?download=1")
    server.add(PATH + "?download=1", json.dumps(description(url)).encode())
    server.files.pop("/api/datasets/people/people.csv")
    server.add(path, CSV)
    assert records(f"{server.url}/short") == [1, 2]


def test_offline_and_unchanged(server: DataServer) -> None:
    url = server.url + PATH
    assert records(url) == records(url) == records(url, offline=True) == [1, 2]
    assert [status for _, status in server.files[PATH].asked] == [206, 304]
    with refused("offline"):
        croissant.Dataset(f"{server.url}/other", offline=True)


def test_dicts_and_pickles(server: DataServer, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(CSV)
    assert records(description()) == [1, 2]  # beside the working folder
    with croissant.Dataset(description()) as dataset:
        again = pickle.loads(pickle.dumps(dataset))
        assert [row["people/a"] for row in again.records()] == [1, 2]
    assert croissant.validate(description()).path == "dict"
    with refused("invalid-value"):
        croissant.validate({"name": object()})
    with refused("no-data"):
        croissant.open_description(f"{server.url}/api/datasets/people/people.csv")


def test_a_page_with_the_description(server: DataServer) -> None:
    page = f"<html>\n<script type='application/ld+json'>{json.dumps(description())}</script></html>"
    server.add("/api/datasets/people/page", page.encode(), content_type="text/html")
    assert records(f"{server.url}/api/datasets/people/page") == [1, 2]


def test_what_a_url_cannot_have(server: DataServer, tmp_path: Path) -> None:
    wanted = description()
    wanted["distribution"] = [
        {"@type": "cr:FileSet", "@id": "table", "includes": "*.csv", "encodingFormat": "text/csv"}
    ]
    server.add("/set", json.dumps(wanted).encode())
    (tmp_path / "people.csv").write_bytes(CSV)
    for make in (lambda: records(f"{server.url}/set"), lambda: records(f"{server.url}/escape")):
        server.add("/escape", json.dumps(description("file:///etc/passwd")).encode())
        with refused("unsupported"):
            make()
    with refused("unsupported"):
        croissant.download(server.url + PATH, lock=True)
    with refused("not-found"):
        croissant.validate(f"{server.url}/nothing")
    with refused("conflict"):
        croissant.diff("-", "-")


COMMANDS = {
    "validate": ["validate", "{}"],
    "validate data": ["validate", "{}", "--data", "full"],
    "load": ["load", "{}", "--record-set", "people"],
    "sql": ["sql", "{}", "SELECT sum(a) AS s FROM people"],
    "download": ["download", "{}"],
    "migrate": ["migrate", "{}"],
    "diff old": ["diff", "{}", "file.json"],
    "diff new": ["diff", "file.json", "{}"],
    "rai": ["rai", "{}"],
    "card": ["card", "{}", "--html", "card.html"],
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command(server: DataServer, name: str) -> None:
    """The same answer for a file, a URL and stdin, but for how it names the description."""
    text = json.dumps(description(f"{server.url}/api/datasets/people/people.csv"), indent=1)
    url = f"{server.url}/data"
    server.add("/data", text.encode())
    Path("file.json").write_text(text)
    answers = []
    for source, shown in (("file.json", "file.json"), (url, url), ("-", "stdin")):
        arguments = [part.format(source) for part in COMMANDS[name]]
        done = invoke(app, ["croissant", *arguments, "--json", "--timeout", "20"], stdin=text)
        assert done.exit_code == name.startswith("validate"), done.exception
        answer = [json.loads(line) for line in done.stdout.splitlines()] if name in (
            "load", "sql"
        ) else json.loads(done.stdout.replace(shown, "DESCRIPTION"))  # fmt: skip
        if isinstance(answer, dict):
            answer.pop("size_bytes", None)
            if name == "download":
                answer = [file["sha256"] for file in answer["files"]]
            if name.startswith("diff"):
                answer.pop("old"), answer.pop("new")
        answers.append(answer)
    assert answers[0] == answers[1] == answers[2] != []


def test_positions_and_sarif_of_a_url(server: DataServer) -> None:
    url = f"{server.url}/broken"
    server.add("/broken", json.dumps(description() | {"nmae": "x"}, indent=1).encode())
    found = croissant.validate(url)
    (wrong,) = [one for one in found.problems if one.pointer == "/nmae"]
    assert f"{url}:{wrong.line}:2:" in found.text()
    results = found.sarif()["runs"][0]["results"]
    places = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert places == {url}
