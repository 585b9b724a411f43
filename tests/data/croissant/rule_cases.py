"""For every rule: an edit of a good description that breaks it alone, and a near one that does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from good_description import DROP, GOOD, OLD, SHA

USERS, RATINGS, IMAGES, SPLITS, BREEDS = (f"/recordSet/{n}" for n in range(5))
CSV, RATED, ZIP, PICTURES = (f"/distribution/{n}" for n in range(4))
MD5 = SHA[:32]
LANGUAGES = {"@id": "sc:name", "@container": "@language"}


@dataclass(frozen=True)
class Case:
    """An edit, the rule it breaks, the pointer at which, and the twin that breaks none.

    Attributes:
        edits: pointer -> new value (`DROP` to take out).
        text: or a replacement in the text of the description, (old, new).
        base: the description that is edited.
    """

    code: str
    at: str
    edits: dict[str, Any] = field(default_factory=dict)
    twin: dict[str, Any] = field(default_factory=dict)
    text: tuple[str, str] | None = None
    twin_text: tuple[str, str] | None = None
    base: Any = field(default_factory=lambda: GOOD)

    def __str__(self) -> str:
        return f"{self.code} {self.at}"


RATINGS_OF_USERS = {
    "@type": "cr:Field",
    "@id": "users/ratings",
    "isArray": True,
    "subField": [
        {
            "@type": "cr:Field",
            "@id": "users/ratings/stars",
            "dataType": "sc:Float",
            "source": {"fileObject": {"@id": "ratings.csv"}, "extract": {"column": "stars"}},
        }
    ],
}
RATED_BY = {
    "source": {"fileObject": {"@id": "ratings.csv"}, "extract": {"column": "user"}},
    "references": {"field": {"@id": "users/id"}},
}
BORN_AGAIN = {
    "@type": "cr:Field",
    "@id": "ratings/born_again",
    "dataType": "sc:Date",
    "source": {"fileObject": {"@id": "users.csv"}, "extract": {"column": "born"}},
}
NAME = '"name": "cats",'
CASES = [
    # JSON and terms
    Case("CR001", "", text=(NAME, f"{NAME} // so"), twin_text=(NAME, '"name": "cats // so",')),
    Case("CR001", "/version", text=('"1.2.0"', "NaN"), twin_text=('"1.2.0"', '"1.2.0-NaN"')),
    Case(
        "CR002",
        "/name",
        text=(NAME, f"{NAME} {NAME}"),
        twin_text=(NAME, f'{NAME} "alternateName": "cats",'),
    ),
    Case("CR003", "", text=("{", "\ufeff{"), twin_text=("cats", "c\ufeffats")),
    Case("CR010", "", {"/@context": DROP}),
    Case(
        "CR012",
        "/recordSet/1/field/0/references",
        {"/@context/references": DROP},
        {"/@context/references": "http://mlcommons.org/croissant/references"},
    ),
    Case(
        "CR012",
        "/@context/references",
        {"/@context/references": "sc:references"},
        {"/@context/references": "cr:references"},
    ),
    Case("CR013", "/@context", {"/@context": "https://example.org/own.jsonld"}),
    Case("CR014", "/licence", {"/licence": "x"}, {"/temporalCoverage": "2020"}),
    Case("CR014", f"{USERS}/fields", {f"{USERS}/fields": 1}, {f"{USERS}/name": "x"}),
    Case(
        "CR014",
        f"{RATINGS}/field/0/refrences",
        {
            f"{RATINGS}/field/0/refrences": {"field": {"@id": "users/id"}},
            f"{RATINGS}/field/0/references": DROP,
        },
    ),
    Case("CR014", "/rai:dataColection", {"/rai:dataColection": "x"}, {"/rai:dataBiases": "x"}),
    Case(
        "CR014", f"{USERS}/cr:colour", {f"{USERS}/cr:colour": "x"}, {f"{USERS}/alternateName": "x"}
    ),
    Case("CR015", "/sc:name", {"/sc:name": "dogs"}, {"/sc:alternateName": "dogs"}),
    Case("CR016", "/name", {"/name": 5}, {"/name": {"@value": "x", "@language": "en"}}),
    Case(
        "CR016",
        "/name/fr",
        {"/@context/name": LANGUAGES, "/name": {"en": "x", "fr": 1}},
        {"/@context/name": LANGUAGES, "/name": {"en": "x", "fr": "y"}},
    ),
    Case(
        "CR016", f"{CSV}/contentUrl", {f"{CSV}/contentUrl": 7}, {f"{CSV}/contentUrl": "users.csv"}
    ),
    Case(
        "CR016",
        f"{USERS}/field/2/isArray",
        {f"{USERS}/field/2/isArray": "true"},
        {f"{USERS}/field/2/isArray": True},
    ),
    Case("CR016", f"{USERS}/field/0/source", {f"{USERS}/field/0/source": 3}),
    Case(
        "CR016",
        f"{USERS}/field/0/source/extract/column",
        {f"{USERS}/field/0/source/extract/column": 0},
        {f"{USERS}/field/0/source/extract/column": "0"},
    ),
    Case(
        "CR016",
        f"{USERS}/field/2/arrayShape",
        {f"{USERS}/field/2/arrayShape": [2, -1]},
        {f"{USERS}/field/2/arrayShape": "2,-1"},
    ),
    Case("CR016", "/isLiveDataset", {"/isLiveDataset": "no"}, {"/isLiveDataset": False}),
    Case("CR016", "/recordSet", {"/recordSet": "none"}, {"/recordSet": GOOD["recordSet"]}),
    Case(
        "CR017",
        f"{CSV}/contentUrl",
        {f"{CSV}/contentUrl": ["a.csv", "b.csv"]},
        {f"{CSV}/contentUrl": ["a.csv"]},
    ),
    Case("CR018", "/name", {"/name": " "}, {"/name": "-"}),
    Case("CR018", "/license", {"/license": {}}, {"/license": {"@id": "https://example.org/own"}}),
    Case("CR018", "/license", {"/license": ""}, {"/license": "MIT"}),
    Case("CR018", "/license/1", {"/license": ["MIT", {}]}, {"/license": ["MIT", "Apache-2.0"]}),
    # ids
    Case(
        "CR021",
        f"{IMAGES}/field/4/@id",
        {f"{IMAGES}/field/4/@id": "images/the mask"},
        {f"{CSV}/name": "users file.csv"},
    ),
    Case(
        "CR022",
        f"{IMAGES}/field/4/@id",
        {f"{IMAGES}/field/4/@id": "images/box"},
        {f"{IMAGES}/field/4/@id": "images/Box"},
    ),
    Case("CR025", "/distribution/0", {"/distribution/0/name": DROP, "/recordSet": DROP}, base=OLD),
    Case("CR025", "/recordSet/0/field/0", {"/recordSet/0/field/0/name": DROP}, base=OLD),
    Case(
        "CR022",
        "/recordSet/0/field/1/name",
        {"/recordSet/0/field/1/name": "id"},
        {"/recordSet/0/field/1/name": "Id"},
        base=OLD,
    ),
    Case(
        "CR026",
        f"{RATINGS}/field/1/source/fileObject",
        {f"{RATINGS}/field/1/source/fileObject": "ratings.csv"},
        {
            f"{RATINGS}/field/1/source/fileObject": "ratings.csv",
            "/@context/fileObject": {"@id": "cr:fileObject", "@type": "@id"},
        },
    ),
    Case(
        "CR404",
        f"{RATINGS}/field/0/references/recordSet",
        {f"{RATINGS}/field/0/references": {"recordSet": {"@id": "users"}}},
    ),
    # dataset
    Case("CR101", "/@type", {"/@type": "sc:Datasets"}, {"/@type": ["https://schema.org/Dataset"]}),
    Case("CR103", "", {"/url": DROP}, {"/url": "http://example.org"}),
    Case("CR103", "", {"/creator": DROP}, {"/creator": [{"@type": "sc:Person", "name": "B"}]}),
    Case("CR103", "/creator", {"/creator": []}, {"/creator": [{"@id": "https://example.org/me"}]}),
    Case("CR103", "/license", {"/license": []}, {"/license": ["MIT"]}),
    Case("CR103", "/license", {"/license": None}, {"/license": "MIT"}),
    Case("CR102", "/name", {"/name": None}, {"/name": "x"}),
    Case(
        "CR104",
        "",
        {"/conformsTo": DROP, "/rai:dataCollection": DROP, "/rai:dataCollectionTimeframe": DROP},
        {
            "/conformsTo": "http://mlcommons.org/croissant/1.1",
            "/rai:dataCollection": DROP,
            "/rai:dataCollectionTimeframe": DROP,
        },
    ),
    Case("CR107", "", {"/version": DROP}, {"/version": "0.0.1"}),
    Case(
        "CR110", "/datePublished", {"/datePublished": "31/05/2024"}, {"/datePublished": "2024-05"}
    ),
    Case(
        "CR110",
        "/dateModified",
        {"/dateModified": "2024-13-01"},
        {"/dateModified": "2024-12-01T10:00:00+02:00"},
    ),
    # resources
    Case(
        "CR201",
        f"{CSV}/@type",
        {f"{CSV}/@type": "cr:FileObjekt"},
        {f"{CSV}/@type": ["cr:FileObject", "sc:MediaObject"]},
    ),
    Case("CR201", CSV, {f"{CSV}/@type": DROP}),
    Case("CR203", CSV, {f"{CSV}/contentUrl": DROP}, {f"{CSV}/contentUrl": "users.csv"}),
    Case("CR203", f"{CSV}/contentUrl", {f"{CSV}/contentUrl": None}),
    Case("CR204", CSV, {f"{CSV}/encodingFormat": DROP}, {f"{CSV}/encodingFormat": ["text/csv"]}),
    Case(
        "CR205",
        f"{CSV}/encodingFormat",
        {f"{CSV}/encodingFormat": "text/csv; charset=utf-9"},
        {f"{CSV}/encodingFormat": "text/csv; charset=utf-8"},
    ),
    Case(
        "CR205",
        f"{CSV}/encodingFormat",
        {f"{CSV}/encodingFormat": "text/cvs"},
        {f"{CSV}/encodingFormat": "https://example.org/format"},
    ),
    Case("CR206", f"{CSV}/sha256", {f"{CSV}/sha256": SHA[:-1]}, {f"{CSV}/sha256": SHA.upper()}),
    Case(
        "CR206", f"{CSV}/sha256", {f"{CSV}/sha256": MD5}, {f"{CSV}/sha256": DROP, f"{CSV}/md5": MD5}
    ),
    Case(
        "CR206",
        f"{CSV}/sha256",
        {f"{CSV}/sha256": "g" + SHA[1:]},
        {f"{CSV}/sha256": "SKfCV/PJCz4qUp3dLMqPTxvY5J7SRO9TknZJUErFU1Q="},
    ),
    Case("CR207", f"{CSV}/md5", {f"{CSV}/md5": SHA}, {f"{CSV}/md5": MD5}),
    Case("CR208", CSV, {f"{CSV}/sha256": DROP}, {f"{CSV}/sha256": DROP, f"{CSV}/md5": MD5}),
    Case(
        "CR210",
        f"{CSV}/contentUrl",
        {f"{CSV}/contentUrl": "../users.csv"},
        {f"{CSV}/contentUrl": "a..b/users.csv"},
    ),
    Case(
        "CR210",
        f"{CSV}/contentUrl",
        {f"{CSV}/contentUrl": "/etc/users.csv"},
        {f"{CSV}/contentUrl": "./etc/users.csv"},
    ),
    Case("CR210", f"{CSV}/contentUrl", {f"{CSV}/contentUrl": "file:///users.csv"}),
    Case(
        "CR210",
        f"{CSV}/contentUrl",
        {f"{CSV}/contentUrl": "https:/example.org/users.csv"},
        {f"{CSV}/contentUrl": "https/example.org/users.csv"},
    ),
    Case("CR210", f"{CSV}/contentUrl", {f"{CSV}/contentUrl": "a/%2e%2e/%2e%2e/users.csv"}),
    Case(
        "CR211",
        f"{CSV}/contentUrl",
        {f"{CSV}/contentUrl": "htps://example.org/users.csv"},
        {f"{CSV}/contentUrl": "s3://example/users.csv"},
    ),
    Case(
        "CR213",
        f"{PICTURES}/containedIn",
        {f"{PICTURES}/containedIn/@id": "picture.zip"},
        {f"{PICTURES}/containedIn": [{"@id": "pictures.zip"}]},
    ),
    Case(
        "CR214",
        f"{ZIP}/containedIn",
        {f"{ZIP}/containedIn": {"@id": "pictures"}, f"{ZIP}/contentUrl": "a.zip"},
    ),
    Case(
        "CR214",
        f"{CSV}/containedIn",
        {f"{CSV}/containedIn": {"@id": "users.csv"}, f"{CSV}/contentUrl": "users.csv"},
        {f"{CSV}/containedIn": {"@id": "pictures.zip"}, f"{CSV}/contentUrl": "users.csv"},
    ),
    Case(
        "CR217",
        f"{PICTURES}/includes",
        {f"{PICTURES}/includes": "../*.jpg"},
        {f"{PICTURES}/includes": "..*.jpg"},
    ),
    # record sets
    Case(
        "CR300",
        f"{BREEDS}/@type",
        {f"{BREEDS}/@type": "cr:RecordSets"},
        {f"{BREEDS}/@type": "http://mlcommons.org/croissant/RecordSet"},
    ),
    Case(
        "CR302",
        f"{USERS}/key",
        {f"{USERS}/key/@id": "users/ident"},
        {f"{USERS}/key": [{"@id": "users/id"}]},
    ),
    Case(
        "CR302",
        f"{USERS}/key/1",
        {f"{USERS}/key": [{"@id": "users/id"}, {"@id": "ratings/user"}]},
        {f"{USERS}/key": [{"@id": "users/id"}, {"@id": "users/born"}]},
    ),
    Case(
        "CR304",
        f"{BREEDS}/data/1",
        {f"{BREEDS}/data/1": "Rex"},
        {f"{BREEDS}/data": {"breeds/name": "Rex", "breeds/number": 1}},
    ),
    Case("CR305", f"{BREEDS}/data/1/breeds~1colour", {f"{BREEDS}/data/1/breeds~1colour": "red"}),
    Case(
        "CR308",
        f"{BREEDS}/data/1/breeds~1number",
        {f"{BREEDS}/data/1/breeds~1number": "two"},
        {f"{BREEDS}/data/1/breeds~1number": "2"},
    ),
    Case(
        "CR310",
        f"{BREEDS}/data",
        {
            f"{BREEDS}/field/1/source": {
                "fileObject": {"@id": "users.csv"},
                "extract": {"column": "n"},
            }
        },
    ),
    Case(
        "CR311",
        f"{BREEDS}/data",
        {f"{BREEDS}/data": []},
        {f"{BREEDS}/data": [{"breeds/name": "Rex", "breeds/number": 2}]},
    ),
    # fields
    Case("CR320", f"{USERS}/field/0/@type", {f"{USERS}/field/0/@type": "cr:Feild"}),
    Case("CR320", f"{USERS}/field/0", {f"{USERS}/field/0/@type": DROP}),
    Case(
        "CR321",
        f"{RATINGS}/field/3",
        {f"{RATINGS}/field/3/value": DROP},
        {f"{RATINGS}/field/3/value": None},
    ),
    Case("CR323", f"{RATINGS}/field/1/value", {f"{RATINGS}/field/1/value": 1.5}),
    Case(
        "CR324",
        f"{RATINGS}/field/1",
        {f"{RATINGS}/field/1/dataType": DROP},
        {f"{RATINGS}/field/2/dataType": DROP},
    ),
    Case("CR324", f"{RATINGS}/field/1/dataType", {f"{RATINGS}/field/1/dataType": []}),
    Case(
        "CR325",
        f"{RATINGS}/field/1/dataType",
        {f"{RATINGS}/field/1/dataType": "sc:Flaot"},
        {f"{RATINGS}/field/1/dataType": "cr:Float32"},
    ),
    Case(
        "CR325",
        f"{RATINGS}/field/4/dataType/1",
        {f"{RATINGS}/field/4/dataType": ["sc:Text", "cr:Labels"]},
        {f"{RATINGS}/field/4/dataType": ["sc:Text", "cr:Label"]},
    ),
    Case("CR327", f"{USERS}/field/2/arrayShape", {f"{USERS}/field/2/isArray": DROP}),
    Case(
        "CR327",
        f"{USERS}/field/2/arrayShape",
        {f"{USERS}/field/2/isArray": False},
        {f"{USERS}/field/2/isArray": False, f"{USERS}/field/2/arrayShape": DROP},
    ),
    Case(
        "CR328",
        f"{USERS}/field/2/arrayShape",
        {f"{USERS}/field/2/arrayShape": "-1,x"},
        {f"{USERS}/field/2/arrayShape": "-1, 3"},
    ),
    Case(
        "CR328",
        f"{USERS}/field/2/arrayShape",
        {f"{USERS}/field/2/arrayShape": "0"},
        {f"{USERS}/field/2/arrayShape": "(1,)"},
    ),
    Case(
        "CR329",
        f"{USERS}/field/2/repeated",
        {f"{USERS}/field/2/repeated": False},
        {f"{USERS}/field/2/repeated": True},
    ),
    Case(
        "CR330",
        f"{RATINGS}/field/3/value",
        {f"{RATINGS}/field/3/value": "five"},
        {f"{RATINGS}/field/3/value": 5.0},
    ),
    Case(
        "CR332",
        f"{RATINGS}/field/4/parentField",
        {f"{RATINGS}/field/4/parentField": {"source": {"field": {"@id": "ratings/user"}}}},
        {
            f"{RATINGS}/field/4/parentField": {
                "source": {"field": {"@id": "ratings/user"}},
                "references": {"field": {"@id": "users/id"}},
            }
        },
    ),
    Case(
        "CR333",
        f"{RATINGS}/field/2/source",
        {f"{RATINGS}/field/2/source/field/@id": "ratings/born"},
        {f"{RATINGS}/field/2/source": {"@id": "users/born"}},
    ),
    # sources
    Case("CR401", f"{RATINGS}/field/1/source", {f"{RATINGS}/field/1/source/fileObject": DROP}),
    Case(
        "CR402",
        f"{RATINGS}/field/1/source/fileObject",
        {f"{RATINGS}/field/1/source/fileObject/@id": "rating.csv"},
    ),
    Case(
        "CR402",
        f"{RATINGS}/field/0/references/field",
        {f"{RATINGS}/field/0/references/field/@id": "users/ident"},
    ),
    Case(
        "CR403",
        f"{RATINGS}/field/1/source/fileSet",
        {f"{RATINGS}/field/1/source/fileSet": {"@id": "pictures"}},
    ),
    Case(
        "CR404",
        f"{RATINGS}/field/1/source/fileSet",
        {
            f"{RATINGS}/field/1/source": {
                "fileSet": {"@id": "ratings.csv"},
                "extract": {"column": "stars"},
            }
        },
    ),
    Case(
        "CR405",
        f"{IMAGES}/field/0/source/extract/fileProperty",
        {f"{IMAGES}/field/0/source/extract/fileProperty": "file_name"},
        {f"{IMAGES}/field/0/source/extract/fileProperty": "fullpath"},
    ),
    Case(
        "CR406",
        f"{RATINGS}/field/1/source/extract/fileProperty",
        {f"{RATINGS}/field/1/source/extract/fileProperty": "filename"},
    ),
    Case("CR407", f"{IMAGES}/field/0/source/extract", {f"{IMAGES}/field/0/source/extract": {}}),
    Case(
        "CR407",
        f"{IMAGES}/field/0/source/extract/regex",
        {f"{IMAGES}/field/0/source/extract": {"regex": "(a)"}},
    ),
    Case(
        "CR409",
        f"{RATINGS}/field/4/source/transform/1/jsonPath",
        {f"{RATINGS}/field/4/source/transform/1/jsonPath": "$.a["},
        {f"{RATINGS}/field/4/source/transform/1/jsonPath": "$.a[0]"},
    ),
    Case(
        "CR410",
        f"{RATINGS}/field/1/source/extract/jsonPath",
        {f"{RATINGS}/field/1/source/extract": {"jsonPath": "$.stars"}},
        {
            f"{RATINGS}/field/1/source/extract": {"jsonPath": "$.stars"},
            "/distribution/1/encodingFormat": "application/jsonlines",
            "/distribution/1/contentUrl": "ratings.jsonl",
        },
    ),
    Case(
        "CR421",
        f"{RATINGS}/field/2/source",
        {f"{RATINGS}/field/0/references": DROP},
        {f"{RATINGS}/field/0/references": DROP, f"{RATINGS}/field/2": DROP},
    ),
    Case(
        "CR421",
        f"{USERS}/field/4/subField/0/source",
        {f"{USERS}/field/-": RATINGS_OF_USERS},
        {f"{USERS}/field/-": RATINGS_OF_USERS | {"parentField": RATED_BY}},
    ),
    Case(
        "CR421",
        f"{RATINGS}/field/2/source",  # and once for all that comes from there
        {f"{RATINGS}/field/0/references": DROP, f"{RATINGS}/field/-": BORN_AGAIN},
        {f"{RATINGS}/field/-": BORN_AGAIN},
    ),
    Case(
        "CR423",
        f"{RATINGS}/field/4/references",
        {f"{RATINGS}/field/4/references": {"field": {"@id": "ratings/note"}}},
    ),
    Case(
        "CR423",
        f"{RATINGS}/field/0/references",
        {f"{RATINGS}/field/0/references/field/@id": "ratings/user"},
    ),
    # transforms
    Case(
        "CR431",
        f"{IMAGES}/field/2/source/transform/regex",
        {f"{IMAGES}/field/2/source/transform/regex": "(train"},
    ),
    Case(
        "CR432",
        f"{IMAGES}/field/2/source/transform/regex",
        {f"{IMAGES}/field/2/source/transform/regex": "train|(?:test)"},
        {f"{IMAGES}/field/2/source/transform/regex": "(?P<split>train|test)"},
    ),
    Case(
        "CR434",
        f"{IMAGES}/field/2/source/transform/regex",
        {f"{IMAGES}/field/2/source/transform/regex": "(train|test)(?=/)"},
        {f"{IMAGES}/field/2/source/transform/regex": "(train|test)(?:/)"},
    ),
    Case("CR435", f"{IMAGES}/field/2/source/transform", {f"{IMAGES}/field/2/source/transform": {}}),
    Case(
        "CR435",
        f"{IMAGES}/field/2/source/transform/upper",
        {f"{IMAGES}/field/2/source/transform": {"upper": True}},
    ),
    Case(
        "CR014",
        f"{IMAGES}/field/2/source/transform/upper",
        {f"{IMAGES}/field/2/source/transform": {"regex": "(a)", "upper": True}},
    ),
    Case(
        "CR437",
        f"{USERS}/field/2/source/transform/separator",
        {f"{USERS}/field/2/source/transform/separator": ""},
        {f"{USERS}/field/2/source/transform/separator": " "},
    ),
    Case(
        "CR438",
        f"{RATINGS}/field/4/source/transform/0/replace",
        {f"{RATINGS}/field/4/source/transform/0/replace": "cat"},
        {f"{RATINGS}/field/4/source/transform/0/replace": "cat/"},
    ),
    Case(
        "CR439",
        f"{USERS}/field/1/source/format",
        {f"{USERS}/field/1/source/format": "yyyy-mm-dd"},
        {f"{USERS}/field/1/source/format": "%Y-%m-%d"},
    ),
    Case(
        "CR439",
        f"{USERS}/field/1/source/format",
        {f"{USERS}/field/1/source/format": "%Y-%i-%d"},
        {f"{USERS}/field/1/source/format": "yyyy-MM-dd'T'HH:mm"},
    ),
    Case(
        "CR440",
        f"{RATINGS}/field/1/source/format",
        {f"{RATINGS}/field/1/source/format": "float"},
        {f"{RATINGS}/field/1/source/format": "0.##E0"},
    ),
    Case(
        "CR442",
        f"{RATINGS}/field/4/source/samplingRate",
        {f"{RATINGS}/field/4/source/samplingRate": 0},
        {f"{RATINGS}/field/4/source/samplingRate": 16000},
    ),
    # meaning
]
