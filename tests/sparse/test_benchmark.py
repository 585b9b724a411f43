"""The comparison with peers: what it reports follows from the times, and wrong products are noticed."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.sparse import SparseMatrix, benchmark
from holdfast.sparse.matrices import LAYOUTS


def test_rows_follow_from_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {
        "dense_fp32": 4.0,
        "dense_bf16": 2.0,
        "dynamic_int8": 2.5,
        "torch_csr": 9.0,
        "scipy_csr": 8.0,
    }
    ours = {"csr": 5.0, "bsr16x1": 0.5}
    monkeypatch.setattr(
        benchmark, "fastest", lambda calls, _: {k: (times | ours)[k] for k in calls}
    )
    answer = benchmark.bench(40, 30, 0.75, [1, 3])
    keys = [(row["batch"], row["layout"]) for row in answer.rows]
    assert keys == [(batch, layout) for batch in (1, 3) for layout in LAYOUTS]
    for row in answer.rows:
        seconds = ours[row["layout"]]
        assert {name: row[name] for name in times} == times
        assert (row["seconds"], row["best_peer"]) == (seconds, "dense_bf16")
        assert row["ratio"] == 2.0 / seconds
        assert row["chosen"] == ("dense" if row["layout"] == "csr" else "bsr16x1")
        dense = benchmark.random_matrix(40, 30, 0.75, row["layout"])
        useful = 2e-9 * np.count_nonzero(dense) * row["batch"]
        assert row["gflops"] == pytest.approx(useful / seconds)
        assert row["stored_bytes"] == SparseMatrix.pack(dense, row["layout"]).nbytes
    (section,) = answer.sections()
    assert "2 of 4" in section.sentence
    bars = section.figures[0].chart()["data"]["values"]
    assert [bar["speed"] for bar in bars] == [
        0.8,
        2.0,
        1.6,
        8.0,
    ] * 2  # csr, bfloat16, int8 once, bsr16x1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_matrices_have_the_asked_zeros(layout: str) -> None:
    dense = benchmark.random_matrix(330, 200, 0.9, layout)  # 330 rows: the last block has 10
    assert np.mean(dense == 0) == pytest.approx(0.9, abs=0.02)
    if layout == "bsr16x1":
        for row in range(0, 330, 16):
            zeros = dense[row : row + 16] == 0
            assert (zeros == zeros[0]).all()


def test_a_wrong_product_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SparseMatrix.multiply
    monkeypatch.setattr(
        SparseMatrix, "multiply", lambda *arguments: right(*arguments) * np.float32(1.001)
    )
    with pytest.raises(ArithmeticError, match="csr"):
        benchmark.contenders(np.eye(20, dtype=np.float32), "csr", 2)
