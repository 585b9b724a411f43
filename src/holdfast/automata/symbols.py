"""Symbol tables: the names of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.errors import InputError

EPSILON = "<eps>"


@dataclass(frozen=True)
class SymbolTable:
    """Labels and their symbols, one to one; label 0 is epsilon."""

    symbols: Mapping[int, str]
    """Label -> symbol, in the order of the file."""
    name: str = field(default="symbols", compare=False)
    """What a binary file calls the table."""

    @classmethod
    def of(cls, symbols: Iterable[str], name: str = "symbols") -> SymbolTable:
        """A table that numbers symbols from 1 in the order given; 0 is `<eps>`."""
        return cls({0: EPSILON} | dict(enumerate(symbols, 1)), name)

    @cached_property
    def labels(self) -> dict[str, int]:
        """Symbol -> label."""
        return {symbol: label for label, symbol in self.symbols.items()}

    def label(self, symbol: str) -> int:
        """The label of a symbol.

        Raises:
            InputError: if the table has no such symbol.
        """
        if symbol not in self.labels:
            raise InputError(
                "unknown symbol",
                code="unknown-name",
                found=repr(symbol),
                expected=f"one of the {len(self.symbols)} of table {self.name!r}",
            )
        return self.labels[symbol]

    def symbol(self, label: int) -> str:
        """The symbol of a label, or the number itself where the table has none."""
        return self.symbols.get(label, str(label))

    def __len__(self) -> int:
        return len(self.symbols)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self.symbols.items())
