"""What a migration did, one thing at a time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Shift:
    """One thing that is written otherwise than before.

    Attributes:
        at: pointer into the old document.
        what: what was done.
        why: the reason, the same for all changes of a kind.
    """

    at: str
    what: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return asdict(self)
