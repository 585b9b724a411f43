"""Speaking (Deep Voice, arXiv 1702.07825): phonemes of a text, their times in a recording, a voice."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.lazy import lazily

_HOMES: Mapping[str, str] = {}

__all__: list[str] = []

__getattr__ = lazily(__name__, _HOMES)
