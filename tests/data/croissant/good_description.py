"""Descriptions of versions 1.1 and 0.8 that no rule has anything to say about, and edits of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

SHA = "48a7c257f3c90b2a3e529ddd2cca8f4f1bd8e49ed244ef53927649504ac55354"
DROP = object()  # as the value of an edit: take the property out

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "duo": "http://purl.obolibrary.org/obo/DUO_",
    "wd": "http://www.wikidata.org/entity/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{
        term: f"cr:{term}"
        for term in [
            "annotation",
            "arrayShape",
            "citeAs",
            "column",
            "containedIn",
            "equivalentProperty",
            "excludes",
            "extract",
            "field",
            "fileProperty",
            "fileObject",
            "fileSet",
            "format",
            "includes",
            "isArray",
            "isLiveDataset",
            "jsonPath",
            "key",
            "md5",
            "parentField",
            "recordSet",
            "references",
            "regex",
            "readLines",
            "replace",
            "repeated",
            "samplingRate",
            "sdVersion",
            "separator",
            "source",
            "subField",
            "transform",
            "unArchive",
            "value",
        ]
    },
}


def _field(name: str, data_type: Any = "sc:Text", **more: Any) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": name,
        "description": "A field.",
        "dataType": data_type,
        **more,
    }


def _column(file: str, column: str, **more: Any) -> dict[str, Any]:
    return {"fileObject": {"@id": file}, "extract": {"column": column}, **more}


def _file(name: str, encoding: str, **more: Any) -> dict[str, Any]:
    url = f"https://example.org/{name}"
    described = {"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": url}
    return described | {"contentSize": "117743 B", "encodingFormat": encoding, "sha256": SHA} | more


def _pictures(property_: str, **more: Any) -> dict[str, Any]:
    return {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": property_}, **more}


GOOD: dict[str, Any] = {
    "@context": CONTEXT,
    "@type": "sc:Dataset",
    "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
    "name": "cats",
    "description": "Pictures of cats, who rated them, and where the cats are.",
    "url": "https://example.org/cats",
    "license": "https://spdx.org/licenses/CC-BY-4.0.html",
    "creator": {"@type": "Person", "name": "A. Nonymous"},
    "publisher": {"@type": "Organization", "name": "Cats"},
    "datePublished": "2024-05-31",
    "version": "1.2.0",
    "keywords": ["cats"],
    "citeAs": "@misc{cats}",
    "rai:dataCollection": "With a camera.",
    "rai:dataCollectionTimeframe": "2020/2022",
    "prov:wasGeneratedBy": {
        "@type": "prov:Activity",
        "prov:label": "walks",
        "prov:endedAtTime": "2022-10-01T12:00:00Z",
    },
    "usageInfo": {
        "@type": ["CreativeWork", "odrl:Offer"],
        "name": "Policy",
        "odrl:permission": {"@type": "odrl:Permission", "odrl:action": {"@id": "duo:0000006"}},
    },
    "distribution": [
        _file("users.csv", "text/csv"),
        _file("ratings.csv", "text/csv"),
        _file("pictures.zip", "application/zip"),
        {
            "@type": "cr:FileSet",
            "@id": "pictures",
            "containedIn": {"@id": "pictures.zip"},
            "encodingFormat": "image/jpeg",
            "includes": "*.jpg",
            "excludes": "old/*.jpg",
        },
    ],
    "recordSet": [
        {
            "@type": "cr:RecordSet",
            "@id": "users",
            "key": {"@id": "users/id"},
            "field": [
                _field("users/id", "sc:Integer", source=_column("users.csv", "id")),
                _field(
                    "users/born",
                    "sc:Date",
                    source=_column("users.csv", "born", format="yyyy-MM-dd"),
                ),
                _field(
                    "users/tags",
                    source=_column("users.csv", "tags", transform={"separator": "|"}),
                    isArray=True,
                    arrayShape="-1",
                ),
                _field(
                    "users/home",
                    "sc:GeoCoordinates",
                    subField=[
                        _field(
                            "users/home/latitude", "sc:Float", source=_column("users.csv", "lat")
                        ),
                        _field(
                            "users/home/longitude", "sc:Float", source=_column("users.csv", "lon")
                        ),
                    ],
                ),
            ],
        },
        {
            "@type": "cr:RecordSet",
            "@id": "ratings",
            "field": [
                _field(
                    "ratings/user",
                    "sc:Integer",
                    source=_column("ratings.csv", "user"),
                    references={"field": {"@id": "users/id"}},
                ),
                _field(
                    "ratings/stars",
                    "sc:Float",
                    source=_column("ratings.csv", "stars", format="0.#"),
                ),
                _field("ratings/born", "sc:Date", source={"field": {"@id": "users/born"}}),
                _field("ratings/scale", "sc:Integer", value=5),
                _field(
                    "ratings/note",
                    source=_column(
                        "ratings.csv",
                        "note",
                        transform=[{"replace": "cat/dog"}, {"jsonPath": "$.text"}],
                    ),
                ),
            ],
        },
        {
            "@type": "cr:RecordSet",
            "@id": "images",
            "key": {"@id": "images/name"},
            "field": [
                _field("images/name", source=_pictures("filename")),
                _field("images/content", "sc:ImageObject", source=_pictures("content")),
                _field(
                    "images/split",
                    source=_pictures("fullpath", transform={"regex": "^(train|test)/"}),
                    references={"field": {"@id": "splits/name"}},
                ),
                _field(
                    "images/box",
                    "cr:BoundingBox",
                    source=_pictures("content", format="XYXY", transform={"jsonPath": "$.box"}),
                    isArray=True,
                    arrayShape="4",
                ),
                _field(
                    "images/mask",
                    ["cr:SegmentationMask", "sc:GeoShape"],
                    source=_pictures("content", transform={"jsonPath": "$.mask"}),
                ),
            ],
        },
        {
            "@type": "cr:RecordSet",
            "@id": "splits",
            "dataType": "cr:Split",
            "key": {"@id": "splits/name"},
            "field": [_field("splits/name"), _field("splits/url", "sc:URL")],
            "data": [
                {"splits/name": "train", "splits/url": "cr:TrainingSplit"},
                {"splits/name": "test", "splits/url": "cr:TestSplit"},
            ],
        },
        {
            "@type": "cr:RecordSet",
            "@id": "breeds",
            "dataType": ["sc:Enumeration", "wd:Q4119054"],
            "key": {"@id": "breeds/name"},
            "field": [_field("breeds/name"), _field("breeds/number", "sc:Integer")],
            "data": [
                {"breeds/name": "Manx", "breeds/number": 1},
                {"breeds/name": "Rex", "breeds/number": 2},
            ],
            "examples": [{"breeds/name": "Rex", "breeds/number": 2}],
        },
    ],
}


OLD: dict[str, Any] = {
    "@context": {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "ml": "http://mlcommons.org/schema/",
        "sc": "https://schema.org/",
        "dataType": {"@id": "ml:dataType", "@type": "@vocab"},
        **{term: f"ml:{term}" for term in ("column", "extract", "field", "recordSet", "source")},
    },
    "@type": "sc:Dataset",
    "name": "dogs",
    "description": "Dogs.",
    "url": "https://example.org/dogs",
    "license": "MIT",
    "publisher": {"@type": "Organization", "name": "Dogs"},
    "keywords": "dogs",
    "citation": "Dogs, 1999.",
    "version": "1.0.0",
    "distribution": [
        {
            "@type": "sc:FileObject",
            "name": "dogs.csv",
            "contentUrl": "dogs.csv",
            "encodingFormat": "text/csv",
            "sha256": SHA,
        }
    ],
    "recordSet": [
        {
            "@type": "ml:RecordSet",
            "name": "dogs",
            "field": [
                {
                    "@type": "ml:Field",
                    "name": name,
                    "dataType": "sc:Text",
                    "source": {"distribution": "dogs.csv", "extract": {"column": name}},
                }
                for name in ("id", "name")
            ],
        }
    ],
}


def edited(edits: Mapping[str, Any], base: Any = GOOD) -> Any:
    """The description with values replaced, added or dropped at pointers; ``/-`` at the end appends."""
    document = copy.deepcopy(base)
    for pointer, value in edits.items():
        *way, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        node = document
        for step in way:
            node = node[int(step)] if isinstance(node, list) else node[step]
        if isinstance(node, list):
            if last == "-":
                node.append(value)
            elif value is DROP:
                del node[int(last)]
            else:
                node[int(last)] = value
        elif value is DROP:
            del node[last]
        else:
            node[last] = value
    return document


def written(document: Any) -> str:
    """The text of a description."""
    return json.dumps(document, indent=2, ensure_ascii=False)
