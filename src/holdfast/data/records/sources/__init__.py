"""Where images come from: folders, WebDataset tars, Croissant descriptions, dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.records.sources.example import Example, Source
    from holdfast.data.records.sources.opening import Format, open_source

__getattr__ = lazily(  # what an image is can be told without the libraries of every format
    __name__,
    {"Example": "example", "Source": "example", "Format": "opening", "open_source": "opening"},
)

__all__ = ["Example", "Format", "Source", "open_source"]
