"""Penalties: their terms by hand, and the files that state them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.carbon.workloads import FEATURES, batch_penalty, read_penalties
from holdfast.errors import InputError


def test_terms_of_batch_work_by_hand() -> None:
    d = np.array([2.0, -1.0, -1.0])
    # J d / U: 1, -1/2, -1/2; running sums 1, 1/2, 0; of d: 2, 1, 0; of J d^2 / U: 2, 5/2, 3.
    for name, value in zip(FEATURES, (1.5, 3.0, 7.5, 1.0, 1.0), strict=True):
        assert batch_penalty({name: 1.0}, 0.5, 3, 2).value(d) == pytest.approx(value)


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ({"gone": {}}, "no-match", "workloads.gone"),
        ({"a": {"weights": {"waiting": 1.0}}}, "unknown-name", "workloads.a"),
        ({"a": {"weights": {"backlog_jobs": -1.0}}}, "not-convex", "workloads.a"),
        ({"a": {"kind": "online"}}, "missing-key", "workloads.a.curve"),
        ({"a": {"flexibility": 1}}, "unknown-key", "workloads.a.flexibility"),
        ({"a": {"flex": "much"}}, "invalid-value", "workloads.a.flex"),
        ({"a": {"weights": {"squared": "x"}}}, "invalid-value", "workloads.a.weights.squared"),
    ],
)
def test_bad_penalties(content: object, code: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"workloads": content}))
    with pytest.raises(InputError) as caught:
        read_penalties(path, ["a"])
    assert (caught.value.code, caught.value.place) == (code, place)
