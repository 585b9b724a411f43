"""Keys and references: what data and names together say, and what data alone would pretend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from round_trips import described, fields, notes, record_sets, write_csv

Tables = dict[str, tuple[list[str], list[list[str]]]]


def numbers(count: int, start: int = 1) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def columns(**given: list[str]) -> tuple[list[str], list[list[str]]]:
    return list(given), [list(row) for row in zip(*given.values(), strict=True)]


def write(folder: Path, tables: Tables) -> None:
    for name, (header, rows) in tables.items():
        write_csv(folder / f"{name}.csv", header, rows)


USERS = columns(id=numbers(5), name=["a", "b", "c", "d", "d"])
KEYS: dict[str, tuple[Tables, dict[str, list[str]]]] = {
    "id": ({"users": USERS}, {"users": ["id"]}),
    "the table's id, not first": (
        {"users": columns(age=["1", "1", "2"], user_id=numbers(3))}, {"users": ["user_id"]},
    ),
    "camels": ({"users": columns(age=["1", "1", "2"], userId=numbers(3))}, {"users": ["userId"]}),
    "an id that stands twice": ({"users": columns(id=["1", "1", "2"])}, {}),
    "an id that is missing once": ({"users": columns(id=["1", "", "2"], v=["a", "b", "c"])}, {}),
    "an id that is NA once": ({"users": columns(id=["1", "NA", "2"], v=["a", "b", "c"])}, {}),
    "paid is no id": ({"t": columns(paid=numbers(12), v=["x"] * 12)}, {}),
    "a measure is no key": ({"t": columns(height=numbers(30), v=["x"] * 30)}, {}),
    "a date is no key": ({"t": columns(id=["2020-01-01", "2020-01-02"])}, {}),
    "a float is no key": ({"t": columns(id=["1.5", "2.5"])}, {}),
    "the first column names the rows": (
        {"t": columns(country_name=["x", "y", "z"], size=["1", "1", "2"])}, {"t": ["country_name"]},
    ),
    "the first column is what the table is of": (
        {"planets": columns(planet=["x", "y", "z"], size=["1", "1", "2"])}, {"planets": ["planet"]},
    ),
    "what the table is of, but twice": (
        {"planets": columns(planet=["x", "y", "x"], size=["1", "1", "2"])}, {},
    ),
    "another column of names does not": ({"t": columns(size=["1", "1", "2"], name=["x", "y", "z"])}, {}),
    "two ids together": (
        {"ratings": columns(user_id=["1", "1", "2", "2"], movie_id=["1", "2", "1", "2"])},
        {"ratings": ["user_id", "movie_id"]},
    ),
    "two ids that repeat": (
        {"ratings": columns(user_id=["1", "1", "1", "2"], movie_id=["1", "1", "1", "2"])}, {},
    ),
    "one row": ({"t": columns(id=["1"], v=["x"])}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS)
def test_keys(tmp_path: Path, case: str) -> None:
    tables, expected = KEYS[case]
    write(tmp_path, tables)
    made = described(tmp_path)
    found = {}
    for name, records in record_sets(made).items():
        if key := records.get("key"):
            ids = key if isinstance(key, list) else [key]
            found[name] = [each["@id"].removeprefix(f"{name}/") for each in ids]
            assert "unique in every row" in notes(made, name)
    assert found == expected


REFERENCES: dict[str, tuple[Tables, dict[str, str]]] = {
    "user_id": (
        {"users": USERS, "orders": columns(id=numbers(4, 10), user_id=["5", "1", "1", ""])},
        {"orders/user_id": "users/id"},
    ),
    "a role before the name": (
        {"users": USERS, "orders": columns(id=numbers(3, 10), paying_user_id=["5", "1", "1"])},
        {"orders/paying_user_id": "users/id"},
    ),
    "the same name on both sides": (
        {
            "movies": columns(movieId=numbers(4), title=["a", "b", "c", "d"]),
            "votes": columns(movieId=["1", "1", "4"], stars=["3", "4", "5"]),
        },
        {"votes/movieId": "movies/movieId"},
    ),
    "a lookup table": (
        {
            "enum": columns(name=["a", "b", "c", "d"], direction=["0", "1", "1", "0"]),
            "enum_directions": columns(key=["0", "1"], label=["North", "East"]),
        },
        {"enum/direction": "enum_directions/key"},
    ),
    "texts that a small table explains": (
        {
            "people": columns(name=["a", "b", "c"], sex=["male", "female", "male"]),
            "genders": columns(label=["male", "female"], url=["http://m.x", "http://f.x"]),
        },
        {"people/sex": "genders/label"},
    ),
    "a counter": ({"users": USERS, "t": columns(rank=["1", "2", "3"], v=["a", "b", "c"])}, {}),
    "an id of its own": (
        {"users": USERS, "things": columns(id=numbers(3), v=["a", "b", "c"])}, {},
    ),
    "as many as there are users": (
        {"users": USERS, "t": columns(user_count=["1", "2", "3"], v=["a", "b", "c"])}, {},
    ),
    "one value that is not there": (
        {"users": USERS, "orders": columns(id=numbers(3, 10), user_id=["5", "1", "9"])}, {},
    ),
    "another type": (
        {"users": USERS, "orders": columns(id=numbers(3, 10), user_id=["a1", "b2", "c3"])}, {},
    ),
    "texts of which a table explains more": (
        {
            "people": columns(n=["1", "2", "3", "4"], answer=["yes", "no", "yes", "no"]),
            "words": columns(word_key=["yes", "no", "maybe"], n=["1", "2", "3"]),
        },
        {},
    ),
    "two tables of the same things": (
        {
            "left": columns(user_id=numbers(12), a=["x"] * 12),
            "right": columns(user_id=numbers(12), b=["y"] * 12),
        },
        {},
    ),
    "two tables that it may mean": (
        {
            "movies": columns(movie_id=numbers(3), a=["x"] * 3),
            "movie": columns(movie_id=numbers(3), b=["y"] * 3),
            "votes": columns(stars=["1", "2"], movie_id=["1", "3"]),
        },
        {"movies/movie_id": "movie/movie_id", "movie/movie_id": "movies/movie_id"},
    ),
    "itself": ({"staff": columns(id=numbers(3), manager_id=["1", "1", ""], staff_id=["2", "1", "1"])}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFERENCES)
def test_references(tmp_path: Path, case: str) -> None:
    tables, expected = REFERENCES[case]
    write(tmp_path, tables)
    made = described(tmp_path)
    found = {
        f"{name}/{short}": field["references"]["field"]["@id"]
        for name in record_sets(made)
        for short, field in fields(made, name).items()
        if "references" in field
    }
    assert found == expected
    for reference in expected:
        assert "references" in notes(made, reference.partition("/")[0])


def test_what_is_nearly_a_reference_is_noted(tmp_path: Path) -> None:
    write(tmp_path, REFERENCES["one value that is not there"][0])
    assert "1 of 3 values of 'user_id' are not in 'id' of 'users'" in notes(described(tmp_path))


def test_rows_that_were_not_looked_at_prove_nothing(tmp_path: Path) -> None:
    write(tmp_path, REFERENCES["user_id"][0])
    made = described(tmp_path, sample_rows=2)
    assert all("key" not in records for records in record_sets(made).values())
    assert not any("references" in field for field in fields(made, "orders").values())


def test_a_table_keeps_its_name_beside_the_files_that_are_called_so(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "images" / f"{number}.jpg").write_bytes(b"\xff\xd8\xff" + bytes([number]))
    pictures = [{"id": 7 * n, "file_name": f"{n}.jpg"} for n in range(3)]
    boxes = [{"id": n, "image_id": 7 * (n % 3), "area": n / 2} for n in range(5)]
    (tmp_path / "boxes.json").write_text(json.dumps({"images": pictures, "boxes": boxes}))
    made = described(tmp_path)
    assert fields(made, "boxes")["image_id"]["references"] == {"field": {"@id": "boxes_images/id"}}
