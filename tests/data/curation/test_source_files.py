"""Which files of a folder are used: a table of hostile ones, and the standard library's own decoders."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_points import refusal

from holdfast.data.curation.languages import LANGUAGES, language_named, language_of
from holdfast.data.curation.source_files import LARGEST, SourceFile, SourceFolder, _checked

CODE = b"x = 1\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("plain.py", CODE, None),
        ("UPPER.PY", CODE, None),
        ("stub.pyi", CODE, None),
        ("mark.py", b"\xef\xbb\xbf" + CODE, None),
        ("ends.py", CODE.replace(b"\n", b"\r\n"), None),
        ("words.py", "# \u6f22\u5b57 \U0001f600\n".encode(), None),
        ("\u6f22 \u00e9.py", CODE, None),
        (".hidden.py", CODE, None),  # folders are hidden, files are not
        ("deep/er/a.py", CODE, None),
        ("largest.py", b"#" * (LARGEST - 1) + b"\n", None),
        ("larger.py", b"#" * LARGEST + b"\n", "larger than 1,000,000 bytes"),
        ("nul.py", b"x = '\0'\n", "NUL bytes"),
        ("wide.py", "x = 1\n".encode("utf-16"), "NUL bytes"),
        ("latin.py", b"# caf\xe9\n", "not UTF-8 (byte 5)"),
        ("surrogate.py", b"x\xed\xa0\x80", "not UTF-8 (byte 1)"),
        ("long.py", b"\xc0\xaf", "not UTF-8 (byte 0)"),
        ("cut.py", "\u6f22".encode()[:2], "not UTF-8 (byte 0)"),
        ("empty.py", b"", "empty"),
        ("blank.py", b" \t\r\n\f\v", "empty"),
        ("only-mark.py", b"\xef\xbb\xbf", "empty"),
        ("noext", CODE, "no grammar for this suffix"),
        (".py", CODE, "no grammar for this suffix"),
        ("a.py.txt", CODE, "no grammar for this suffix"),
        ("a.cpp", CODE, "no grammar for this suffix"),
        ("line\nbreak.py", CODE, "name that cannot be printed"),
        ("right\u202eto.py", CODE, "name that cannot be printed"),
        ("c.h", b"int f(void);\n", None),
        ("cpp.h", b"  namespace a {}\n", "no grammar for C++"),
        ("scoped.h", b"int a = std::max(1, 2);\n", "no grammar for C++"),
        ("typed.h", b"template<class T> T f();\n", "no grammar for C++"),
        ("words.h", b"/* of this class */ int subclass;\n", None),
        ("cpp.c", b"namespace a {}\n", None),  # of headers alone
    ],
)
def test_a_file_is_used_or_rejected_with_its_reason(
    name: str, content: bytes, reason: str | None, tmp_path: Path
) -> None:
    (tmp_path / "used.py").write_bytes(b"y = 2\n")
    place = tmp_path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    found = SourceFolder.scan(tmp_path)
    if reason is not None:
        assert [*found.rejected.values()] == [reason]
        assert [file.path for file in found.files] == ["used.py"]
        return
    [file] = [each for each in found.files if each.path != "used.py"]
    digest = hashlib.sha256(content).hexdigest()
    assert (file.path, file.size, file.digest) == (name, len(content), digest)
    assert found.read(file) == content.removeprefix(b"\xef\xbb\xbf")
    assert found.rejected == {}


def test_folders_links_and_pipes(tmp_path: Path) -> None:
    for name in ("b/z.py", "b/a.js", "a.go", ".git/hidden.py", "b/.cache/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(CODE)
    (tmp_path / "loop").symlink_to(".")  # would be entered for ever
    (tmp_path / "gone.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")  # would be waited for
    (tmp_path / os.fsdecode(b"\xff.py")).write_bytes(CODE)
    found = SourceFolder.scan(tmp_path)
    assert [file.path for file in found.files] == ["a.go", "b/a.js", "b/z.py"]  # in order
    assert found.rejected == {
        "loop": "symbolic link",
        "gone.py": "symbolic link",
        "pipe.py": "not a regular file",
        "\\xff.py": "name that cannot be printed",
    }


@given(st.binary(max_size=6))
def test_text_is_what_python_decodes(content: bytes) -> None:
    folder = Path("/nowhere")
    place = folder / "a.py"

    class Only:
        """A folder with this one file, in memory."""

        suffix, name = ".py", "a.py"

        def __truediv__(self, path: str) -> Only:
            return self

        is_symlink = staticmethod(lambda: False)
        is_file = staticmethod(lambda: True)
        stat = staticmethod(lambda: os.stat_result((0o100644, *[0] * 5, len(content), 0, 0, 0)))
        read_bytes = staticmethod(lambda: content)

    checked = _checked(Only(), place.name)  # type: ignore[arg-type]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        assert not isinstance(checked, SourceFile)
        assert checked == "NUL bytes" or checked.startswith("not UTF-8")
        return
    blank = not text.removeprefix("\ufeff").strip(" \t\r\n\f\v")
    assert isinstance(checked, SourceFile) == ("\0" not in text and not blank)


def test_a_folder_without_code_is_refused(tmp_path: Path) -> None:
    assert refusal(SourceFolder.scan, tmp_path / "nowhere")[0] == "not-found"
    assert refusal(SourceFolder.scan, tmp_path)[0] == "no-data"
    (tmp_path / "a.py").write_bytes(b"")
    assert refusal(SourceFolder.scan, tmp_path)[0] == "no-data"
    assert refusal(SourceFolder.scan, tmp_path / "a.py")[0] == "not-found"


def test_every_suffix_has_one_language_of_its_name() -> None:
    suffixes = [suffix for language in LANGUAGES for suffix in language.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    for language in LANGUAGES:
        assert language_named(language.name) is language
        assert all(language_of(suffix.upper()) is language for suffix in language.suffixes)
    assert language_of("") is language_of(".rb") is None
    assert refusal(language_named, "Python")[0] == "unknown-name"
