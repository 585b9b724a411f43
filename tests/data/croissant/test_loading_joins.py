"""Joins, nesting and sources, each on tables small enough to check by eye."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_datasets import (
    about,
    column,
    described,
    field,
    file_object,
    file_set,
    other,
    record_set,
    write_rows,
)

from holdfast.errors import InputError


def rows(lazy: Any) -> list[tuple[Any, ...]]:
    return [tuple(record.values()) for record in lazy]


def people(folder: Path) -> list[Any]:
    """People who know their city, cities that know their country."""
    write_rows(
        folder / "people.csv",
        ["name", "city", "boss"],
        [
            {"name": "Ada", "city": "3", "boss": ""},
            {"name": "Bo", "city": "1", "boss": "Ada"},
            {"name": "Cy", "city": "", "boss": "Bo"},
            {"name": "Di", "city": "9", "boss": "Ada"},
        ],
    )
    write_rows(
        folder / "cities.csv",
        ["id", "city", "land"],
        [
            {"id": "1", "city": "Bonn", "land": "de"},
            {"id": "3", "city": "Lyon", "land": "fr"},
            {"id": "", "city": "Nowhere", "land": "xx"},
        ],
    )
    write_rows(
        folder / "lands.csv",
        ["code", "land"],
        [{"code": "fr", "land": "France"}, {"code": "de", "land": "Germany"}],
    )
    return [file_object(name) for name in ("people.csv", "cities.csv", "lands.csv")]


CITIES = record_set(
    "cities",
    field("cities/id", "sc:Integer", column("cities.csv", "id")),
    field("cities/city", "sc:Text", column("cities.csv", "city")),
    field("cities/land", "sc:Text", column("cities.csv", "land"), references=other("lands/code")),
    key={"@id": "cities/id"},
)
LANDS = record_set(
    "lands",
    field("lands/code", "sc:Text", column("lands.csv", "code")),
    field("lands/land", "sc:Text", column("lands.csv", "land")),
    key={"@id": "lands/code"},
)
NAME = field("people/name", "sc:Text", column("people.csv", "name"))
CITY = field(
    "people/city_id", "sc:Integer", column("people.csv", "city"), references=other("cities/id")
)


def test_chains_reach_a_table_through_one_that_nobody_looks_at(tmp_path: Path) -> None:
    resources = people(tmp_path)
    land = field("people/land", None, other("lands/land"))
    dataset = described(
        tmp_path, resources, [CITIES, LANDS, record_set("people", NAME, CITY, land)]
    )
    assert rows(dataset.records("people", columns=["name", "land"])) == [
        ("Ada", "France"),
        ("Bo", "Germany"),
        ("Cy", None),
        ("Di", None),
    ]


def test_a_reference_to_a_record_set_also_joins_its_file(tmp_path: Path) -> None:
    resources = people(tmp_path)
    city = field("people/city", "sc:Text", column("cities.csv", "city"))
    dataset = described(
        tmp_path, resources, [CITIES, LANDS, record_set("people", NAME, CITY, city)]
    )
    assert rows(dataset.records("people", columns=["city"])) == [
        ("Lyon",),
        ("Bonn",),
        (None,),
        (None,),
    ]


def test_a_table_may_be_joined_to_itself(tmp_path: Path) -> None:
    resources = people(tmp_path)
    boss = field(
        "people/boss", "sc:Text", column("people.csv", "boss"), references=other("people/name")
    )
    over = field("people/boss_of_boss", None, other("people/boss"))
    dataset = described(tmp_path, resources, [record_set("people", NAME, boss, over)])
    assert rows(dataset.records("people")) == [
        ("Ada", None, None),
        ("Bo", "Ada", None),
        ("Cy", "Bo", "Ada"),
        ("Di", "Ada", None),
    ]


def test_two_record_sets_over_one_file_are_two_tables(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "teams.csv", ["id", "team"], [{"id": 1, "team": "A"}, {"id": 2, "team": "B"}]
    )
    write_rows(
        tmp_path / "games.csv", ["home", "away"], [{"home": 2, "away": 1}, {"home": 1, "away": 3}]
    )
    teams = [
        record_set(
            side,
            field(f"{side}/id", "sc:Integer", column("teams.csv", "id")),
            field(f"{side}/team", "sc:Text", column("teams.csv", "team")),
        )
        for side in ("hosts", "guests")
    ]
    games = record_set(
        "games",
        field(
            "games/home", "sc:Integer", column("games.csv", "home"), references=other("hosts/id")
        ),
        field(
            "games/away", "sc:Integer", column("games.csv", "away"), references=other("guests/id")
        ),
        field("games/host", None, other("hosts/team")),
        field("games/guest", None, other("guests/team")),
    )
    resources = [file_object("teams.csv"), file_object("games.csv")]
    dataset = described(tmp_path, resources, [*teams, games])
    assert rows(dataset.records("games", columns=["host", "guest"])) == [("B", "A"), ("A", None)]
    both = record_set(
        "games",
        field(
            "games/home", "sc:Integer", column("games.csv", "home"), references=other("hosts/id")
        ),
        field(
            "games/away", "sc:Integer", column("games.csv", "away"), references=other("hosts/id")
        ),
        field("games/host", None, other("hosts/team")),
    )
    dataset = described(tmp_path, resources, [teams[0], both])
    with pytest.raises(InputError, match="'games/home' and 'games/away'"):
        list(dataset.records("games"))


def test_composite_references_must_all_agree(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "a.csv", ["x", "y"], [{"x": 1, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": ""}]
    )
    write_rows(
        tmp_path / "b.csv",
        ["p", "q", "r"],
        [
            {"p": 1, "q": 2, "r": "hit"},
            {"p": 1, "q": 2, "r": "again"},
            {"p": 2, "q": "", "r": "no"},
        ],
    )
    b = record_set("b", *(field(f"b/{name}", "sc:Integer", column("b.csv", name)) for name in "pq"))
    b["field"].append(field("b/r", "sc:Text", column("b.csv", "r")))
    a = record_set(
        "a",
        field("a/x", "sc:Integer", column("a.csv", "x"), references=other("b/p")),
        field("a/y", "sc:Integer", column("a.csv", "y"), references=other("b/q")),
        field("a/r", None, other("b/r")),
    )
    dataset = described(tmp_path, [file_object("a.csv"), file_object("b.csv")], [b, a])
    assert rows(dataset.records("a")) == [
        (1, 1, None),
        (1, 2, "hit"),
        (1, 2, "again"),
        (2, None, None),
    ]
    # Records do not depend on the columns that somebody looks at, nor do their number.
    assert rows(dataset.records("a", columns=["x"])) == [(1,), (1,), (1,), (2,)]
    assert dataset.records("a", columns=["x"]).count() == 4


def test_a_declared_key_lets_a_table_that_nobody_looks_at_be_left_out(tmp_path: Path) -> None:
    resources = people(tmp_path)
    city = field("people/city", None, other("cities/city"))
    dataset = described(
        tmp_path, resources, [CITIES, LANDS, record_set("people", NAME, CITY, city)]
    )
    assert "cities.csv" in dataset.records("people").explain()
    assert "cities.csv" not in dataset.records("people", columns=["name"]).explain()


def test_nan_and_null_are_no_keys_and_text_meets_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1.0, math.nan, None, 7.0]}), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"k": [math.nan, 1.0, None], "v": ["nan", "one", "null"]}), tmp_path / "b.parquet"
    )
    write_rows(
        tmp_path / "c.csv", ["k", "v"], [{"k": "007", "v": "seven"}, {"k": "x", "v": "word"}]
    )
    b = record_set(
        "b",
        field("b/k", "sc:Float", column("b.parquet", "k")),
        field("b/v", "sc:Text", column("b.parquet", "v")),
    )
    c = record_set(
        "c",
        field("c/k", "sc:Text", column("c.csv", "k")),
        field("c/v", "sc:Text", column("c.csv", "v")),
    )
    a = record_set(
        "a",
        field("a/k", "sc:Float", column("a.parquet", "k"), references=other("b/k")),
        field("a/i", "sc:Integer", column("a.parquet", "k"), references=other("c/k")),
        field("a/b", None, other("b/v")),
        field("a/c", None, other("c/v")),
    )
    names = ("a.parquet", "b.parquet", "c.csv")
    dataset = described(tmp_path, [file_object(name) for name in names], [b, c, a])
    assert rows(dataset.records("a", columns=["b", "c"])) == [
        ("one", None),
        (None, None),
        (None, None),
        (None, "seven"),
    ]


def test_sources_that_nothing_joins_are_named(tmp_path: Path) -> None:
    resources = people(tmp_path)
    land = field("people/land", "sc:Text", column("lands.csv", "land"))
    dataset = described(tmp_path, resources, [record_set("people", NAME, land)])
    with pytest.raises(InputError, match=r"'people.csv' and 'lands.csv'(?s:.*)references"):
        list(dataset.records("people"))


def test_views_of_one_file_need_no_reference(tmp_path: Path) -> None:
    resources = people(tmp_path)
    upper = field("mixed/land", None, other("cities/land", transform={"replace": "d/D"}))
    mixed = record_set("mixed", field("mixed/city", "sc:Text", column("cities.csv", "city")), upper)
    dataset = described(tmp_path, resources, [CITIES, LANDS, mixed])
    assert rows(dataset.records("mixed"))[:2] == [("Bonn", "De"), ("Lyon", "fr")]


def test_circles_are_told(tmp_path: Path) -> None:
    one = record_set("one", field("one/a", "sc:Text", other("two/b")))
    two = record_set("two", field("two/b", "sc:Text", other("one/a")))
    dataset = described(tmp_path, [], [one, two])
    with pytest.raises(InputError, match="circle"):
        list(dataset.records("one"))
    own = record_set(
        "own", field("own/a", "sc:Text", other("own/b")), field("own/b", "sc:Text", other("own/a"))
    )
    with pytest.raises(InputError, match="circle"):
        list(described(tmp_path, [], [own]).records("own"))


def test_groups_gather_the_rows_that_belong_to_a_record(tmp_path: Path) -> None:
    resources = people(tmp_path)
    residents = field(
        "cities2/people",
        None,
        parentField={"references": other("cities/id"), "source": other("people/city_id")},
        subField=[field("cities2/people/name", None, other("people/name"))],
    )
    cities = record_set("cities2", field("cities2/city", None, other("cities/city")), residents)
    dataset = described(
        tmp_path, resources, [CITIES, LANDS, record_set("people", NAME, CITY), cities]
    )
    assert rows(dataset.records("cities2")) == [
        ("Bonn", [{"cities2/people/name": "Bo"}]),
        ("Lyon", [{"cities2/people/name": "Ada"}]),
        ("Nowhere", []),
    ]


def test_repeated_parents_zip_their_parts(tmp_path: Path) -> None:
    turns = [{"who": "me", "said": "hi"}, {"who": "you", "said": "ho"}]
    pq.write_table(
        pa.table({"turns": [turns, [], None], "n": [[1, 2], [], None]}), tmp_path / "t.parquet"
    )
    parts = [
        field(
            f"t/turns/{name}", "sc:Text", column("t.parquet", "turns", transform={"jsonPath": name})
        )
        for name in ("who", "said")
    ]
    number = field("t/turns/n", "sc:Integer", column("t.parquet", "n"))
    records = record_set("t", field("t/turns", None, subField=[*parts, number], repeated=True))
    dataset = described(tmp_path, [file_object("t.parquet")], [records])
    keyed = [
        {"t/turns/who": one["who"], "t/turns/said": one["said"], "t/turns/n": i + 1}
        for i, one in enumerate(turns)
    ]
    assert rows(dataset.records("t")) == [(keyed,), ([],), (None,)]
    pq.write_table(pa.table({"turns": [turns], "n": [[1]]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="equally long"):
        list(described(tmp_path, [file_object("t.parquet")], [records]).records("t"))


def test_bytes_are_read_late_wherever_they_stand(tmp_path: Path) -> None:
    for index in range(5):
        (tmp_path / f"p{index}.bin").write_bytes(bytes([index]) * (index + 1))
    pictures = record_set(
        "pictures",
        field("pictures/name", "sc:Text", about("pics", "filename")),
        field("pictures/bytes", "sc:ImageObject", about("pics", "content")),
        key={"@id": "pictures/name"},
    )
    write_rows(
        tmp_path / "albums.csv",
        ["album", "picture"],
        [
            {"album": 1, "picture": "p3.bin"},
            {"album": 1, "picture": "p0.bin"},
            {"album": 2, "picture": "no"},
        ],
    )
    entries = record_set(
        "entries",
        field("entries/album", "sc:Integer", column("albums.csv", "album")),
        field(
            "entries/picture",
            "sc:Text",
            column("albums.csv", "picture"),
            references=other("pictures/name"),
        ),
        field("entries/bytes", None, other("pictures/bytes")),
        field(
            "entries/both",
            None,
            subField=[field("entries/both/bytes", None, other("pictures/bytes"))],
        ),
    )
    data = [{"albums/id": 1}, {"albums/id": 2}, {"albums/id": 3}]
    albums = record_set("albums", field("albums/id", "sc:Integer"), data=data)
    grouped = record_set(
        "grouped",
        field("grouped/id", None, other("albums/id")),
        field(
            "grouped/pictures",
            None,
            parentField={"references": other("albums/id"), "source": other("entries/album")},
            subField=[field("grouped/pictures/bytes", None, other("entries/bytes"))],
        ),
    )
    resources = [file_set("pics", "*.bin"), file_object("albums.csv")]
    dataset = described(tmp_path, resources, [pictures, entries, albums, grouped])
    three, zero = b"\x03" * 4, b"\x00"
    assert rows(dataset.records("entries", columns=["bytes", "both"])) == [
        (three, {"entries/both/bytes": three}),
        (zero, {"entries/both/bytes": zero}),
        (None, {"entries/both/bytes": None}),
    ]
    assert rows(dataset.records("grouped")) == [
        (1, [{"grouped/pictures/bytes": three}, {"grouped/pictures/bytes": zero}]),
        (2, [{"grouped/pictures/bytes": None}]),
        (3, []),
    ]
    picked = dataset.sql(
        "SELECT name, bytes FROM pictures WHERE name > 'p2' ORDER BY name DESC LIMIT 1"
    )
    assert rows(picked) == [("p4.bin", b"\x04" * 5)]
    assert dataset.records("pictures", filters="octet_length(bytes) > 3").count() == 2
