"""`holdfast lm`: the commands and their groups, each imported when it is used."""

from __future__ import annotations

from holdfast.command import room
from holdfast.rooms import members

app = room("lm", "Language models: queries by regular expressions, audits, safety, generation.")

for each in members("lm"):
    part = each.name.removeprefix("lm ")
    module = {"audit": "query.audits"}.get(part, part)
    app.command(f"holdfast.lm.{module}.cli:app", name=part, help=each.about)

for name, app_name, about in (
    (
        "train-exits",
        "train_exits_app",
        "Train a language model whose early layers predict the next token too.",
    ),
    (
        "calibrate-heads",
        "calibrate_heads_app",
        "Find attention heads that attend alike, to compute fewer of them.",
    ),
):
    app.command(f"holdfast.lm.generate.cli:{app_name}", name=name, help=about)
