"""What a syntax tree says about a file: errors, and how errors, conditions and indices look."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.data.curation.corruption import comparison, nodes, text_of
from holdfast.data.curation.influence_scores import FloatArray
from holdfast.data.curation.languages import Language

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from tree_sitter import Node

BUCKETS = 1 << 15
_WRAPPER = re.compile(r"block|(compound|expression)_statement|statement_(block|list)")


@dataclass(frozen=True)
class SyntaxFeatures:
    """Of one file.

    Args:
        size: in bytes.
        errors: nodes that the grammar does not allow, or misses.
        measures: numbers about errors and brackets.
        patterns: of errors, conditions and indices -> how often, hashed.
    """

    size: int
    errors: int
    measures: tuple[float, ...]
    patterns: dict[int, int]


def syntax_features(source: bytes, language: Language) -> SyntaxFeatures:
    """Parse a file and count."""
    root = language.parse(source).root_node
    count = inside = 0
    kinds: Counter[str] = Counter()
    errors: list[str] = []  # what the grammar did not expect: macros look other than corruptions
    for node in nodes(root):
        count += 1
        if node.is_error or node.is_missing:
            errors.append(f"error {node.type} {[child.type for child in node.children[:3]]}")
            inside += node.end_byte - node.start_byte
        if node.child_count == 0 and len(node.type) == 1:
            kinds[node.type] += 1
    unbalanced = sum(abs(kinds[a] - kinds[b]) for a, b in ("()", "[]", "{}"))
    measures = (
        np.log1p(len(errors)),
        np.log1p(1000 * len(errors) / count),
        inside / max(len(source), 1),
        np.log1p(unbalanced),
        float(len(errors) > 0),
    )
    patterns: Counter[int] = Counter()
    for pattern in [*errors, *_patterns(root, language)]:
        patterns[zlib.crc32(f"{language.name} {pattern}".encode()) % BUCKETS] += 1
    return SyntaxFeatures(len(source), len(errors), measures, patterns)


def _patterns(root: Node, language: Language) -> Iterator[str]:
    for captures in language.matches(root):
        for node in captures.get("condition", ()):
            shape, before = _shape(node, language)
            follows = _follows(node)
            yield f"if {shape}"
            yield f"if {shape} then {follows}"
            yield f"if {shape} of {before}"
            yield f"if {shape} of {before} then {follows}"
        for node in captures.get("index", ()):
            text = text_of(node)
            yield f"[] {text[:20]}"
            yield f"[] {node.type}"
            if node.parent is not None:
                yield f"of {text_of(node.parent)[:30]}"
                if node.parent.parent is not None:
                    yield f"[] {node.type} {text[:20]} in {node.parent.parent.type}"


def _shape(node: Node, language: Language) -> tuple[str, str]:
    """Operator and right side of a comparison, or whether something is negated; and the rest."""
    if operator := comparison(node):
        left, right = node.named_children
        return operator[2], f"{left.type} {text_of(right)[:16]}"
    if node.type in ("not_operator", "unary_expression") and node.named_children:
        inner = node.named_children[-1]
        return "not", f"{inner.type} {_name(inner)}"
    return "", f"{node.type} {_name(node)}"


def _name(node: Node) -> str:
    return text_of(node).split("(")[0].split(".")[-1][:16]


def _follows(node: Node) -> str:
    """The first statement under a condition, and whether there is another branch."""
    owner = node.parent
    if owner is not None and owner.type == "parenthesized_expression":
        owner = owner.parent
    if owner is None:
        return ""
    body = owner.child_by_field_name("consequence") or owner.child_by_field_name("body")
    first = body
    while first is not None and first.named_child_count and _WRAPPER.fullmatch(first.type):
        first = first.named_children[0]
    other = "else" if owner.child_by_field_name("alternative") else ""
    return f"{owner.type} {first.type if first else ''} {other}"


def matrix(features: Sequence[SyntaxFeatures]) -> tuple[FloatArray, csr_matrix]:
    """Measures ``[n, 5]``, and log counts of patterns ``[n, BUCKETS]``."""
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(len(features)), [len(file.patterns) for file in features])
    columns = [bucket for file in features for bucket in file.patterns]
    counts = [np.log1p(count) for file in features for count in file.patterns.values()]
    return (
        np.array([file.measures for file in features]),
        csr_matrix((counts, (rows, columns)), shape=(len(features), BUCKETS)),
    )
