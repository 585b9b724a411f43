"""What a detector says while its condition holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something is wrong with the run, now."""

    severity: Severity
    ranks: tuple[int, ...]
    """The ranks concerned; empty: the run as a whole."""
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Figures behind the sentence, with units in their names."""
