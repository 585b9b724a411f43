"""`holdfast data`: describing, storing, feeding and choosing training data; imported when used."""

from __future__ import annotations

from holdfast.command import room

app = room("data", "Training data: check, load, describe, store, choose and feed datasets.")

for name, about in {
    "croissant": "Descriptions of datasets: check, load, write them.",
    "records": "Progressive compressed records: read half the bytes.",
    "curation": "Choosing data: what to augment, what to buy, and whether random is as good.",
    "pipeline": "Input pipelines: find the stage that limits one, and faster settings.",
}.items():
    app.command(f"holdfast.data.{name}.cli:app", name=name, help=about)
