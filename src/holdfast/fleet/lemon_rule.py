"""The rule of Kokolis et al. (arXiv 2410.21680v2) for lemon nodes: seven signals and their thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from holdfast.config import read_config
from holdfast.errors import InputError

SIGNALS = (
    "excl_jobid_count",  # jobs that asked to exclude the node
    "xid_cnt",  # distinct XIDs
    "tickets",  # repair tickets
    "out_count",  # times it was taken out of service
    "multi_node_node_fails",  # failures of multi-node jobs on it
    "single_node_node_fails",  # failures of single-node jobs on it
    "single_node_node_failure_rate",  # the latter per single-node job
)


@dataclass(frozen=True)
class LemonRule:
    """The paper's rule: a node is a lemon if enough signals exceed their quantile over the fleet.

    The paper does not print its thresholds; these defaults are meant to be edited.
    """

    quantiles: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(SIGNALS, 0.99))
    """Quantile of each signal's distribution over the nodes that the value must exceed."""
    signals_needed: int = 2
    """How many signals must exceed theirs."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.quantiles) - set(SIGNALS))
        if unknown:
            raise InputError(
                "the lemon rule names a signal that does not exist",
                code="unknown-name",
                found=", ".join(unknown),
                expected=", ".join(SIGNALS),
            )
        for name, quantile in self.quantiles.items():
            if not 0 <= quantile <= 1:
                raise InputError(
                    "a threshold of the lemon rule is not a quantile",
                    code="invalid-value",
                    place=name,
                    found=repr(quantile),
                    expected="a number from 0 to 1",
                )
        if self.signals_needed < 1:
            raise InputError(
                "the lemon rule needs no signal",
                code="no-data",
                found=str(self.signals_needed),
                expected="1 or more",
            )

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read ``signals_needed = 2`` and a table ``[quantiles]`` of signal = quantile."""
        return read_config(path, cls, "the lemon rule")
