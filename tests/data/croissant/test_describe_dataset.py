"""The dataset as a whole: what files beside the data say, what is left out, where it is written."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
from round_trips import described, loaded, notes, record_sets, write_csv

from holdfast.data.croissant.describing.folders import describe
from holdfast.data.croissant.describing.surroundings import as_url, recognised
from holdfast.errors import InputError

LICENCES = {
    "MIT": "MIT License\n\nCopyright (c) 2020 A. Person\n\nPermission is hereby granted, free of charge, "
    "to any person obtaining a copy\nof this software ...\n\nThe above copyright notice and this "
    "permission notice shall be included in all\ncopies or substantial portions",
    "Apache-2.0": "                           Apache License\n                     Version 2.0, "
    "January 2004\n                        http://www.apache.org/licenses/",
    "CC-BY-4.0": "Creative Commons Attribution 4.0 International Public License",
    "CC-BY-NC-SA-4.0": "Creative Commons Attribution-NonCommercial-ShareAlike 4.0 International",
    "CC0-1.0": "Creative Commons Legal Code\n\nCC0 1.0 Universal",
    "BSD-3-Clause": "Redistribution and use in source and binary forms, with or without\nmodification, are "
    "permitted provided\n3. Neither the name of the copyright holder",
    "BSD-2-Clause": "Redistribution and use in source and binary forms, with or without\nmodification, are "
    "permitted provided that",
    "GPL-3.0-only": "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n",
    "AGPL-3.0-only": "GNU AFFERO GENERAL PUBLIC LICENSE\n Version 3, 19 November 2007",
    "Unlicense": "This is free and unencumbered software released into the public domain.",
}


@pytest.mark.parametrize("name", LICENCES)
def test_licences_by_their_text(name: str) -> None:
    assert recognised(LICENCES[name]) == name
    assert as_url(name.lower()) == f"https://spdx.org/licenses/{name}.html"


def test_a_licence_of_ones_own_is_none_of_the_common_ones() -> None:
    assert (
        recognised("You may use this data for research. Ask the authors about anything else.")
        is None
    )
    assert as_url("https://example.org/terms") == "https://example.org/terms"


def table(folder: Path) -> None:
    write_csv(folder / "t.csv", ["a", "b"], [["1", "x"], ["2", "y"]])


def test_nothing_is_invented(tmp_path: Path) -> None:
    table(tmp_path)
    made = described(tmp_path)
    about = set(made.metadata) - {"@context", "@type", "conformsTo", "distribution", "recordSet"}
    assert about == {"name", "description", "url", "version"}
    assert made.metadata["name"] == tmp_path.name
    for what in ("its licence", "its creators", "when it was published", "its page"):
        assert f"nothing says {what}" in notes(made, "")


def test_what_the_caller_says_comes_first(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "LICENSE").write_text(LICENCES["MIT"])
    made = described(
        tmp_path,
        name="n",
        description="d",
        license=["cc-by-4.0", "https://example.org/terms"],
        url="https://example.org",
        creators=["A. Person", {"@type": "Organization", "name": "O"}],
        date_published=datetime.date(2020, 1, 2),
        cite_as="cite",
        keywords=["k"],
        version="2.0.0",
    )
    about = ("name", "description", "url", "datePublished", "citeAs")
    assert {key: made.metadata[key] for key in about} == {
        "name": "n", "description": "d", "url": "https://example.org", "datePublished": "2020-01-02",
        "citeAs": "cite",
    }  # fmt: skip
    assert made.metadata["license"] == [
        "https://spdx.org/licenses/CC-BY-4.0.html",
        "https://example.org/terms",
    ]
    assert made.metadata["creator"] == [
        {"@type": "Person", "name": "A. Person"},
        {"@type": "Organization", "name": "O"},
    ]
    assert made.metadata["keywords"] == ["k"]
    assert made.metadata["version"] == "2.0.0"


def test_a_citation_file(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "CITATION.cff").write_text(
        "cff-version: 1.2.0\ntitle: Planets\nabstract: All of them.\ndate-released: 2021-03-04\n"
        "license: CC-BY-4.0\ndoi: 10.1/x\nkeywords: [sky]\nauthors:\n"
        "  - {given-names: Ann, family-names: Lee, orcid: 'https://orcid.org/0'}\n"
        "  - name: The Observatory\n"
    )
    made = described(tmp_path)
    got = {
        key: made.metadata[key]
        for key in ("name", "description", "datePublished", "license", "url")
    }
    assert got == {
        "name": "Planets",
        "description": "All of them.",
        "datePublished": "2021-03-04",
        "license": "https://spdx.org/licenses/CC-BY-4.0.html",
        "url": "https://doi.org/10.1/x",
    }
    assert made.metadata["creator"] == [
        {"@type": "Person", "name": "Ann Lee", "url": "https://orcid.org/0"},
        {"@type": "Organization", "name": "The Observatory"},
    ]
    assert "license is taken from CITATION.cff" in notes(made, "")


def test_the_card_of_a_host_and_a_licence(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "README.md").write_text(
        "---\npretty_name: The Planets\nlanguage:\n- en\n- de\ntags: [sky]\nlicense: other\n---\n"
        "# Planets\n\n"
        "![badge](x)\n\nAll [planets](http://x) of the sun, and what is known of them.\n\n"
        "```bibtex\n@misc{planets, title={Planets}}\n```\n"
    )
    (tmp_path / "LICENSE.txt").write_text(LICENCES["CC0-1.0"])
    made = described(tmp_path)
    got = {
        key: made.metadata[key]
        for key in ("name", "description", "inLanguage", "keywords", "citeAs", "license")
    }
    assert got == {
        "name": "The Planets",
        "description": "All planets of the sun, and what is known of them.",
        "inLanguage": ["en", "de"],
        "keywords": ["sky"],
        "citeAs": "@misc{planets, title={Planets}}",
        "license": "https://spdx.org/licenses/CC0-1.0.html",
    }


@pytest.mark.parametrize(
    "text", ["a: [", "- 1\n- 2\n", "!!python/object:os.system {}", "", "x: &a [*a]"]
)
def test_broken_citations_say_nothing(tmp_path: Path, text: str) -> None:
    table(tmp_path)
    (tmp_path / "CITATION.cff").write_text(text)
    assert "creator" not in described(tmp_path).metadata


def test_checksums_and_sizes(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "blob.bin").write_bytes(b"abc")
    made = described(tmp_path)
    blob = next(each for each in made.metadata["distribution"] if each["name"] == "blob.bin")
    assert blob["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert blob["contentSize"] == "3 B"
    assert blob["encodingFormat"] == "application/octet-stream"
    assert "described as a file only" in notes(made, "blob.bin")
    bare = describe(tmp_path, checksums=False)
    assert not any("sha256" in each for each in bare.metadata["distribution"])


def test_a_description_goes_beside_its_data(tmp_path: Path) -> None:
    table(tmp_path)
    made = describe(tmp_path)
    path = made.write()
    assert path == tmp_path / "croissant.json"
    assert json.loads(path.read_text()) == made.metadata
    assert made.to_dict()["metadata"] == made.metadata
    with pytest.raises(InputError, match="a file is there already"):
        made.write()
    assert made.write(overwrite=True) == path
    assert made.write(tmp_path / "other.json").exists()
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match="stands in the folder that its paths start from"):
        made.write(tmp_path / "elsewhere" / "x.json")
    again = describe(tmp_path)
    assert again.metadata == made.metadata
    assert "it is a description itself" in notes(again, "other.json")


def test_what_is_no_data_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    table(folder)
    table(tmp_path)
    for name in (".git/config", ".hidden.csv", "__MACOSX/t.csv", "sub/.DS_Store", "sub/Thumbs.db"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a,b\n1,2\n")
    (folder / "out.csv").symlink_to(tmp_path / "t.csv")
    (folder / "broken.csv").symlink_to(folder / "gone.csv")
    (folder / "inside.csv").symlink_to(folder / "t.csv")
    os.mkfifo(folder / "pipe.csv")
    made = described(folder)
    names = {each["name"] for each in made.metadata["distribution"]}
    assert names == {"t.csv", "inside.csv"}
    for name in ("out.csv", "broken.csv", "pipe.csv"):
        assert notes(made, name)
    assert loaded(made, "inside") == loaded(made, "t")


def test_a_name_that_json_cannot_hold(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / os.fsdecode(b"bad\xff.csv")).write_text("a,b\n1,2\n")
    made = described(tmp_path)
    assert list(record_sets(made)) == ["t"]
    assert "no UTF-8" in notes(made)
