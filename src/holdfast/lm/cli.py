"""`holdfast lm`: the commands and their groups, each imported when it is used."""

from __future__ import annotations

from holdfast.command import room

app = room("lm", "Language models: queries by regular expressions, audits, safety, generation.")

for name, module, about in (
    ("query", "query.cli", "Query a model with regular expressions."),
    (
        "audit",
        "query.audits.cli",
        "Audit a model for memorization, bias, toxicity or cloze accuracy.",
    ),
    ("safety", "safety.cli", "AI safety benchmark: hazards, grades, and how certain they are."),
    (
        "generate",
        "generate.cli",
        "Continue prompts faster: drafts by early exit, verified by the whole model.",
    ),
    (
        "train-exits",
        "generate.training_cli",
        "Train a language model whose early layers predict the next token too.",
    ),
    (
        "calibrate-heads",
        "generate.heads_cli",
        "Find attention heads that attend alike, to compute fewer of them.",
    ),
):
    app.command(f"holdfast.lm.{module}:app", name=name, help=about)
