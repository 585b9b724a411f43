"""`holdfast data`: describing, storing, feeding and choosing training data; imported when used."""

from __future__ import annotations

from holdfast.command import room
from holdfast.rooms import members

app = room("data", "Training data: check, load, describe, store, choose and feed datasets.")

for each in members("data"):
    part = each.name.removeprefix("data ")
    app.command(f"holdfast.data.{part}.cli:app", name=part, help=each.about)
