"""Tables of many columns: as many queries as for few, each column's answer its own."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from round_trips import check_csv, described, fields, loaded, record_sets, types, write_csv

from holdfast.data.croissant.describing.folders import describe
from holdfast.data.croissant.describing.querying import count_values

KINDS = {
    "sc:Integer": ["1", "-2", "30", ""],
    "sc:Float": ["1.5", "2", "NA", "-.5"],
    "sc:Date": ["2020-01-02", "1999-12-31", "", "2000-02-29"],
    "sc:Boolean": ["true", "false", "TRUE", "false"],
    "sc:Text": ["a", "007", "1", "x y"],
}


def test_counted_values_are_those_of_sets() -> None:
    chance = random.Random(5)
    rows = [[chance.choice([None, *"abcdef"]) for _ in range(1_100)] for _ in range(9)]
    known = [["a", "b", "c"], ["z"], ["f", "a", "y"]]
    with duckdb.connect() as connection:
        listed = ", ".join(f"c{place} VARCHAR" for place in range(1_100))
        connection.execute(f"CREATE TABLE t ({listed})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 1_100)})", rows)
        found = count_values(
            connection,
            "t",
            {f"column {place}": f"c{place}" for place in range(1_100)},
            *((f"(SELECT unnest({values}) AS k)", "k") for values in known),
        )
    for place in range(1_100):
        values = [row[place] for row in rows if row[place] is not None]
        counted = found[f"column {place}"]
        assert (counted.rows, counted.distinct) == (len(values), len(set(values)))
        assert counted.matches == tuple(len(set(values) & set(some)) for some in known)


class Counting:
    """A connection that counts its queries."""

    queries = 0

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def execute(self, query: str) -> Any:
        Counting.queries += 1
        return self.connection.execute(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def relations(folder: Path, width: int) -> None:
    """Columns of ids, of texts and of names of files: all that keys and references are looked for in."""
    write_csv(folder / "genders.csv", ["label", "more"], [["male", "x"], ["female", "y"]])
    write_csv(folder / "users.csv", ["id", "v"], [[str(number), "a"] for number in range(3)])
    (folder / "img").mkdir()
    for number in range(2):
        (folder / "img" / f"{number}.jpg").write_bytes(b"\xff\xd8\xff\xe0%d" % number)
    header = [f"{name}{place}" for place in range(width) for name in ("sex_", "image ", "user ")]
    header = [f"{name} id" if name.startswith("user") else name for name in header]
    rows = [["male", "0.jpg", "1"], ["female", "1.jpg", "1"], ["male", "1.jpg", "2"]] * 4
    named = [row * width for row in rows]
    for place, row in product(range(width), range(len(rows))):  # no two columns name the same
        named[row][3 * place + 1] = f"{place >> row & 1}.jpg"
    write_csv(folder / "facts.csv", header, named)


def test_many_columns_take_as_many_queries_as_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda: Counting(connect()))
    queries = []
    for width in (8, 60):  # of fewer ids, pairs are tried as keys
        folder = tmp_path / str(width)
        folder.mkdir()
        relations(folder, width)
        Counting.queries = 0
        made = describe(folder)
        queries.append(Counting.queries)
        found = fields(made, "facts")
        for place in range(width):
            assert found[f"sex_{place}"]["references"] == {"field": {"@id": "genders/label"}}
    assert queries[0] == queries[1] > 0


@pytest.mark.full
def test_more_columns_than_one_query_has(tmp_path: Path) -> None:
    kinds = [list(KINDS)[place % len(KINDS)] for place in range(1_003)]
    header = [f"column {place}" for place in range(len(kinds))]
    rows = [[KINDS[kind][row] for kind in kinds] for row in range(4)]
    write_csv(tmp_path / "t.csv", header, rows)
    made = described(tmp_path)
    assert list(types(made, "t").values()) == kinds
    check_csv(made, "t", (tmp_path / "t.csv").read_bytes())


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_header_of_many_characters(tmp_path: Path, separator: str) -> None:
    header = [f"{'long' * 240} {place}" for place in range(70)]
    assert len(separator.join(header)) > 1 << 16
    write_csv(tmp_path / "t.csv", header, [["1"] * 70, ["2"] * 70], delimiter=separator)
    made = described(tmp_path)
    assert [field["name"] for field in record_sets(made)["t"]["field"]] == header
    assert [set(row.values()) for row in loaded(made, "t")] == [{1}, {2}]


def test_a_name_longer_than_a_table_can_have_spoils_no_other_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a" * 200_000 + "\n1\n")
    write_csv(tmp_path / "u.csv", ["x", "y"], [["1", "2"]])
    made = describe(tmp_path)
    assert set(record_sets(made)) == {"u"}
    assert "t.csv" in {note.about for note in made.notes if note.kind == "skipped"}
