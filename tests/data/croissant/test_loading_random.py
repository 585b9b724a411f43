"""Random tables, joined, filtered and nested by a description, beside a nested loop in plain Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_datasets import column, described, field, file_object, other, record_set, write_rows

SUFFIXES = st.sampled_from(["csv", "jsonl", "parquet"])
KEYS = st.none() | st.integers(0, 3)
WORDS = st.none() | st.sampled_from(["a1", "b2", "c", "ä", "it's", 'say "x"', "a,b", "NA"])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    left = draw(
        st.lists(
            st.fixed_dictionaries({"key": KEYS, "word": WORDS, "size": KEYS}),
            min_size=1,
            max_size=7,
        )
    )
    right = draw(
        st.lists(st.fixed_dictionaries({"id": KEYS, "label": WORDS, "weight": KEYS}), max_size=6)
    )
    inline = draw(st.booleans()) or not right
    return {
        "left": left,
        "right": right,
        "inline": inline,
        "left_name": f"left.{draw(SUFFIXES)}",
        "right_name": f"right.{draw(SUFFIXES)}",
        "columns": draw(st.none() | st.lists(st.sampled_from(NAMES), min_size=1, unique=True)),
        "filters": draw(st.sampled_from([*FILTERS])),
        "text_keys": draw(st.booleans()),
    }


NAMES = ["key", "word", "letter", "label", "weight", "fixed", "pair"]
FILTERS: dict[Any, tuple[Any, Callable[[dict[str, Any]], bool]]] = {
    "none": (None, lambda row: True),
    "key": ({"key": 1}, lambda row: row["key"] == 1),
    "keys": ({"key": [0, 2, None]}, lambda row: row["key"] in (0, 2, None)),
    "label": ({"label": "a1"}, lambda row: row["label"] == "a1"),
    "no label": ({"label": None}, lambda row: row["label"] is None),
    "both": (
        {"word": ["a1", "c"], "weight": [1, 2]},
        lambda row: row["word"] in ("a1", "c") and row["weight"] in (1, 2),
    ),
    "sql": (
        "key > 0 AND weight <= key",
        lambda row: (
            all(row[n] is not None for n in ("key", "weight")) and row["weight"] <= row["key"] > 0
        ),
    ),
    "sql or": (
        "letter = 'b' OR label IS NULL",
        lambda row: row["letter"] == "b" or row["label"] is None,
    ),
    "struct": ("pair.size = 1", lambda row: row["pair"]["size"] == 1),
    "constant": ({"fixed": "yes"}, lambda row: True),
    "another constant": ({"fixed": "no"}, lambda row: False),
}


@pytest.mark.examples(6)
@settings(max_examples=20)  # of 0.1 s each; every example is a whole description
@given(tables())
def test_joined_records_are_those_of_a_nested_loop(case: dict[str, Any]) -> None:
    filters, passes = FILTERS[case["filters"]]
    with tempfile.TemporaryDirectory() as folder, dataset_of(Path(folder), case) as dataset:
        lazy = dataset.records("joined", filters=filters, columns=case["columns"])
        ours = list(lazy)
        assert lazy.count() == len(ours)
        assert lazy.to_arrow().to_pylist() == ours
    names = case["columns"] or NAMES
    expected = [row for row in by_hand(case) if passes(row)]
    assert [short(row) for row in ours] == [{name: row[name] for name in names} for row in expected]


def dataset_of(folder: Path, case: dict[str, Any]) -> Any:
    write_rows(folder / case["left_name"], ["key", "word", "size"], case["left"])
    left, right = case["left_name"], case["right_name"]
    kind = "sc:Text" if case["text_keys"] else "sc:Integer"
    resources = [file_object(left)]
    if case["inline"]:
        data = [{f"right/{name}": value for name, value in row.items()} for row in case["right"]]
        sources: list[Any] = [None, None, None]
        more: dict[str, Any] = {"data": data}
    else:
        write_rows(folder / right, ["id", "label", "weight"], case["right"])
        resources.append(file_object(right))
        sources, more = [column(right, name) for name in ("id", "label", "weight")], {}
    right_set = record_set(
        "right",
        field("right/id", kind, sources[0]),
        field("right/label", "sc:Text", sources[1]),
        field("right/weight", "sc:Integer", sources[2]),
        **more,
    )
    joined = record_set(
        "joined",
        field("joined/key", "sc:Integer", column(left, "key"), references=other("right/id")),
        field("joined/word", "sc:Text", column(left, "word")),
        field(
            "joined/letter", "sc:Text", column(left, "word", transform={"regex": "([a-z])[0-9]"})
        ),
        field("joined/label", None, other("right/label")),
        field("joined/weight", None, other("right/weight")),
        field("joined/fixed", "sc:Text", value="yes"),
        field(
            "joined/pair",
            None,
            subField=[
                field("joined/pair/size", "sc:Integer", column(left, "size")),
                field("joined/pair/label", None, other("right/label")),
            ],
        ),
    )
    return described(folder, resources, [right_set, joined])


def by_hand(case: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for row in case["left"]:
        partners = [
            one for one in case["right"] if row["key"] is not None and one["id"] == row["key"]
        ] or [{"label": None, "weight": None}]
        word = row["word"]
        made += [
            {
                "key": row["key"],
                "word": word,
                "letter": word[0] if word in ("a1", "b2") else None,
                "label": one["label"],
                "weight": one["weight"],
                "fixed": "yes",
                "pair": {"size": row["size"], "label": one["label"]},
            }
            for one in partners
        ]
    return made


def short(row: dict[str, Any]) -> dict[str, Any]:
    """A record under short names."""
    return {
        key.rpartition("/")[2]: short(value) if isinstance(value, dict) else value
        for key, value in row.items()
    }
