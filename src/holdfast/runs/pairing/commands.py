"""From a template to the command of one test.

============= =================================================================
``{a}``       the first node
``{b}``       the second node
``{nodes}``   all nodes of the test, joined by commas
``{n}``       how many they are
``{test}``    the test's identifier
============= =================================================================

A template with ``{nodes}`` runs a triple as one test; one that knows only ``{a}`` and ``{b}`` runs it
as two pairs, the first and the second node, then the second and the third, which tells more.
``{{`` and ``}}`` stand for braces; ``${NAME}`` and braces around anything but one word are the shell's.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from holdfast.errors import InputError
from holdfast.runs.pairing.nodes import checked_name
from holdfast.runs.pairing.records import PairTest, renamed

KNOWN = ("a", "b", "nodes", "n", "test")

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\$\{[^}]*\}|\{(\w+)\}")


@dataclass(frozen=True)
class Template:
    """A command with placeholders."""

    text: str

    def __post_init__(self) -> None:
        used = self._used()
        for name in sorted(used.difference(KNOWN)):
            raise InputError(
                f"the command has a placeholder {{{name}}} that nothing fills",
                code="unknown-name",
                found=self.text,
                expected=", ".join(f"{{{known}}}" for known in KNOWN),
                remedy=f"write {{{{{name}}}}} if the braces are meant for the shell",
            )
        if "nodes" not in used and not {"a", "b"} <= used:
            raise InputError(
                "the command does not name the nodes that it is to test",
                code="invalid-value",
                found=self.text,
                expected="{nodes}, or {a} and {b}: srun -N {n} -w {nodes} ./all_gather",
            )

    @property
    def takes_triples(self) -> bool:
        """It can run on three nodes at once."""
        return "nodes" in self._used()

    def parts(self, test: PairTest) -> list[PairTest]:
        """The test as this command can run it: itself, or a triple as two pairs."""
        if len(test.nodes) == 2 or self.takes_triples:
            return [test]
        first, second, third = test.nodes
        return [renamed(test, ".1", (first, second)), renamed(test, ".2", (second, third))]

    def command(self, test: PairTest) -> str:
        """The command of one test, for a shell.

        Raises:
            InputError: if a node's name, or the test's, could mean something to the shell.
        """
        try:
            nodes = [checked_name(node) for node in test.nodes]
            values = {
                "a": nodes[0],
                "b": nodes[1],
                "nodes": ",".join(nodes),
                "n": str(len(nodes)),
                "test": shlex.quote(test.test),
            }
        except ValueError as error:
            raise InputError(f"not safe in a command: {error}", code="invalid-value") from None

        def fill(found: re.Match[str]) -> str:
            if found[1] is not None:
                return values[found[1]]
            return found[0][0] if found[0] in ("{{", "}}") else found[0]

        return _PLACEHOLDER.sub(fill, self.text)

    def _used(self) -> set[str]:
        return {found[1] for found in _PLACEHOLDER.finditer(self.text) if found[1] is not None}
