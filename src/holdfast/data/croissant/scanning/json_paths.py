"""JSONPaths as DuckDB can follow them: members and places, `[*]` (or `.*`) and `..`.

Such as ``$.images[*].id``, ``answers.text``, ``$..rating``. Filters, slices and unions are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile

from holdfast.data.croissant.scanning.columns import Column
from holdfast.data.croissant.scanning.nested import each, element, map_value, members
from holdfast.errors import InputError
from holdfast.tables import literal

_STEP = re.compile(
    r"""(?P<deep>\.\.)(?P<below>[^\W\d][\w-]*)
    | \.?(?P<name>[^\W\d][\w-]*)
    | \[\s*'(?P<single>[^'\\]*)'\s*\] | \[\s*"(?P<double>[^"\\]*)"\s*\]
    | \.?'(?P<bare_single>[^'\\]*)' | \.?"(?P<bare_double>[^"\\]*)"
    | \[(?P<place>\d+)\] | (?P<all>\[\*\]|\.\*)""",
    re.VERBOSE,
)


_NAME = re.compile(r'\w+|"[^"]+"')  # of a column or a variable, in SQL


@dataclass(frozen=True)
class Deep:
    """The step ``..name``: members of that name at any depth."""

    name: str


_TEXTS = ("JSON", "VARCHAR", "BLOB")
"""Types of columns that hold JSON as it is written, maybe with a key twice."""
Step = str | int | None | Deep
"""A member's name, an element's place from 0, None for every element (``[*]``), or `Deep`."""


def steps_of(path: str) -> tuple[Step, ...]:
    """The steps of a path.

    Raises:
        InputError: text that is not a JSONPath, or one with a filter, a slice or a union.
    """
    rest = path.strip()
    steps: list[Step] = []
    place = 1 if rest.startswith("$") else 0
    while place < len(rest):
        match = _STEP.match(rest, place)
        if match is None or (match.start() == 0 and rest[0] == "."):
            raise InputError(
                f"{path!r} is not a supported JSONPath",
                code="invalid-syntax",
                found=repr(rest[place:]),
                expected="members, places, [*] and .., such as $.images[*].id or $.answers[0].text",
            )
        place = match.end()
        names = (
            match[group] for group in ("name", "single", "double", "bare_single", "bare_double")
        )
        name = next((text for text in names if text is not None), None)
        if match["deep"]:
            steps.append(Deep(match["below"]))
        elif match["place"]:
            steps.append(int(match["place"]))
        elif match["all"]:
            steps.append(None)
        else:
            steps.append(name)
    return tuple(steps)


def leading(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps before the first that may find several values."""
    return tuple(takewhile(lambda step: isinstance(step, str | int), steps))


def duckdb_path(steps: Sequence[Step]) -> str:
    """Steps as DuckDB's JSON functions take them."""

    def written(step: Step) -> Iterator[str]:
        if step is None:
            yield "[*]"
        elif isinstance(step, int):
            yield f"[{step}]"
        else:
            name = step.name if isinstance(step, Deep) else step
            yield (".." if isinstance(step, Deep) else ".") + '"' + name.replace('"', '\\"') + '"'

    return "$" + "".join(text for step in steps for text in written(step))


def first_match(column: Column, path: str) -> Column:
    """The first thing that a path finds in each value.

    Members of a list are asked one by one: a path that begins with a name gives a list, of what it finds
    in each element.

    Raises:
        InputError: a path that is none; a member that the type lacks.
    """
    return _follow(column, steps_of(path), path)


def every_match(column: Column, path: str) -> Column | None:
    """All that a path with ``[*]`` or ``..`` finds in each value, as a list; of lists, their elements.

    None where the path can find one thing at most.
    """
    steps = steps_of(path)
    if not any(step is None or isinstance(step, Deep) for step in steps):
        return None
    x = _json(column)
    if column.type in _TEXTS:
        x = unique(x, [steps])
    values = "CASE json_type(one) WHEN 'ARRAY' THEN json_extract(one, '$[*]') ELSE [one] END"
    found = f"flatten(list_transform({all_matches(x, steps)}, lambda one: {values}))"
    return Column(f"CASE WHEN {x} IS NULL THEN NULL ELSE {found} END", "JSON[]")


def element_match(column: Column, path: str) -> Column | None:
    """What a path with one ``[*]`` finds in each element of the list there: null for nothing.

    So that the lists of several paths stay side by side. None where the path is another.
    """
    steps = steps_of(path)
    if steps.count(None) != 1 or any(isinstance(step, Deep) for step in steps):
        return None
    if column.type not in _TEXTS:
        return _follow(column, tuple(step for step in steps if step is not None), path)
    place = steps.index(None)
    held = f"json_extract({unique(_json(column), [steps])}, {literal(duckdb_path(steps[:place]))})"
    held = f"nullif(CAST({held} AS VARCHAR), 'null')"
    found = f"json_extract(part, {literal(duckdb_path(steps[place + 1 :]))})"
    return Column(f"list_transform(json_extract({held}, '$[*]'), lambda part: {found})", "JSON[]")


def member(column: Column, names: Sequence[str], path: str) -> Column:
    """A nested column by the names of structs' members; of lists, elementwise.

    Raises:
        InputError: a member that the type lacks.
    """
    return _follow(column, tuple(names), path)


def _follow(column: Column, steps: tuple[Step, ...], path: str) -> Column:
    if not steps:
        return column
    step, rest = steps[0], steps[1:]
    if column.type in _TEXTS:
        return _follow_json(column, steps)
    if element(column.type):
        if isinstance(step, str):
            return each(column, lambda inner: _follow(inner, steps, path))
        if not isinstance(step, Deep):
            inner = element(column.type) or ""
            place = (step or 0) + 1
            return _follow(Column(f"list_extract({column.sql}, {place})", inner), rest, path)
    struct = members(column.type)
    if isinstance(step, Deep) and (struct is not None or element(column.type)):
        return _follow_json(column, steps)
    if isinstance(step, str) and struct is not None:
        if step not in struct:
            near = get_close_matches(step, struct, n=1)
            raise InputError(
                f"the path {path!r} leads to no value: there is no member {step!r}",
                code="missing-key",
                found=", ".join(struct),
                expected=step,
                remedy=f"did you mean {near[0]!r}?" if near else "name one of the members found",
            )
        inner_column = Column(f"struct_extract({column.sql}, {literal(step)})", struct[step])
        return _follow(inner_column, rest, path)
    value = map_value(column.type)
    if isinstance(step, str) and value is not None:
        return _follow(Column(f"{column.sql}[{literal(step)}]", value), rest, path)
    raise InputError(
        f"the path {path!r} leads to no value",
        code="missing-key",
        found=f"values of type {column.type}",
        expected="a struct, a map, a list or JSON",
    )


def _follow_json(column: Column, steps: tuple[Step, ...]) -> Column:
    x = _json(column)

    def found(value: str) -> str:
        if column.type in _TEXTS:
            value = unique(value, [steps])
        return f"list_extract({all_matches(value, steps)}, 1)"

    if isinstance(steps[0], str):
        each_found = f"list_transform(json_extract({x}, '$[*]'), lambda part: {found('part')})"
        return Column(
            f"CASE json_type({x}) WHEN 'ARRAY' THEN to_json({each_found}) ELSE {found(x)} END",
            "JSON",
        )
    return Column(found(x), "JSON")


def _json(column: Column) -> str:
    """A column as JSON: text is JSON text, anything else becomes it."""
    if column.type == "JSON":
        return column.sql
    if column.type in ("VARCHAR", "BLOB"):
        return (
            f"CAST({column.sql if column.type == 'VARCHAR' else f'decode({column.sql})'} AS JSON)"
        )
    return f"to_json({column.sql})"


def all_matches(json: str, steps: Sequence[Step]) -> str:
    """All that simple steps find in a JSON value, in order, as a list of JSON.

    ``[*]`` of an object is its members' values, as in RFC 9535; of anything that holds nothing, nothing.
    """
    found = f"[{json}]"
    place = 0
    while place < len(steps):
        name = f"value{place}"
        step = steps[place]
        end = place + 1
        if step is None:
            inner = (
                f"CASE json_type({name}) WHEN 'ARRAY' THEN json_extract({name}, '$[*]') "
                f"WHEN 'OBJECT' THEN json_extract({name}, '$.*') ELSE [] END"
            )
            found = f"flatten(list_transform({found}, lambda {name}: {inner}))"
        elif isinstance(step, Deep):
            deep = f"json_extract({name}, {literal(duckdb_path([step]))})"
            found = f"flatten(list_transform({found}, lambda {name}: {deep}))"
        else:
            while end < len(steps) and isinstance(steps[end], str | int):
                end += 1
            path = literal(duckdb_path(steps[place:end]))
            there = f"list_filter({found}, lambda {name}: json_exists({name}, {path}))"
            found = f"list_transform({there}, lambda {name}: json_extract({name}, {path}))"
        place = end
    return found


def unique(value: str, ways: Iterable[Sequence[Step]]) -> str:
    """A JSON value in which the objects that ways lead through have no key twice; else the query fails.

    Of two members with one name, DuckDB's functions take the first, and every other reader the last.
    """
    name = value if _NAME.fullmatch(value) else "whole"
    tests = []
    for prefix in sorted({tuple(way[:end]) for way in ways for end in range(len(way))}, key=len):
        if leading(prefix) == prefix:
            keys = f"json_keys({name}, {literal(duckdb_path(prefix))})"
            tests.append(f"len(list_distinct({keys})) < len({keys})")
        else:
            tests.append(_twice_in(all_matches(name, prefix)))
    if any(isinstance(step, Deep) for way in ways for step in way):
        tests.append(_twice_in(f"json_extract({name}, '$..*')"))
    if not tests:
        return value
    wrong = f"CAST('a key twice in: ' || left(CAST({name} AS VARCHAR), 80) AS JSON)"
    checked = f"CASE WHEN {' OR '.join(tests)} THEN {wrong} ELSE {name} END"
    # A value that is computed is named, so that it is computed once.
    return checked if name == value else f"list_transform([{value}], lambda whole: {checked})[1]"


def _twice_in(values: str) -> str:
    """Whether one of a list of JSON values is an object that has a key twice."""
    twice = "len(list_distinct(json_keys(each))) < len(json_keys(each))"
    return f"len(list_filter({values}, lambda each: {twice})) > 0"
