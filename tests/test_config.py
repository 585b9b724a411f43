"""Settings from files: what fits, and where what does not fit stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from holdfast.config import Duration, read_config
from holdfast.errors import InputError


@dataclass(frozen=True)
class Step:
    name: str
    wait: Duration = field(default=Duration(60))
    order: Literal["first", "last"] = "first"
    share: float | None = None


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...] = ()
    by_name: Mapping[str, Step] = field(default_factory=dict)
    last: Step | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    limited: Annotated[Mapping[str, Annotated[float, Meta(le=1)]], Meta(max_length=2)] = field(
        default_factory=dict
    )
    retries: int = 3
    free: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError("negative", code="out-of-range", place="retries")


WHOLE: dict[str, Any] = {
    "steps": [{"name": "a", "wait": "1h30m", "share": 1}, {"name": "b", "wait": 5}],
    "by_name": {"c": {"name": "c", "order": "last"}},
    "weights": {"a": 0.5},
    "free": {"any": [{"thing": 1}]},
}


@pytest.mark.parametrize("suffix", ["toml", "json", "mapping"])
def test_what_fits(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plan.{suffix}"
    path.write_text(
        json.dumps(WHOLE)
        if suffix == "json"
        else """
        weights = {a = 0.5}
        by_name.c = {name = "c", order = "last"}
        free.any = [{thing = 1}]
        [[steps]]
        name = "a"
        wait = "1h30m"
        share = 1
        [[steps]]
        name = "b"
        wait = 5
        """
    )
    plan = read_config(WHOLE if suffix == "mapping" else path, Plan, "the plan")
    assert plan == Plan(
        (Step("a", Duration(5400), share=1.0), Step("b", Duration(5))),
        {"c": Step("c", order="last")},
        weights={"a": 0.5},
        free=WHOLE["free"],
    )


@pytest.mark.parametrize(
    ("content", "code", "place", "found"),
    [
        ({"retry": 1}, "unknown-key", "retry", "retry"),
        ({"steps": [{"name": "a"}, {"nam": "b"}]}, "unknown-key", "steps[1].nam", "nam"),
        ({"by_name": {"c": {"nam": "b"}}}, "unknown-key", "by_name.c.nam", "nam"),
        ({"last": {"nam": "b"}}, "unknown-key", "last.nam", "nam"),
        ({"steps": [{}]}, "missing-key", "steps[0].name", None),
        ({"steps": 3}, "invalid-value", "steps", "3"),
        ({"steps": [3]}, "invalid-value", "steps[0]", "3"),
        ({"retries": "3"}, "invalid-value", "retries", "'3'"),
        ({"retries": True}, "invalid-value", "retries", "True"),
        ({"retries": 2.5}, "invalid-value", "retries", "2.5"),
        ({"weights": {"a": 1, "b.c": "x"}}, "invalid-value", "weights.b.c", "'x'"),
        (
            {"by_name": {"a": {"name": "a"}, "c": {"name": 3}}},
            "invalid-value",
            "by_name.c.name",
            "3",
        ),
        ({"limited": {"a": 1, "b": 2}}, "invalid-value", "limited.b", "2"),
        (
            {"limited": {"a": 1, "b": 1, "c": 1}},
            "invalid-value",
            "limited",
            "{'a': 1, 'b': 1, 'c': 1}",
        ),
        ({"by_name": {"a": {"name": "a"}, "c": {}}}, "missing-key", "by_name.c.name", None),
        ({"last": {"name": "a", "order": "mid"}}, "unknown-name", "last.order", "'mid'"),
        ({"steps": [{"name": "a", "wait": "x"}]}, "invalid-value", "steps[0].wait", "'x'"),
        ({"steps": [{"name": "a", "wait": True}]}, "invalid-value", "steps[0].wait", "True"),
        ({"retries": -1}, "out-of-range", "retries", None),
        ([], "invalid-value", None, "[]"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, content: Any, code: str, place: str | None, found: str | None
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as raised:
        read_config(path, Plan, "the plan")
    error = raised.value
    assert (error.code, error.place, error.found) == (code, place, found)
    assert error.path == str(path)


def test_what_was_meant_is_named() -> None:
    with pytest.raises(InputError) as raised:
        read_config({"steps": [{"name": "a", "oder": "last"}]}, Plan, "the plan")
    assert raised.value.expected == "one of name, order, share, wait"
    assert "order" in str(raised.value.remedy)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.toml", None, "not-found"),
        (".", None, "unreadable"),
        ("a.toml", b"a = ", "invalid-syntax"),
        ("a.json", b"{", "invalid-syntax"),
        ("a.toml", b"a = '\xff'", "invalid-syntax"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, code: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_config(path, Plan, "the plan")
    assert (raised.value.code, raised.value.path) == (code, str(path))
