"""Corrupted copies of source files: what changes, in which languages, and what still parses."""

from __future__ import annotations

import ast
import inspect
import io
import json.decoder
import operator
import re
import shlex
import textwrap
import tokenize
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.curation.corruption import FAMILIES, corrupt
from holdfast.data.curation.languages import language_of
from holdfast.data.curation.syntax_features import syntax_features
from holdfast.errors import InputError

SOURCES = {
    ".py": "def f(x, b):\n    for i in x:\n        if b[i] == 1:\n            return b[0]\n",
    ".js": "function f(x, b) { for (let i = 0; i < 3; i++) { if (b[i] === 1) { return b[0]; } } }\n",
    ".c": "int f(int *b) { for (int i = 0; i < 3; i++) { if (b[i] == 1) { return b[0]; } } return 0; }\n",
    ".java": "class A { int f(int[] b) { for (int i : b) { if (b[i] == 1) { return b[0]; } } } }\n",
    ".go": "package a\n\nfunc f(b []int) int {\n\tfor i := range b {\n\t\tif b[i] == 1 {\n"
    "\t\t\treturn b[0]\n\t\t}\n\t}\n\treturn 0\n}\n",
    ".rs": "fn f(b: &[i32]) -> i32 { for i in 0..3 { if b[i] == 1 { return b[0]; } } 0 }\n",
}


@pytest.mark.parametrize("suffix", SOURCES)
@pytest.mark.parametrize("corruption", ["brackets", "loop-variables", "conditions", "indices"])
def test_every_language_has_every_corruption(suffix: str, corruption: str) -> None:
    source, language = SOURCES[suffix].encode(), language_of(suffix)
    assert language is not None
    assert not language.parse(source).root_node.has_error
    corrupted = corrupt(source, language, corruption)  # type: ignore[arg-type]
    assert corrupted is not None
    assert corrupted != source
    assert language.parse(corrupted).root_node.has_error == (corruption in FAMILIES["syntax"])
    assert (syntax_features(corrupted, language).errors > 0) == (corruption in FAMILIES["syntax"])


@pytest.mark.parametrize(
    ("condition", "inverted"),
    [
        ("a == b", "a != b"),
        ("a <  b", "a >=  b"),
        ("a is not None", "a is None"),
        ("a not in b", "a in b"),
        ("not a", "a"),
        ("a", "not a"),
        ("f(a).b", "not f(a).b"),
        ("a and b", "not (a and b)"),
        ("a < b < c", "not (a < b < c)"),
    ],
)
def test_conditions_are_inverted_as_a_programmer_would(condition: str, inverted: str) -> None:
    language = language_of(".py")
    assert language is not None
    source = f"if {condition}:\n    pass\n".encode()
    assert corrupt(source, language, "conditions") == f"if {inverted}:\n    pass\n".encode()


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        ("0", {"1"}),
        ("3", {"2", "4"}),
        ("-1", {"-2", "0"}),
        ("i", {"i + 1", "i - 1"}),
        ("i+1", {"i", "i+2"}),
        ("i - 1", {"i", "i - 2"}),
        ("'key'", {None}),
        ("1:2", {None}),
        ("int", {None}),
        ("Name", {None}),
    ],
)
def test_indices_are_off_by_one_and_keys_are_not(index: str, changes: set[str | None]) -> None:
    language = language_of(".py")
    assert language is not None
    results = {corrupt(f"a[{index}]".encode(), language, "indices", seed=s) for s in range(20)}
    assert results == {None if one is None else f"a[{one}]".encode() for one in changes}


@given(st.text(alphabet="if(a)[]{}:\n 1<=!éx", max_size=80), st.sampled_from(list(SOURCES)))
def test_any_text_is_corrupted_or_left(text: str, suffix: str) -> None:
    language = language_of(suffix)
    assert language is not None
    for corruption in ("brackets", "loop-variables", "conditions", "indices"):
        corrupted = corrupt(text.encode(), language, corruption, 0.5, 1)  # type: ignore[arg-type]
        assert corrupted is None or corrupted.decode() != text
    assert syntax_features(text.encode(), language).errors >= 0


def test_what_the_grammar_adds_is_left() -> None:
    """A tree has nodes for what a broken file lacks."""
    for corruption in ("conditions", "indices"):
        assert corrupt(b"int f() { if () x[]; }", "c", corruption) is None  # type: ignore[arg-type]


def test_unknown_names_are_refused() -> None:
    for language, corruption in (("cobol", "brackets"), ("python", "spelling")):
        with pytest.raises(InputError) as caught:
            corrupt(b"f(1)", language, corruption)  # type: ignore[arg-type]
        assert caught.value.code == "unknown-name"


# --- Python's own parser and interpreter as the oracle --------------------------------------------

REAL = (textwrap, json.decoder, shlex)


def trees(module: ModuleType, corruption: Any) -> list[ast.AST]:
    """What Python reads of real code and of its corrupted copy: content still parses."""
    source = inspect.getsource(module).encode()
    corrupted = corrupt(source, "python", corruption)
    assert corrupted is not None
    return [ast.parse(source), ast.parse(corrupted)]


def in_order(tree: ast.AST, *kinds: type) -> list[Any]:
    found: list[Any] = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset, n.end_lineno, n.end_col_offset))


OPPOSITES = (
    {ast.Eq, ast.NotEq}, {ast.Lt, ast.GtE}, {ast.Gt, ast.LtE}, {ast.Is, ast.IsNot}, {ast.In, ast.NotIn}
)  # fmt: skip


def opposite(before: ast.expr, after: ast.expr) -> bool:
    """Whether one of two conditions is the other, negated."""
    for one, other in ((before, after), (after, before)):
        if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not):
            return ast.dump(one.operand) == ast.dump(other)
    assert isinstance(before, ast.Compare)
    assert isinstance(after, ast.Compare)
    operands = [[ast.dump(part) for part in (c.left, *c.comparators)] for c in (before, after)]
    return operands[0] == operands[1] and {type(before.ops[0]), type(after.ops[0])} in OPPOSITES


@pytest.mark.parametrize("module", REAL)
def test_all_conditions_of_real_code_are_negated(module: ModuleType) -> None:
    old, new = (in_order(tree, ast.If, ast.While) for tree in trees(module, "conditions"))
    assert len(old) == len(new) > 10
    for before, after in zip(old, new, strict=True):
        assert opposite(before.test, after.test), ast.unparse(before.test)


class Ten:
    """A name of any value: each of its attributes is 10."""

    def __getattr__(self, name: str) -> int:
        return 10


@pytest.mark.parametrize("module", REAL)
def test_indices_of_real_code_are_off_by_one(module: ModuleType) -> None:
    old, new = (in_order(tree, ast.Subscript) for tree in trees(module, "indices"))
    changed = 0
    for before, after in zip(old, new, strict=True):
        texts = [ast.unparse(node.slice) for node in (before, after)]
        if any(isinstance(node, ast.Subscript | ast.Slice) for node in ast.walk(before.slice)):
            continue
        if texts[0] == texts[1]:
            assert isinstance(before.slice, ast.Constant | ast.Call | ast.Tuple | ast.BinOp), texts
            assert not isinstance(getattr(before.slice, "value", ""), int), texts
            continue
        names = {name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text)}
        plain = {name: Ten() if f"{name}." in texts[0] else 10 for name in names}
        assert abs(eval(texts[1], plain) - eval(texts[0], plain)) == 1, texts
        changed += 1
    assert changed


def names_in(lines: list[str], name: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(textwrap.dedent("".join(lines))).readline)
    return sum(token.type == tokenize.NAME and token.string == name for token in tokens)


def test_a_loop_variable_is_renamed_wherever_the_loop_names_it() -> None:
    source = (
        "for i in rows:\n    for j in i:\n        f(i, j, ij)\n    print(i)\ni = j = 2\n"
        "def g():\n    for k in x:  # k\n        yield k, 'k', a.i\n    return k\n"
    )
    corrupted = (corrupt(source.encode(), "python", "loop-variables") or b"").decode()
    lines = source.splitlines(keepends=True)
    for loop in in_order(ast.parse(source), ast.For):
        count = names_in(lines[loop.lineno - 1 : loop.end_lineno], loop.target.id)
        assert len(re.findall(rf"\b1_{loop.target.id}\b", corrupted)) == count
    assert corrupted.replace("1_", "") == source
    for kind, seed in product(("loop-variables", "brackets"), range(12)):  # one place each
        one = corrupt(source.encode(), "python", kind, 0.0, seed)  # type: ignore[arg-type]
        assert one is not None
        with pytest.raises(SyntaxError):
            compile(one, "copy", "exec")


# --- Conditions of six languages, evaluated -------------------------------------------------------

CONDITIONS = {
    "python": "if {}:\n    f()\n",
    "javascript": "while ({}) {{ f(); }}\n",
    "c": "int g() {{ if ({}) return 1; else return 2; }}\n",
    "java": "class A {{ void g() {{ if ({}) {{ f(); }} }} }}\n",
    "go": "package a\n\nfunc g() {{\n\tif {} {{\n\t\tf()\n\t}}\n}}\n",
    "rust": "fn g() {{ while {} {{ f(); }} }}\n",
}


class Bit(int):
    """A number that `~` negates as `!` does in C, before it is compared."""

    __hash__ = int.__hash__

    def __invert__(self) -> Bit:
        return Bit(not self)


def _compared(name: str) -> Callable[[Any, Any], Bit]:
    return lambda one, other: Bit(getattr(operator, name)(int(one), int(other)))


for _name in ("eq", "ne", "lt", "gt", "le", "ge"):
    setattr(Bit, f"__{_name}__", _compared(_name))


def truths(condition: str) -> list[bool]:
    """The truth of a condition for all values of its variables, by Python's interpreter."""
    text = re.sub(r"!(?!=)", "~", condition.replace("===", "==").replace("!==", "!="))
    text = text.replace("&&", " and ").replace("||", " or ")
    values = product(map(Bit, range(3)), repeat=2)
    return [bool(eval(text, {"a": a, "b": b, "o": (Bit(1), Bit(2))})) for a, b in values]


conditions = st.recursive(
    st.sampled_from(["a", "b", "!a", "a == b", "a != b", "a < b", "a >= b", "a > b", "b <= a"]),
    lambda inner: st.one_of(
        inner.map("({})".format),
        inner.map("!({})".format),
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(" ".join),
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("language", CONDITIONS)
@given(condition=conditions)
def test_an_inverted_condition_is_true_where_the_other_is_false(
    language: str, condition: str
) -> None:
    if language == "python":
        condition = re.sub(r"!(?!=)", "not ", condition)
        condition = condition.replace("&&", "and").replace("||", "or")
    before, after = CONDITIONS[language].format("\0").split("\0")
    corrupted = corrupt((before + condition + after).encode(), language, "conditions")
    assert corrupted is not None
    inverted = corrupted.decode().removeprefix(before).removesuffix(after)
    assert truths(inverted) == [not each for each in truths(condition)]


@pytest.mark.parametrize(
    ("language", "condition", "inverted"),
    [
        ("javascript", "a in o", "!(a in o)"),  # `not in` is no operator of it
        ("javascript", "a === b", "a !== b"),
        ("javascript", "a instanceof B", "!(a instanceof B)"),
        ("java", "a instanceof B c && c.d()", "!(a instanceof B c && c.d())"),
        ("rust", "let Some(a) = b", None),
        ("rust", "let Some(a) = b && a == 2", None),  # patterns have no negation
        ("c", "a = g()", "!(a = g())"),
        ("c", "*a", "!(*a)"),
        ("c", "a->b", "!a->b"),
        ("python", "a := g()", "not (a := g())"),
    ],
)
def test_content_that_a_language_alone_has_still_parses(
    language: str, condition: str, inverted: str | None
) -> None:
    source = CONDITIONS[language].format(condition).encode()
    suffix = {"python": ".py", "javascript": ".js", "rust": ".rs", "java": ".java", "c": ".c"}
    grammar = language_of(suffix[language])
    assert grammar is not None
    assert not grammar.parse(source).root_node.has_error
    corrupted = corrupt(source, language, "conditions")
    if inverted is None:
        assert corrupted is None
        return
    assert corrupted == CONDITIONS[language].format(inverted).encode()
    assert not grammar.parse(corrupted).root_node.has_error


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        ("010", {None}),  # eight in C: 11 is not next to it
        ("i + 010", {None}),
        ("0x10", {None}),
        ("i++", {None}),
        ("10", {"9", "11"}),
        ("n->k + 9", {None}),
        ("i+0", {"i+1", "i-1"}),
        ("99999999999999999999", {"100000000000000000000", "99999999999999999998"}),
    ],
)
def test_numbers_that_c_reads_otherwise_are_left(index: str, changes: set[str | None]) -> None:
    copies = {corrupt(f"int x = a[{index}];".encode(), "c", "indices", seed=s) for s in range(20)}
    assert copies == {None if one is None else f"int x = a[{one}];".encode() for one in changes}


# --- The same file in another form ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", SOURCES)
@pytest.mark.parametrize("corruption", ["brackets", "loop-variables", "conditions", "indices"])
def test_ends_of_lines_and_letters_before_change_no_corruption(
    suffix: str, corruption: Any
) -> None:
    language = language_of(suffix)
    assert language is not None
    source = SOURCES[suffix].encode()
    expected = corrupt(source, language, corruption, 0.5, 3)
    assert expected is not None
    crlf = corrupt(source.replace(b"\n", b"\r\n"), language, corruption, 0.5, 3)
    assert crlf == expected.replace(b"\n", b"\r\n")
    mark = b"#" if suffix == ".py" else b"//"
    remark = mark + " \u00e9 \u6f22 \U0001f600 ([{ if\n".encode()
    assert corrupt(remark + source, language, corruption, 0.5, 3) == remark + expected


@given(st.integers(0, 40), st.floats(0, 1), st.integers(0, 2**32))
def test_the_share_of_places_is_rounded_and_at_least_one(
    places: int, rate: float, seed: int
) -> None:
    source = b"a[i]\n" * places
    corrupted = corrupt(source, "python", "indices", rate, seed)
    if not places:
        assert corrupted is None
        return
    assert corrupted is not None
    lines = zip(source.splitlines(), corrupted.splitlines(), strict=True)
    assert sum(a != b for a, b in lines) == max(1, round(rate * places))
    assert corrupted == corrupt(source, "python", "indices", rate, seed)
