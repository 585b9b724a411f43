"""Synthetic corruptions of source code, on its syntax tree.

Those of SCIP (arXiv 2312.02418). Syntax: closing brackets are removed, loop variables get names that no
language allows. Content: conditions are inverted, indices are off by one; the file still parses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from holdfast.data.curation.choices import one_of
from holdfast.data.curation.languages import Language, language_named

if TYPE_CHECKING:
    from tree_sitter import Node

Corruption = Literal["brackets", "loop-variables", "conditions", "indices"]
Edit = tuple[int, int, bytes]
"""Start and end in bytes, and what stands there afterwards."""

FAMILIES: dict[str, tuple[Corruption, ...]] = {
    "syntax": ("brackets", "loop-variables"),
    "content": ("conditions", "indices"),
}
_PAIRS = [
    ("==", "!="),
    ("===", "!=="),
    ("<", ">="),
    (">", "<="),
    ("is", "is not"),
    ("in", "not in"),
]
_OPPOSITES = dict(_PAIRS) | {second: first for first, second in _PAIRS}
_COMPARISONS = ("binary_expression", "comparison_operator")
# What can be negated without parentheses.
_SIMPLE = re.compile(
    r"identifier|.*call.*|attribute|.*member.*|field_(access|expression)|selector_expression"
    r"|subscript.*|array_access|index_expression|true|false|boolean_literal|method_invocation"
)
_NOT_INDICES = {"int", "str", "float", "bytes", "bool", "object", "type", "dict", "list", "tuple"}


def corrupt(
    source: bytes,
    language: Language | str,
    corruption: Corruption,
    rate: float = 1.0,
    seed: int = 0,
) -> bytes | None:
    """A corrupted copy of a file; None where it has no place for this corruption.

    Args:
        source: UTF-8.
        language: python, javascript, c, java, go or rust.
        corruption: brackets, loop-variables, conditions or indices.
        rate: share of the places that are changed, at least one.
        seed: of the choice.

    Raises:
        InputError: an unknown language or corruption.
    """
    if isinstance(language, str):
        language = language_named(language)
    one_of("corruption", corruption, _PLACES)
    rng = random.Random(seed)
    places = list(_PLACES[corruption](language.parse(source).root_node, language, rng))
    if not places:
        return None
    sample = rng.sample(places, max(1, round(rate * len(places))))
    return _edited(source, sorted({edit for place in sample for edit in place}))


def _edited(source: bytes, edits: Sequence[Edit]) -> bytes:
    """The source with edits made; one that overlaps an earlier one is left out."""
    parts, at = [], 0
    for start, end, text in edits:
        if start >= at:
            parts += [source[at:start], text]
            at = end
    return b"".join([*parts, source[at:]])


def nodes(root: Node) -> Iterator[Node]:
    """Every node of a tree, each before those below it."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def text_of(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode(errors="replace")


def _brackets(root: Node, language: Language, rng: random.Random) -> Iterator[list[Edit]]:
    for node in nodes(root):
        if node.type in (")", "]", "}") and node.end_byte > node.start_byte:
            yield [(node.start_byte, node.end_byte, b"")]


def _loop_variables(root: Node, language: Language, rng: random.Random) -> Iterator[list[Edit]]:
    for captures in language.matches(root):
        for variable in captures.get("variable", ()):
            name = variable.text
            yield [
                (node.start_byte, node.end_byte, b"1_" + (name or b""))
                for node in nodes(captures["loop"][0])
                if node.type == variable.type and node.text == name
            ]


def _conditions(root: Node, language: Language, rng: random.Random) -> Iterator[list[Edit]]:
    for captures in language.matches(root):
        for node in captures.get("condition", ()):
            # `let` and chains of it in Rust bind names: they have no negation.
            if node.type[:4] != "let_" and not node.is_missing:
                yield [_inverted(node, language)]


def _inverted(node: Node, language: Language) -> Edit:
    """As a programmer would write it: another comparison, a negation less, or one more."""
    if operator := comparison(node):
        start, end, text = operator
        return start, end, _OPPOSITES[text].encode()
    text = text_of(node)
    if node.type in ("not_operator", "unary_expression") and text.startswith(language.negation):
        return node.start_byte, node.end_byte, text.removeprefix(language.negation).encode()
    negated = text if _SIMPLE.fullmatch(node.type) else f"({text})"
    return node.start_byte, node.end_byte, f"{language.negation}{negated}".encode()


def comparison(node: Node) -> tuple[int, int, str] | None:
    """Start, end and operator of a comparison of two operands; None for all else."""
    if node.type not in _COMPARISONS or node.named_child_count != 2:
        return None
    left, right = node.named_children
    between = (node.text or b"")[
        left.end_byte - node.start_byte : right.start_byte - node.start_byte
    ]
    operator = " ".join(between.decode(errors="replace").split())
    # Words are comparisons in Python alone: `in` of JavaScript has no negative form.
    if operator not in _OPPOSITES or (operator.isalpha() and node.type == _COMPARISONS[0]):
        return None
    start = left.end_byte + len(between) - len(between.lstrip())
    return start, start + len(between.strip()), operator


def _indices(root: Node, language: Language, rng: random.Random) -> Iterator[list[Edit]]:
    for captures in language.matches(root):
        for node in captures.get("index", ()):
            changed = _off_by_one(text_of(node), node, rng)
            if changed is not None:
                yield [(node.start_byte, node.end_byte, changed.encode())]


def _off_by_one(text: str, node: Node, rng: random.Random) -> str | None:
    """Shift an index by one; None for keys, slices and types."""
    step = rng.choice((-1, 1))
    if re.fullmatch(r"-?(0|[1-9]\d*)", text):
        return str(int(text) + (1 if text == "0" else step))
    if offset := re.fullmatch(r"([\w.]+)( ?)([+-])( ?)(0|[1-9]\d*)", text):
        name, before, sign, after, size = offset.groups()
        total = int(sign + size) + step
        return f"{name}{before}{'+' if total > 0 else '-'}{after}{abs(total)}" if total else name
    if node.type == "identifier" and text not in _NOT_INDICES and text[:1].islower():
        return f"{text} {'+' if step > 0 else '-'} 1"
    return None


_PLACES: dict[Corruption, Callable[[Node, Language, random.Random], Iterator[list[Edit]]]] = {
    "brackets": _brackets,
    "loop-variables": _loop_variables,
    "conditions": _conditions,
    "indices": _indices,
}
