"""Descriptions brought to a newer version: they say what they said, in the recommended way."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import good_description as good
import plain_model
import pytest
import rdflib
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from respelling import Respelling

from holdfast.data.croissant.document.reading import read_metadata
from holdfast.data.croissant.document.vocabulary import CONTEXTS
from holdfast.data.croissant.rules.checking import validate
from holdfast.data.croissant.versions.migration import Migrated, migrate
from holdfast.errors import HoldfastError

# rdflib's JSON-LD reader uses what rdflib deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")

SUITE = Path(__file__).resolve().parents[4] / "shared" / "data" / "croissant" / "datasets"
FILES = sorted(SUITE.glob("*/*/*.json"))
OLD_FILES = [file for file in FILES if file.parts[-3] == "0.8"]
NEWER = {
    file: newer for file in OLD_FILES if (newer := SUITE / "1.0" / Path(*file.parts[-2:])).is_file()
}


def name_of(file: Path) -> str:
    """For the test's name."""
    return "/".join(file.parts[-3:]).removesuffix("/metadata.json")


def errors(path: Path) -> set[tuple[str, str]]:
    """Codes and messages of what is wrong."""
    return {(one.code, one.message) for one in validate(path).problems if one.severity == "error"}


def put(folder: Path, document: Any, name: str = "metadata.json") -> Path:
    """Write a description."""
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def moved(document: Any, folder: Path) -> Migrated:
    """A description that is not a file yet, migrated."""
    return migrate(put(folder, document))


@pytest.mark.quick(24)
@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_the_suite_says_what_it_said(file: Path, tmp_path: Path) -> None:
    done = migrate(file)
    assert done.lost == ()
    path = done.write(tmp_path / "metadata.json")
    assert errors(path) <= errors(file)
    built = read_metadata(path)
    assert built.version == "1.1"
    assert plain_model.said(built) == plain_model.said(read_metadata(file)) | (
        {"cite_as": done.metadata["citeAs"]} if "citeAs" in done.metadata else {}
    )
    again = migrate(path)
    assert again.metadata == done.metadata
    assert not again.is_changed


def triples(path: Path) -> Counter[tuple[str, str, str]]:
    """The graph that JSON-LD makes of a file; a blank node is named by what is said of it."""
    # Only the namespace: no address of the suite is at schema.org.
    text = path.read_text(encoding="utf-8").replace("https://schema.org/", "http://schema.org/")
    graph = rdflib.Graph().parse(data=text, format="json-ld", base="http://base.invalid/")

    @cache
    def name(node: rdflib.term.Node) -> str:
        if not isinstance(node, rdflib.BNode):
            return node.n3()  # type: ignore[attr-defined]
        said = sorted((str(term), name(value)) for term, value in graph.predicate_objects(node))
        return hashlib.sha256(repr(said).encode()).hexdigest()

    return Counter((name(one), str(term), name(value)) for one, term, value in graph)


@pytest.mark.parametrize("file", [f for f in FILES if f.parts[-3] == "1.1"], ids=name_of)
def test_1_1_stays_the_same_graph(file: Path, tmp_path: Path) -> None:
    # The contexts of these files leave some of Croissant's terms to schema.org: evened out before.
    plain = json.loads(file.read_text(encoding="utf-8"))
    missing = set(CONTEXTS["1.1"]) - set(plain["@context"])
    plain["@context"] |= {term: CONTEXTS["1.1"][term] for term in missing}
    before = triples(put(tmp_path, plain, "before.json"))
    assert len(before) > 10
    assert triples(migrate(file).write(tmp_path / "metadata.json")) == before


# What upstream itself changed when it wrote its 1.0 files, apart from what every migration changes: our
# migrations of its 0.8 files differ from them by this and nothing else.
GPS = "recordSet[images].field[images/gps_coordinates].subField"
PASS = ["metadata", *(f"pass{number}" for number in range(10))]
EDITED_UPSTREAM = {
    "bigcode-the-stack": {
        *(f"rai:{name}" for name in (
            "dataBiases", "dataCollection", "dataCollectionRawData", "dataCollectionType",
            "dataLimitations", "dataPreprocessingProtocol", "dataSocialImpact", "dataUseCases",
            "personalSensitiveInformation",
        )),
        "creator",
        "keywords",
        "sameAs",
        "recordSet[default].field[default/language].source",  # a column, no more the name of the folder
    },
    "enum": {"rai:dataBiases", "rai:dataCollection"},
    "fashion-mnist": {"citeAs"},  # other white space
    "file_object_in_zip": {"distribution[zip_with_csv].sha256"},
    "huggingface-mnist": {
        "citeAs",  # other white space
        "url",
        "distribution[repo].contentUrl",
        "recordSet[mnist_splits]",
        "recordSet[default].field[default/split]",
    },
    # Upstream gave sub-fields ids without the field that holds them.
    "pass": {
        *(f"{GPS}[images/{name}]" for name in ("latitude", "longitude")),
        *(f"{GPS}[images/gps_coordinates/{name}]" for name in ("latitude", "longitude")),
    },
    "pass-mini": {
        *(f"distribution[{name}].sha256" for name in PASS[:3]),
        *(f"{GPS}[images/{name}]" for name in ("latitude", "longitude")),
        *(f"{GPS}[images/gps_coordinates/{name}]" for name in ("latitude", "longitude")),
    },
    "simple-parquet": {"distribution[dataframe].sha256"},
    "titanic": {f"distribution[{name}].sha256" for name in ("genders.csv", "embarkation_ports.csv")},
    "world-happiness": {f"distribution[archive.zip].{name}" for name in ("sha256", "md5", "contentUrl")},
}  # fmt: skip


def flat(value: Any, at: str = "") -> dict[str, Any]:
    """Path -> value; lists of parts by their ids. What every upstream file does otherwise is evened out."""
    found: dict[str, Any] = {}
    for key, part in value.items():
        path = f"{at}.{key}" if at else key
        if key == "@context" or (key == "name" and at):  # upstream's fields are named by their ids
            continue
        if key == "key":  # upstream left some short
            part = [
                one["@id"].rpartition("/")[2]
                for one in (part if isinstance(part, list) else [part])
            ]
        if key == "repeated" and part is False:
            continue
        if (
            isinstance(part, list)
            and part
            and all(isinstance(one, dict) and "@id" in one for one in part)
        ):
            for one in part:
                here = f"{path}[{one['@id']}]"
                found |= {here: True} | flat(one, here)
        elif isinstance(part, dict) and "@id" in part and len(part) > 1:
            found |= flat(part, path)
        else:
            found[path] = part
    return found


@pytest.mark.parametrize("file", NEWER, ids=name_of)
def test_0_8_becomes_what_upstream_wrote(file: Path) -> None:
    ours = flat(migrate(file).metadata)
    theirs = flat(migrate(NEWER[file]).metadata)  # they wrote 1.0
    different = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
    name = file.parts[-2] if file.stem == "metadata" else file.stem
    expected = EDITED_UPSTREAM.get(name, set())
    below = {
        path
        for path in different
        if any(path.startswith((f"{one}.", f"{one}[")) for one in expected)
    }
    assert different - below == expected


@pytest.mark.parametrize("file", FILES[::9], ids=name_of)
@settings(
    max_examples=3,
    phases=[Phase.generate],  # to make such a description smaller takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_spelling_migrates_alike(
    file: Path, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spelt")
    respelt = Respelling(data.draw, json.loads(file.read_text(encoding="utf-8"))).document()
    done = moved(respelt, folder)
    path = done.write(folder / "new.json")
    agents = dict.fromkeys(
        ("creators", "publishers", "licenses")
    )  # plain JSON, lists of one and all
    plain = migrate(file).write(folder / "plain.json")
    before, after = (plain_model.said(read_metadata(one)) | agents for one in (plain, path))
    assert before == after
    again = migrate(path)
    assert again.metadata == done.metadata
    assert not again.is_changed


def test_a_good_description_is_left_alone(tmp_path: Path) -> None:
    document = copy.deepcopy(good.GOOD)
    done = moved(document, tmp_path)
    assert {**done.metadata, "@context": 0, "creator": 0, "publisher": 0, "usageInfo": 0} == {
        **document, "@context": 0, "creator": 0, "publisher": 0, "usageInfo": 0,
    }  # fmt: skip
    assert done.metadata["creator"] == {"@type": "sc:Person", "name": "A. Nonymous"}
    assert done.metadata["usageInfo"]["@type"] == ["sc:CreativeWork", "odrl:Offer"]
    context = done.metadata["@context"]
    https = {"@vocab": "https://schema.org/", "sc": "https://schema.org/"}
    assert {term: context[term] for term in CONTEXTS["1.1"]} == CONTEXTS["1.1"] | https
    assert {"prov", "odrl", "duo", "wd"} <= context.keys()
    assert {one.at for one in done.changes} <= {
        "/@context",
        "/creator/@type",
        "/publisher/@type",
        "/usageInfo/@type",
    }


EDITS: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = [
    # base edits of OLD, and what stands at places of the result
    ("ids from names", {}, [
        ("/distribution/0/@id", "dogs.csv"),
        ("/recordSet/0/@id", "dogs"),
        ("/recordSet/0/field/0/@id", "dogs/id"),
        ("/recordSet/0/field/0/name", "id"),
        ("/recordSet/0/field/0/source", {"fileObject": {"@id": "dogs.csv"}, "extract": {"column": "id"}}),
        ("/distribution/0/@type", "cr:FileObject"),
        ("/conformsTo", "http://mlcommons.org/croissant/1.1"),
        ("/citeAs", "Dogs, 1999."),
        ("/citation", None),
    ]),
    ("md5", {"/distribution/0/sha256": "0B033707ea49365a5ffdd14615825511"}, [
        ("/distribution/0/md5", "0B033707ea49365a5ffdd14615825511"),
        ("/distribution/0/sha256", None),
    ]),
    ("two sums that differ", {
        "/distribution/0/sha256": "0b033707ea49365a5ffdd14615825511",
        "/distribution/0/md5": "1b033707ea49365a5ffdd14615825511",
    }, [
        ("/distribution/0/sha256", "0b033707ea49365a5ffdd14615825511"),
        ("/distribution/0/md5", "1b033707ea49365a5ffdd14615825511"),
    ]),
    ("enumeration", {"/recordSet/0/isEnumeration": True, "/@context/isEnumeration": "ml:isEnumeration"}, [
        ("/recordSet/0/dataType", "sc:Enumeration"),
        ("/recordSet/0/isEnumeration", None),
    ]),
    ("no enumeration", {"/recordSet/0/ml:isEnumeration": False}, [
        ("/recordSet/0/dataType", None),
        ("/recordSet/0/isEnumeration", None),
    ]),
    ("keys", {"/recordSet/0/key": ["id", "name"]}, [
        ("/recordSet/0/key", [{"@id": "dogs/id"}, {"@id": "dogs/name"}]),
    ]),
    ("repeated", {"/recordSet/0/field/0/ml:repeated": True, "/recordSet/0/field/1/ml:repeated": False}, [
        ("/recordSet/0/field/0/isArray", True),
        ("/recordSet/0/field/0/arrayShape", "-1"),
        ("/recordSet/0/field/0/repeated", None),
        ("/recordSet/0/field/1/isArray", None),
        ("/recordSet/0/field/1/repeated", None),
    ]),
    ("inline data", {"/recordSet/0/ml:data": [{"id": 1, "name": "Rex", "age": 3}]}, [
        ("/recordSet/0/data", [{"dogs/id": 1, "dogs/name": "Rex", "age": 3}]),
    ]),
    ("references", {"/recordSet/0/field/0/ml:references": {"field": "dogs/name"}}, [
        ("/recordSet/0/field/0/references", {"field": {"@id": "dogs/name"}}),
    ]),
    ("old names of statements", {"/ml:dataBiases": "Many."}, [("/rai:dataBiases", "Many.")]),
    ("foreign terms", {
        "/@context/ex": "http://example.org/ns#",
        "/@context/maker": {"@id": "http://example.org/ns#maker", "@type": "@id"},
        "/ex:colour": {"ex:name": "brown", "@type": "ex:Colour"},
        "/maker": "http://example.org/me",
        "/http:~1~1other.org~1x": 5,
        "/undeclared": "kept",
    }, [
        ("/@context/ex", "http://example.org/ns#"),
        ("/@context/maker", {"@id": "http://example.org/ns#maker", "@type": "@id"}),
        ("/ex:colour", {"ex:name": "brown", "@type": "ex:Colour"}),
        ("/maker", "http://example.org/me"),
        ("/http:~1~1other.org~1x", 5),
        ("/undeclared", "kept"),
    ]),
    ("a prefix that data use", {
        "/@context/wd": "https://www.wikidata.org/wiki/",
        "/recordSet/0/ml:data": [{"id": "wd:Q1"}],
    }, [("/@context/wd", "https://www.wikidata.org/wiki/"), ("/@context/ml", None)]),
    ("a name that the context takes", {
        "/@context/value": "http://example.org/ns#value",
        "/value": 7,
    }, [("/http:~1~1example.org~1ns#value", 7), ("/value", None), ("/@context/value", "cr:value")]),
    ("names that the recommended context lacks", {
        "/@context/replace": "ml:replace",
        "/recordSet/0/field/0/source/ml:transform": {"replace": "a/b", "ml:delimiter": ","},
    }, [
        ("/@context/replace", "cr:replace"),
        ("/@context/ml", None),
        ("/recordSet/0/field/0/source/transform", {"replace": "a/b", "separator": ","}),
    ]),
    ("names in languages", {
        "/@context/description": {"@id": "sc:description", "@container": "@language"},
        "/description": {"en": "Dogs.", "fr": "Chiens."},
    }, [
        ("/@context/description", {"@id": "sc:description", "@container": "@language"}),
        ("/description", {"en": "Dogs.", "fr": "Chiens."}),
    ]),
    ("language", {"/@context/@language": "fr"}, [("/@context/@language", "fr")]),
    ("no language", {"/@context/@language": good.DROP}, [("/@context/@language", None)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "places"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS]
)
def test_old_terms(edits: dict[str, Any], places: list[tuple[str, Any]], tmp_path: Path) -> None:
    document = good.edited(edits, good.OLD)
    done = moved(document, tmp_path)
    for pointer, expected in places:
        node: Any = done.metadata
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            node = node[int(step)] if isinstance(node, list) else node.get(step)
        assert node == expected, pointer
    assert done.is_changed
    again = migrate(done.write(tmp_path / "again.json"))
    assert again.metadata == done.metadata
    assert not again.is_changed


NEWER_EDITS: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = [
    ("a source that calls a file a field", {
        "/recordSet/0/field/0/source": {"field": {"@id": "users.csv"}, "extract": {"column": "id"}},
    }, [(
        "/recordSet/0/field/0/source",
        {"fileObject": {"@id": "users.csv"}, "extract": {"column": "id"}},
    )]),
    ("a source that calls a set a file", {
        "/recordSet/2/field/0/source/fileSet": good.DROP,
        "/recordSet/2/field/0/source/fileObject": {"@id": "pictures"},
    }, [(
        "/recordSet/2/field/0/source",
        {"extract": {"fileProperty": "filename"}, "fileSet": {"@id": "pictures"}},
    )]),
    ("a source that contradicts itself", {
        "/recordSet/0/field/0/source": {
            "field": {"@id": "users/born"}, "fileObject": "users.csv", "extract": {"column": "id"},
        },
    }, [(
        "/recordSet/0/field/0/source",
        {"field": {"@id": "users/born"}, "fileObject": {"@id": "users.csv"}, "extract": {"column": "id"}},
    )]),
    ("short keys", {"/recordSet/0/key": {"@id": "id"}}, [("/recordSet/0/key", {"@id": "users/id"})]),
    ("short names in data", {"/recordSet/3/data": [{"name": "train", "url": "x"}]}, [
        ("/recordSet/3/data", [{"splits/name": "train", "splits/url": "x"}]),
    ]),
    ("references as texts", {
        "/distribution/3/containedIn": "pictures.zip",
        "/recordSet/0/field/0/source/fileObject": "users.csv",
    }, [
        ("/distribution/3/containedIn", {"@id": "pictures.zip"}),
        ("/recordSet/0/field/0/source/fileObject", {"@id": "users.csv"}),
    ]),
    ("parent field", {
        "/recordSet/0/field/3/parentField": {
            "references": {"field": {"@id": "users/id"}}, "source": {"field": {"@id": "ratings/user"}},
        },
    }, [("/recordSet/0/field/3/parentField", {
        "references": {"field": {"@id": "users/id"}}, "source": {"field": {"@id": "ratings/user"}},
    })]),
    ("a shape of its own", {
        "/recordSet/0/field/2/isArray": good.DROP, "/recordSet/0/field/2/repeated": True,
        "/recordSet/0/field/2/arrayShape": "3",
    }, [("/recordSet/0/field/2/isArray", True), ("/recordSet/0/field/2/arrayShape", "3")]),
    ("a citation of something else", {"/citation": "Cats, 1999."}, [
        ("/citation", "Cats, 1999."), ("/citeAs", "@misc{cats}"),
    ]),
    ("other standards", {
        "/conformsTo": ["http://mlcommons.org/croissant/RAI/1.0", "http://mlcommons.org/croissant/1.0"],
    }, [("/conformsTo", ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"])]),
    ("manifests", {"/distribution/3/containedIn": {
        "@type": "cr:DataSource", "fileObject": {"@id": "pictures.zip"},
        "transform": {"unArchive": True, "readLines": True},
    }}, [("/distribution/3/containedIn", {
        "@type": "cr:DataSource", "fileObject": {"@id": "pictures.zip"},
        "transform": {"unArchive": True, "readLines": True},
    })]),
    ("terms that the context lacks", {"/recordSet/1/field/4/source/transform/0/replace": "cat/dog"}, [
        ("/recordSet/1/field/4/source/transform/0/replace", "cat/dog"), ("/@context/replace", "cr:replace"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "places"), [case[1:] for case in NEWER_EDITS], ids=[case[0] for case in NEWER_EDITS]
)
def test_what_newer_files_say_wrongly(
    edits: dict[str, Any], places: list[tuple[str, Any]], tmp_path: Path
) -> None:
    done = moved(good.edited(edits), tmp_path)
    assert done.lost == ()
    for pointer, expected in places:
        node: Any = done.metadata
        for step in pointer.split("/")[1:]:
            node = node[int(step)] if isinstance(node, list) else node.get(step)
        assert node == expected, pointer
    assert not migrate(done.write(tmp_path / "again.json")).is_changed


def test_expanded_json_ld_is_written_plainly(tmp_path: Path) -> None:
    schema, cr = "http://schema.org/", "http://mlcommons.org/croissant/"
    expanded = [
        {
            "@type": [f"{schema}Dataset"],
            f"{schema}name": [{"@value": "N"}],
            "http://purl.org/dc/terms/conformsTo": [{"@id": f"{cr}1.0"}],
            f"{schema}distribution": [
                {
                    "@id": "f",
                    "@type": [f"{cr}FileObject"],
                    f"{schema}contentUrl": [{"@value": "a.csv"}],
                }
            ],
        }
    ]
    done = moved(expanded, tmp_path)
    assert {key: value for key, value in done.metadata.items() if key != "@context"} == {
        "@type": "sc:Dataset",
        "name": "N",
        "conformsTo": f"{cr}1.1",
        "distribution": [{"@id": "f", "@type": "cr:FileObject", "contentUrl": "a.csv"}],
    }


def test_parts_beside_the_dataset_are_put_into_it(tmp_path: Path) -> None:
    graph = {
        "@context": good.CONTEXT,
        "@graph": [
            {"@type": "sc:Dataset", "name": "N", "distribution": {"@id": "f"}},
            {"@type": "cr:FileObject", "@id": "f", "contentUrl": "a.csv"},
            {"@type": "sc:Person", "@id": "me", "name": "Me"},
        ],
    }
    done = moved(graph, tmp_path)
    assert done.metadata["distribution"] == {
        "@type": "cr:FileObject",
        "@id": "f",
        "contentUrl": "a.csv",
    }
    assert [one.at for one in done.lost] == ["/@graph/2"]


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    path = put(tmp_path, good.GOOD)
    done = migrate(path)
    with pytest.raises(HoldfastError, match="exists"):
        done.write(path)
    assert json.loads(path.read_text(encoding="utf-8")) == good.GOOD
    done.write(path, overwrite=True)
    assert json.loads(path.read_text(encoding="utf-8")) == done.metadata


def test_the_report(tmp_path: Path) -> None:
    done = moved(good.OLD, tmp_path)
    assert done.headline == f"From 0.8 to 1.1: {len(done.changes)} changes."
    assert sum(done.sections()[0].tables[0].data["times"].to_pylist()) == len(done.changes)
    assert json.loads(json.dumps(done.to_dict()))["changes"][0].keys() == {"at", "what", "why"}
    again = migrate(done.write(tmp_path / "new.json"))
    assert not again.is_changed


@pytest.mark.parametrize(
    "edits",
    [
        {"/recordSet/3/data": [{"name": "train", "url": "x"}]},
        {"/recordSet/0/key": {"@id": "id"}},
        {"/recordSet/0/isEnumeration": False},
    ],
)
def test_what_is_written_otherwise_is_told(edits: dict[str, Any], tmp_path: Path) -> None:
    """Nothing but what the edit did stands in the changes of a description that is good already."""
    good_one = moved(good.GOOD, tmp_path).write(tmp_path / "good.json")
    settled = json.loads(good_one.read_text(encoding="utf-8"))
    assert not migrate(good_one).is_changed
    assert [one.at for one in moved(good.edited(edits, settled), tmp_path).changes] == [*edits]
