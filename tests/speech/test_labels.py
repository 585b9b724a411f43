"""Files of labels as toolkits write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.speech.recognize import Labels

WAV2VEC2 = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "E": 5, "'": 6}


@pytest.mark.parametrize(
    ("content", "columns", "blank", "texts"),
    [
        (json.dumps(WAV2VEC2), 7, 0, ("", "", "", "⁇", " ", "E", "'")),
        ('[" ", "a", "b"]', 4, 3, (" ", "a", "b", "")),  # NeMo: the blank is not listed
        ('["", "a", " "]', 3, 0, ("", "a", " ")),  # pyctcdecode: the blank is empty
        ("<blk> 0\n▁the 1\ns 2\n▁ 3\n#0 4\n", 4, 0, ("", " the", "s", " ")),
        ("<eps>\t0\n<space>\t1\nb\t3\na\t2\r\n", 4, 0, ("", " ", "a", "b")),
        ("a 0\n 1\n<blk> 2\n", 3, 2, ("a", " ", "")),
        ("a\n \n<blank>\n", 3, 2, ("a", " ", "")),
        ("0\n1\n2\n<blank>\n", 4, 3, ("0 ", "1 ", "2 ", "")),
        ("[\n]\n<blank>\n", 3, 2, ("[ ", "] ", "")),
        ('["早", "上", "<blank>"]', 3, 2, ("早 ", "上 ", "")),
        ('["[UNK]", "the", "##se", "##"]', 5, 4, ("⁇", " the", "se", "", "")),  # BERT's pieces
    ],
)
def test_forms(
    content: str, columns: int, blank: int, texts: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "labels"
    path.write_text(content, encoding="utf-8")
    labels = Labels.of(path, columns)
    assert labels.blank == blank
    assert labels.texts == texts
    assert Labels.of(list(labels.names), columns) == labels


def test_a_dictionary_is_by_column_in_any_order() -> None:
    shuffled = dict(sorted(WAV2VEC2.items()))
    assert Labels.of(shuffled, 7) == Labels.of(list(WAV2VEC2), 7)


@pytest.mark.parametrize("blank", ["-", 0, "0", -3])
def test_the_blank_by_name_or_column(blank: str | int) -> None:
    assert Labels.of(["-", "a", " "], 3, blank).blank == 0
    # A label may have the name of another's column.
    assert Labels.of(["1", "-", " "], 3, "1").blank == 0
    assert Labels.of(["1", "-", " "], 3, 1).blank == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "conflict"),
        ("[]", "conflict"),
        ("[1, 2]", "unknown-format"),
        ('{"a": "b"}', "unknown-format"),
        ('{"a": 0, "b": 2}', "conflict"),
        ('{"a": 0', "unknown-format"),
        ("a 0\nb 0\n<blk> 1\n", "conflict"),
        ("a 0\nb 3\n<blk> 1\n", "conflict"),
        ("a\nb\n", "conflict"),
        ("<blank>\n<s>\n</s>\n", "no-data"),
        ("[" * 100_000, "unknown-format"),
    ],
)
def test_files_that_are_not_labels(content: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        Labels.of(path, 5 if content == "a\nb\n" else 3)
    assert caught.value.code == code
    assert caught.value.path == str(path)
