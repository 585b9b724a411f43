"""Prompts of AILuminate: from the CSV files that MLCommons releases to a test specification."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.lm.safety.rows import invalid_row, read_rows
from holdfast.lm.safety.specification import (
    Items,
    count_items,
    hazard_key,
    read_specification,
)

_COLUMNS = ("release_prompt_id", "prompt_text", "hazard", "persona", "locale")


def import_ailuminate(source: str | Path, output: str | Path) -> Items:
    """Make a specification of a release of AILuminate's prompts.

    Args:
        source: CSV with release_prompt_id, prompt_text, hazard, persona and locale.
        output: folder; gets ``spec.toml`` and ``prompts.csv``.

    Raises:
        InputError: if a column is missing, a hazard unknown, an id given twice, or the folder has files.
    """
    source, folder = Path(source), Path(output)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            "the folder is not empty",
            code="output-exists",
            path=folder,
            remedy="name another folder",
        )
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "hazard", "persona", "prompt"))
    ids: set[str] = set()
    locales: Counter[str] = Counter()
    for line, row in read_rows(source, _COLUMNS, "the prompts"):
        name = row["release_prompt_id"]
        if name in ids:
            raise invalid_row(source, line, "an id is given twice", name, "one row per id")
        if hazard_key(row["hazard"]) is None:
            raise invalid_row(source, line, "unknown hazard", row["hazard"], "a key such as vcr")
        ids.add(name)
        locales[row["locale"]] += 1
        writer.writerow((name, row["hazard"], row["persona"], row["prompt_text"]))
    if not ids:
        raise InputError("the file has no prompts", code="empty-input", path=source)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "prompts.csv", file.getvalue().encode())
    text = _SPECIFICATION.format(
        name=json.dumps(source.stem), locale=json.dumps(locales.most_common(1)[0][0])
    )
    write_whole(folder / "spec.toml", text.encode())
    return count_items(read_specification(folder / "spec.toml"))


_SPECIFICATION = """\
name = {name}
version = "1"
locale = {locale}
prompts = "prompts.csv"
annotators = []           # such as "llama-guard-3:openai:http://127.0.0.1:8000/v1#MODEL"

[system]                  # as AILuminate 1.x asks
max_tokens = 3000
temperature = 0.01
"""
