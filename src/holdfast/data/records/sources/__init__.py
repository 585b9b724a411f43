"""Where images come from: folders, WebDataset tars, MDS shards, TFRecords, Croissant."""

from holdfast.data.records.sources.example import Example, Source
from holdfast.data.records.sources.opening import Format, open_source

__all__ = ["Example", "Format", "Source", "open_source"]
