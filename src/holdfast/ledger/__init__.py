"""Where all machine time of a fleet went: from capacity to productive steps, in parts that add up.

    holdfast.ledger.ledger("store", ["events"]).hours["productive"]

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.ledger.books import Ledger as Ledger
    from holdfast.ledger.books import ledger as ledger

_HOMES = {"Ledger": "books", "ledger": "books"}

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)
