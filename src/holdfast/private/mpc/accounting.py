"""What a protocol costs: rounds, bytes and seconds by module and operation, counted by the transport."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

OUTSIDE = "other"  # traffic outside of any scope


@dataclass
class Cost:
    """One row of the ledger: what one operation of one module cost this party."""

    module: str
    """Path of the module in the model, such as ``features.0``; empty outside of a model."""
    op: str
    """Outermost operation, such as ``conv2d``."""
    rounds: int = 0
    """Messages that had to follow each other."""
    bytes_sent: int = 0
    """Payload and frame headers that this party sent to the other parties."""
    offline_bytes: int = 0
    """Bytes that this party received from the dealer."""
    seconds: float = 0.0
    """Wall time, waiting for messages included."""
    waiting_s: float = 0.0
    """Part of the wall time spent waiting for messages."""
    offline_s: float = 0.0
    """Part of the wall time spent waiting for the dealer, or reading the store."""
    margin_bits: float = 62.0
    """Bits between the largest value that a tensor could have, and what the ring holds; the smallest."""


class Ledger:
    """Costs by module and operation, and the operation that runs now.

    Scopes nest: an operation inside another (the comparison inside a ReLU) is charged to the outer one,
    and `path` names both for error messages.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Cost] = {}
        self._ops: list[str] = []
        self.module = ""
        """The module whose operation runs now."""

    @property
    def path(self) -> str:
        """The operations that run now, outermost first: ``relu/less``."""
        return "/".join(self._ops) or OUTSIDE

    @property
    def row(self) -> Cost:
        """The row to charge."""
        key = (self.module, self._ops[0] if self._ops else OUTSIDE)
        return self.rows.setdefault(key, Cost(*key))

    @contextmanager
    def scope(self, op: str, module: str | None = None) -> Iterator[None]:
        """Charge what happens inside to an operation, and to a module where one is named."""
        outer_module, outermost = self.module, not self._ops
        if module is not None:
            self.module = module
        self._ops.append(op)
        start = time.perf_counter()
        try:
            yield
        finally:
            if outermost:
                self.row.seconds += time.perf_counter() - start
            self._ops.pop()
            self.module = outer_module

    def note_margin(self, bits: float) -> None:
        """Keep the smallest margin of the operation that runs now."""
        if self._ops:
            self.row.margin_bits = min(self.row.margin_bits, round(bits, 1))

    def total(self) -> Cost:
        """The sum of all rows."""
        total = Cost("", "total")
        for row in self.rows.values():
            for figure in fields(Cost)[2:-1]:  # those between the names and the margin
                summed = getattr(total, figure.name) + getattr(row, figure.name)
                setattr(total, figure.name, summed)
            total.margin_bits = min(total.margin_bits, row.margin_bits)
        return total
