"""Cluster log lines into templates (Drain).

Drain (He et al., ICWS 2017) through the drain3 library where it is installed (the extra ``logs``),
fed with one line per shape; without it every shape is a separate template.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.runs.diagnosis.origins import without_prefix

WILD = "<*>"
MOST_WORDS = 24
"""Maximum number of words of a line; the rest is ignored, to limit the depth of the tree."""

_MASKS = (
    re.compile(r"\b\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"),
    re.compile(r"\b0x[0-9a-fA-F]{1,16}\b"),
    re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    re.compile(r"\b(?=[a-f]{0,40}\d)[0-9a-f]{7,64}\b"),
    re.compile(r"[-+]?\b\d[\d.,:]*(?:[eE][-+]?\d{1,3})?(?!\w)"),
    re.compile(r"\d{1,20}"),
)


@dataclass
class Template:
    """Lines of one kind."""

    text: str
    """The words that all share; ``<*>`` for the others."""
    count: int = 0
    files: set[int] = field(default_factory=set)
    """Indexes of the files that have one."""
    file: int = 0
    """Index of the file with the first one."""
    first: int = 0
    """Its line number, from 0."""
    example: str = ""


@dataclass(frozen=True)
class ShapeLine:
    """One shape, as the miner takes it."""

    example: str
    count: int
    files: frozenset[int]
    file: int
    first: int


def masked(text: str) -> str:
    """The line with numbers, addresses and times replaced, without its rank."""
    text = without_prefix(text).strip()
    for mask in _MASKS:
        text = mask.sub(WILD, text)
    return " ".join(text.split()[:MOST_WORDS])


def installed() -> bool:
    """Whether drain3 is there."""
    from importlib.util import find_spec

    return find_spec("drain3") is not None


def mine(suspects: Iterable[ShapeLine], others: Iterable[ShapeLine] = ()) -> list[Template]:
    """Templates of shapes.

    Args:
        suspects: shapes of which templates are made, in an order that does not depend on chance:
            templates depend on it.
        others: shapes that count where a template knows them, but make none.

    Returns:
        One template a group of suspects; its counts are those of all their lines.
    """
    miner = _Drain() if installed() else _EachItsOwn()
    found: dict[Any, Template] = {}
    for shape in suspects:
        words = masked(shape.example)
        if not words.replace(WILD, "").strip(" .,:;|/%[](){}-=#*^~"):
            continue  # numbers and marks alone
        cluster = miner.add(words)
        if cluster not in found:
            found[cluster] = Template(
                words, file=shape.file, first=shape.first, example=shape.example
            )
        found[cluster].count += shape.count
        found[cluster].files |= shape.files
    for shape in others:
        known = found.get(miner.known(masked(shape.example)))
        if known is not None:
            known.count += shape.count
            known.files |= shape.files
    for cluster, template in found.items():
        template.text = miner.text(cluster)
    return list(found.values())


class _Drain:
    def __init__(self) -> None:
        from drain3 import TemplateMiner
        from drain3.template_miner_config import TemplateMinerConfig

        logging.getLogger("drain3").setLevel(logging.ERROR)
        config = TemplateMinerConfig()
        config.profiling_enabled = False
        config.drain_sim_th = 0.5
        config.drain_depth = 5
        config.masking_instructions = []  # lines come masked
        config.parametrize_numeric_tokens = False
        self.miner = TemplateMiner(config=config)

    def add(self, words: str) -> int:
        number: int = self.miner.add_log_message(words)["cluster_id"]
        return number

    def known(self, words: str) -> int | None:
        cluster = self.miner.match(words)
        return None if cluster is None else cluster.cluster_id

    def text(self, cluster: int) -> str:
        text: str = self.miner.drain.id_to_cluster[cluster].get_template()
        return text


class _EachItsOwn:
    def add(self, words: str) -> str:
        return words

    def known(self, words: str) -> str:
        return words

    def text(self, cluster: str) -> str:
        return cluster
