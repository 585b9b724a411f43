"""Patterns of a FileSet against `fnmatch` and `glob`."""

from __future__ import annotations

import fnmatch
import glob
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.files.patterns import Patterns, alternatives_of
from holdfast.errors import InputError

PATHS = st.lists(st.text("ab.*[]{},()|-1!", min_size=1, max_size=5), min_size=1, max_size=3).map(
    "/".join
)


def test_choices() -> None:
    cases = [
        ("*.jpg", "a/b.jpg", True),
        ("*.jpg", "a/b.JPG", False),
        ("data/*.csv", "data/x.csv", True),
        ("data/*.csv", "data/x/y.csv", True),
        ("data/*.csv", "more/data/x.csv", False),
        ("/foo/pic*.jpg", "foo/pic1.jpg", True),
        ("./foo/pic*.jpg", "foo/pic1.jpg", True),
        ("**/x.txt", "x.txt", True),
        ("**/x.txt", "a/b/x.txt", True),
        ("**/x.txt", "a/bx.txt", False),
        ("a/**/x.txt", "a/x.txt", True),
        ("a/**/x.txt", "a/b/c/x.txt", True),
        ("a/**", "a/b/c", True),
        ("{train,test}/*.csv", "train/x.csv", True),
        ("{train,test}/*.csv", "val/x.csv", False),
        ("{a,b{c,d}}.txt", "bd.txt", True),
        ("{a,b{c,d}}.txt", "b.txt", False),
        ("x{,y}.txt", "x.txt", True),
        ("{a}.txt", "{a}.txt", True),
        ("{a}.txt", "a.txt", False),
        ("captions_(val|train)2014.json", "captions_val2014.json", True),
        ("captions_(val|train)2014.json", "captions_test2014.json", False),
        ("captions_(val|train)2014.json", "captions_(val|train)2014.json", True),
        ("scan (1).png", "scan (1).png", True),
        ("[ab]?.txt", "b1.txt", True),
        ("[!ab]?.txt", "b1.txt", False),
        ("*", ".hidden", False),
        ("*", "a/.git/config", False),
        (".*", ".hidden", True),
        ("a/.git/*", "a/.git/config", True),
        ("*.jpg", "__MACOSX/a/._b.jpg", False),
        ("__MACOSX/*", "__MACOSX/a.jpg", True),
        ("*", "a..b/c", True),
    ]
    for pattern, path, expected in cases:
        assert Patterns([pattern])(path) is expected, (pattern, path)


def test_several_and_excluded() -> None:
    patterns = Patterns(["*.jpg", "*.png"], ["test/*"])
    names = ["a.jpg", "b.png", "c.gif", "test/d.jpg"]
    assert list(patterns.choose(names)) == ["a.jpg", "b.png"]
    assert list(Patterns([], ["*.gif"]).choose([*names, ".x"])) == ["a.jpg", "b.png", "test/d.jpg"]


@given(st.text("ab.*?[]!-/{},()|", max_size=10), PATHS)
def test_what_fnmatch_matches_is_matched(pattern: str, path: str) -> None:
    hidden = any(part.startswith(".") for part in path.split("/"))
    if fnmatch.fnmatchcase(path, pattern) and not hidden:
        assert Patterns([pattern])(path)


@given(
    st.text("ab.*?[]!-/", max_size=10).filter(lambda text: not text.startswith(("/", "./"))), PATHS
)
def test_without_own_signs_it_is_fnmatch(pattern: str, path: str) -> None:
    if "**/" not in pattern and not any(part.startswith(".") for part in path.split("/")):
        assert Patterns([pattern])(path) == fnmatch.fnmatchcase(path, pattern)


TREE = ["x", "a/x", "a/y", "a/b/x", "a/b/c/x", "b/x", "b/a/x", "c/d/y"]


@given(st.lists(st.sampled_from(["**", "a", "b", "c"]), max_size=3), st.sampled_from("xy"))
def test_any_folders_as_glob(tree_of_files: Path, folders: list[str], name: str) -> None:
    pattern = "/".join([*folders, name])
    expected = glob.glob(pattern, root_dir=tree_of_files, recursive=True)  # noqa: PTH207
    patterns = Patterns([pattern])
    assert sorted(patterns.choose(TREE)) == sorted(set(expected))


@pytest.fixture(scope="module")
def tree_of_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_hostile_patterns_end() -> None:
    long = "a" * 5000
    assert not Patterns(["*a" * 40 + "*b"])(long)
    with pytest.raises(InputError, match="too many alternatives"):
        alternatives_of("{a,b}" * 12)
    with pytest.raises(InputError, match="too many alternatives"):
        alternatives_of("a/**/" * 12)


def test_a_million_names() -> None:
    names = [f"train/{number % 1000:03d}/{number}.jpg" for number in range(200_000)]
    chosen = list(Patterns(["train/*.jpg"], ["*/007/*"]).choose(names))
    assert len(chosen) == 199_800
    assert "train/007/7.jpg" not in chosen
