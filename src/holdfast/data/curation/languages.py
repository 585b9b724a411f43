"""Programming languages: their tree-sitter grammars, and where loops, conditions and indices are in a tree.

Each query captures, in the terms of its grammar, `loop` with its `variable`, `condition` (what an if or a
while tests, without parentheses) and `index` (of an array).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.data.curation.choices import one_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query, Tree

_C_CONDITIONS = """
    (if_statement condition: (parenthesized_expression (_) @condition))
    (while_statement condition: (parenthesized_expression (_) @condition))
"""


@dataclass(frozen=True)
class Language:
    """A language that corruptors know.

    Args:
        name: as the package of its grammar, ``tree_sitter_NAME``, ends.
        suffixes: of its files.
        sites: query of loops, conditions and indices.
        negation: how a condition is negated, ``"!"`` or ``"not "``.
    """

    name: str
    suffixes: tuple[str, ...]
    sites: str
    negation: str = "!"

    @cached_property
    def _grammar(self) -> tuple[Parser, Query]:
        import tree_sitter

        grammar = tree_sitter.Language(import_module(f"tree_sitter_{self.name}").language())
        return tree_sitter.Parser(grammar), tree_sitter.Query(grammar, self.sites)

    def parse(self, source: bytes) -> Tree:
        """The syntax tree; where the source has errors it has nodes that say so."""
        return self._grammar[0].parse(source)

    def matches(self, root: Node) -> list[dict[str, list[Node]]]:
        """Loops, conditions and indices below a node: capture -> nodes."""
        from tree_sitter import QueryCursor

        return [captures for _, captures in QueryCursor(self._grammar[1]).matches(root)]


LANGUAGES = (
    Language(
        "python",
        (".py", ".pyi"),
        """
        (for_statement left: (identifier) @variable) @loop
        (list_comprehension (for_in_clause left: (identifier) @variable)) @loop
        (if_statement condition: (_) @condition)
        (elif_clause condition: (_) @condition)
        (while_statement condition: (_) @condition)
        (subscript subscript: (_) @index)
        """,
        "not ",
    ),
    Language(
        "javascript",
        (".js", ".mjs", ".cjs", ".jsx"),
        _C_CONDITIONS
        + """
        (for_in_statement left: (identifier) @variable) @loop
        (for_statement initializer: (_ (variable_declarator name: (identifier) @variable))) @loop
        (for_statement initializer: (assignment_expression left: (identifier) @variable)) @loop
        (subscript_expression index: (_) @index)
        """,
    ),
    Language(
        "c",
        (".c", ".h"),
        _C_CONDITIONS
        + """
        (for_statement initializer: (_ (init_declarator declarator: (identifier) @variable))) @loop
        (for_statement initializer: (assignment_expression left: (identifier) @variable)) @loop
        (subscript_expression index: (_) @index)
        """,
    ),
    Language(
        "java",
        (".java",),
        _C_CONDITIONS
        + """
        (enhanced_for_statement name: (identifier) @variable) @loop
        (for_statement init: (_ (variable_declarator name: (identifier) @variable))) @loop
        (array_access index: (_) @index)
        """,
    ),
    Language(
        "go",
        (".go",),
        """
        (for_statement (range_clause left: (expression_list (identifier) @variable))) @loop
        (for_statement (for_clause initializer:
            (short_var_declaration left: (expression_list (identifier) @variable)))) @loop
        (if_statement condition: (_) @condition)
        (index_expression index: (_) @index)
        """,
    ),
    Language(
        "rust",
        (".rs",),
        """
        (for_expression pattern: (identifier) @variable) @loop
        (if_expression condition: (_) @condition)
        (while_expression condition: (_) @condition)
        (index_expression (_) . (_) @index)
        """,
    ),
)


@cache
def language_of(suffix: str) -> Language | None:
    """The language of files with this suffix; None: no grammar."""
    return next((one for one in LANGUAGES if suffix.lower() in one.suffixes), None)


def language_named(name: str) -> Language:
    """The language of this name.

    Raises:
        InputError: no grammar.
    """
    named = {language.name: language for language in LANGUAGES}
    one_of("language", name, named)
    return named[name]
