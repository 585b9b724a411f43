"""Packed matrices and layers against float64; packing, files, and files that are damaged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from holdfast import sparse
from holdfast.errors import InputError
from holdfast.sparse.matrices import LAYOUTS, SparseMatrix
from pruned_modules import pruned


def bytes_of(dense: np.ndarray, layout: str) -> int:
    """The formula of the documentation."""
    rows, columns = dense.shape
    index = 2 if columns <= 65_536 else 4
    if layout == "csr":
        return (4 + index) * np.count_nonzero(dense) + 4 * (rows + 1) + 16
    blocks = sum(
        bool(dense[row : row + 16, column].any())
        for row in range(0, rows, 16)
        for column in np.nonzero(dense.any(axis=0))[0]
    )
    return (64 + index) * blocks + 4 * (-(-rows // 16) + 1) + 16


@settings(max_examples=60)
@given(
    st.integers(1, 70),
    st.integers(1, 50),
    st.integers(0, 36),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.sampled_from(LAYOUTS),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 99),
)
def test_products_equal_float64(
    rows: int, columns: int, vectors: int, zeros: float, layout: Any, threads: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    dense = generator.standard_normal((rows, columns)).astype(np.float32)
    dense[generator.random((rows, columns)) < zeros] = 0
    dense[generator.integers(rows)] = 0  # an empty row
    x = generator.standard_normal((vectors, columns)).astype(np.float32)
    matrix = SparseMatrix.pack(dense, layout).check("w")
    assert matrix.layout == layout
    assert (matrix.dense() == dense).all()
    assert matrix.nbytes == bytes_of(dense, layout)
    expected = x.astype(np.float64) @ dense.T.astype(np.float64)
    scale = np.abs(x).astype(np.float64) @ np.abs(dense.T).astype(np.float64)
    product = matrix.multiply(x, threads)
    assert product.shape == (vectors, rows)
    # The error of a sum of n products in any order is at most n 2^-24 times the sum of magnitudes.
    assert (np.abs(product - expected) <= (columns + 8) * 2.0**-24 * scale).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [65_536, 65_537, 200_000])
def test_wide_matrices_have_wide_indices(layout: Any, columns: int) -> None:
    dense = np.zeros((20, columns), np.float32)
    dense[3, [0, 65_535, columns - 1]] = 1.0, 2.0, 4.0
    matrix = SparseMatrix.pack(dense, layout).check("w")
    assert matrix.indices.dtype == (np.uint16 if columns == 65_536 else np.uint32)
    assert matrix.nbytes == bytes_of(dense, layout)
    assert matrix.multiply(np.ones((3, columns), np.float32))[:, 3].tolist() == [dense.sum()] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_give_the_same_numbers(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sparse.matrices._SPLIT", 1)
    generator = np.random.default_rng(0)
    dense = generator.standard_normal((75, 40)).astype(np.float32)
    dense[:60] *= generator.random((60, 40)) > 0.9  # most entries lie in the last rows
    matrix, x = SparseMatrix.pack(dense, layout), generator.standard_normal((21, 40), np.float32)
    for threads in (2, 3, 8):
        assert (matrix.multiply(x, threads) == matrix.multiply(x, 1)).all()


def recurrent() -> list[tuple[str, dict[str, Any]]]:
    """Every kind of recurrent layer, in all its shapes."""
    shapes: list[dict[str, Any]] = [
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False, "bidirectional": True},
        {"num_layers": 3, "bias": False, "dropout": 0.5},
    ]
    kinds = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {})]
    return [(kind, {**extra, **shape}) for kind, extra in kinds for shape in shapes]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kind", "options"), recurrent())
def test_recurrent_layers_equal_the_dense_ones(
    kind: str, options: dict[str, Any], layout: Any
) -> None:
    torch.manual_seed(0)
    dense = pruned(getattr(nn, kind)(13, 21, **options), 0.8, 1 if layout == "csr" else 16)
    packed, decisions = sparse.pack(dense, layout)
    assert isinstance(packed, sparse.PackedRNN)
    assert any(each.layout == layout for each in decisions)
    oracle = getattr(nn, kind)(13, 21, **options).double().eval()
    oracle.load_state_dict({k: v.double() for k, v in dense.state_dict().items()})
    paths = oracle.num_layers * (2 if oracle.bidirectional else 1)
    for shape, batch in (((7, 5, 13), 7 if oracle.batch_first else 5), ((6, 13), None)):
        x = torch.randn(shape)
        state: Any = torch.randn(*([paths] if batch is None else [paths, batch]), 21)
        if kind == "LSTM":
            state = (state, state.cos())
        for given_state in (None, state):
            doubled = given_state
            if given_state is not None:
                doubled = (
                    tuple(s.double() for s in state) if kind == "LSTM" else given_state.double()
                )
            expected, expected_end = oracle(x.double(), doubled)
            output, end = packed(x, given_state)
            torch.testing.assert_close(output.double(), expected, rtol=1e-4, atol=2e-6)
            for mine, right in zip(
                end if kind == "LSTM" else [end],
                expected_end if kind == "LSTM" else [expected_end],
                strict=True,
            ):
                torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=2e-6)


class Net(nn.Module):
    """All that a packed file may hold: embedding, norm, GRU, linear layers with and without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(31, 40)
        self.gru = nn.GRU(40, 48, 2, batch_first=True)
        self.norm = nn.LayerNorm(48)
        self.out = nn.Sequential(nn.Linear(48, 33), nn.ReLU(), nn.Linear(33, 31, bias=False))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.out(self.norm(self.gru(self.embedding(text))[0]))
        return output


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(1)
    return pruned(Net())


TEXT = torch.arange(30).view(3, 10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_packed_model_is_smaller_on_disk_and_in_memory_and_returns_the_same(
    net: nn.Module, layout: Any, tmp_path: Path
) -> None:
    dense, path = tmp_path / "dense.safetensors", tmp_path / "packed.safetensors"
    if layout == "bsr16x1":
        net = pruned(Net(), block=16)
    expected = net(TEXT).detach()
    save_file(net.state_dict(), dense)
    answer = sparse.pack_file(dense, path, layout)
    stored = load_file(path)
    for each in answer.weights:
        weight = net.state_dict()[each.weight].numpy()
        assert each.sparsity == 1 - np.count_nonzero(weight) / weight.size
        if each.layout != "dense":
            assert each.stored_bytes == bytes_of(weight, layout) < each.dense_bytes
            assert f"{each.weight}.values" in stored
            assert each.weight not in stored
    tensors = sum(each.nbytes for each in stored.values())
    packed_count = sum(each.layout != "dense" for each in answer.weights)
    assert packed_count >= 2
    assert tensors == answer.stored_bytes == sparse.inspect(path).stored_bytes
    assert answer.dense_bytes == sum(each.nbytes for each in net.state_dict().values())
    assert path.stat().st_size < dense.stat().st_size * 0.5
    with torch.device("meta"):
        empty = Net()
    for model in (sparse.load(Net(), path), sparse.load(empty, path)):
        held = {id(each): each.nbytes for each in (*model.parameters(), *model.buffers())}
        assert sum(held.values()) <= tensors + 4 * 31 * 40  # an embedding is made dense
        torch.testing.assert_close(model(TEXT), expected, rtol=1e-4, atol=1e-6)
    again = tmp_path / "again.safetensors"
    sparse.save(sparse.load(Net(), path), again)
    verified = sparse.inspect(again)
    layouts = {
        each.weight: each.layout for each in answer.weights if "embedding" not in each.weight
    }
    assert {w.weight: w.layout for w in verified.weights if w.weight in layouts} == layouts


def test_auto_keeps_dense_what_dense_does_better(
    net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: dict[str, float] = {}
    monkeypatch.setattr(
        "holdfast.sparse.layers.fastest", lambda calls: {k: times[k] for k in calls}
    )
    # Single weights are zero here: in blocks they take more bytes than as rows.
    for times, layout in (
        ({"dense": 1.0, "csr": 1.05, "bsr16x1": 3.0}, "csr"),  # as fast, and smaller
        ({"dense": 3.0, "csr": 1.05, "bsr16x1": 1.0}, "csr"),
        ({"dense": 1.0, "csr": 1.2, "bsr16x1": 1.3}, "dense"),
        ({"dense": 1.0, "csr": 2.0, "bsr16x1": 3.0}, "dense"),
        ({"dense": 2.0, "csr": 1.0, "bsr16x1": 3.0}, "csr"),
        ({"dense": 3.0, "csr": 2.0, "bsr16x1": 1.0}, "bsr16x1"),
    ):
        packed, decisions = sparse.pack(net)
        assert isinstance(packed.gru, nn.GRU if layout == "dense" else sparse.PackedRNN)
        by_name = {each.weight: each for each in decisions}
        assert by_name["gru.weight_hh_l0"].layout == layout
        assert by_name["gru.weight_hh_l0"].seconds == times
    full, decisions = sparse.pack(nn.Linear(20, 20))
    assert isinstance(full, nn.Linear)
    assert (decisions[0].layout, decisions[0].seconds) == ("dense", {})


def test_state_dicts_go_round_and_zero_layers_are_said(net: nn.Module, tmp_path: Path) -> None:
    net.out[0].weight.data.zero_()
    packed, _ = sparse.pack(net, "csr")
    other, _ = sparse.pack(pruned(Net(), 0.5, seed=3), "csr")
    other.load_state_dict(packed.state_dict())
    assert (other(TEXT) == packed(TEXT)).all()
    torch.testing.assert_close(packed(TEXT), net(TEXT), rtol=1e-4, atol=1e-6)
    assert (packed.half().out[0](torch.ones(1, 48)) != 0).any()  # the bias
    sparse.save(packed, tmp_path / "p")
    assert "out.0.weight" in sparse.inspect(tmp_path / "p").sections()[0].sentence
    with pytest.raises(InputError) as refused:
        packed.float()(TEXT).sum().backward()
    assert (refused.value.code, refused.value.place) == ("unsupported", "backward")


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        model = nn.Sequential(nn.Linear(30, 30), nn.Linear(30, 30), nn.Linear(30, 30))
        model[1].weight = model[0].weight
        return model

    model = pruned(tied())
    sparse.save(model, tmp_path / "tied")
    sparse.pack_file(tmp_path / "tied", tmp_path / "packed", "csr")
    x = torch.randn(2, 30)
    assert set(load_file(tmp_path / "tied")) == {f"{n}.bias" for n in "012"} | {
        "0.weight",
        "2.weight",
    }
    assert len(load_file(tmp_path / "packed")) == 3 + 2 * 4 + 1  # shapes have no ties
    for name in ("tied", "packed"):
        torch.testing.assert_close(sparse.load(tied(), tmp_path / name)(x), model(x))
    save_file({k: v for k, v in model.state_dict().items() if k != "1.weight"}, tmp_path / "alias")
    torch.testing.assert_close(sparse.load(tied(), tmp_path / "alias")(x), model(x))


@pytest.fixture
def packed_file(net: nn.Module, tmp_path: Path) -> Path:
    sparse.save(sparse.pack(net, "csr")[0], tmp_path / "packed.safetensors")
    return tmp_path / "packed.safetensors"


def _written(path: Path, data: bytes | bytearray) -> Path:
    path.write_bytes(data)
    return path


def test_every_damaged_byte_is_noticed(packed_file: Path) -> None:
    whole = packed_file.read_bytes()
    names = list(load_file(packed_file))
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in [*range(header, len(whole), 397), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        packed_file.write_bytes(damaged)
        with pytest.raises(InputError) as refused:
            sparse.load(Net(), packed_file)
        assert refused.value.code == "damaged"
        assert refused.value.place in names
    x = torch.arange(31)
    right = sparse.load(Net(), _written(packed_file, whole))(x[None])
    for place in range(8, header, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 7)
        # Found, or harmless: a name of the metadata that nobody reads.
        with contextlib.suppress(InputError):
            assert (sparse.load(Net(), _written(packed_file, damaged))(x[None]) == right).all()
    for damaged in (whole[: header + 9], whole[:20], b"", b"\xff" * 50):
        packed_file.write_bytes(damaged)
        with pytest.raises(InputError) as refused:
            sparse.inspect(packed_file)
        assert (refused.value.code, refused.value.place) == ("damaged", "header")


def test_pickles_are_refused_unopened(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "m.pt")
    (tmp_path / "m.pkl").write_bytes(b"\x80\x04K\x01.")
    for name in ("m.pt", "m.pkl"):
        with pytest.raises(InputError) as refused:
            sparse.inspect(tmp_path / name)
        assert refused.value.code == "unknown-format"


def _change(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    def apply(state: dict[str, torch.Tensor]) -> None:
        state[f"gru.weight_hh_l0.{part}"] = change(state[f"gru.weight_hh_l0.{part}"])

    return apply


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        (_change("indices", lambda t: torch.full_like(t, 48)), "damaged", "indices"),
        (_change("indices", lambda t: t.to(torch.int32)), "damaged", "indices"),
        (_change("indices", lambda t: t[1:].clone()), "damaged", "values"),
        (_change("values", lambda t: t.double()), "damaged", "values"),
        (
            _change("starts", lambda t: t.view(torch.int32).flip(0).view(torch.uint32)),
            "damaged",
            "starts",
        ),
        (_change("starts", lambda t: t[:-1].clone()), "damaged", "starts"),
        (_change("starts", lambda t: torch.zeros_like(t)), "damaged", "starts"),
        (_change("shape", lambda t: t[:1].clone()), "damaged", "shape"),
        (_change("shape", lambda t: t + torch.tensor([0, 1])), "conflict", ""),
        (lambda state: state.pop("gru.weight_hh_l0.starts"), "missing-key", ""),
        (lambda state: state.pop("norm.bias"), "missing-key", "norm.bias"),
        (lambda state: state.update(extra=torch.ones(1)), "unknown-key", "extra"),
        (lambda state: state.update({"norm.bias": torch.ones(3)}), "conflict", "norm.bias"),
    ],
)
def test_inconsistent_states_are_refused(
    packed_file: Path, change: Callable[[Any], None], code: str, place: str
) -> None:
    # Without checksums, as another program would write it: the arrays alone must not mislead a kernel.
    state = load_file(packed_file)
    change(state)
    save_file(state, packed_file)
    with pytest.raises(InputError) as refused:
        sparse.load(Net(), packed_file)
    assert refused.value.code == code
    weight = "gru.weight_hh_l0"
    assert refused.value.place == (
        place if "." in place or place == "extra" else f"{weight}.{place}".rstrip(".")
    )


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_what_cannot_be_packed_is_said(net: nn.Module, packed_file: Path, tmp_path: Path) -> None:
    for make, code in (
        (lambda: sparse.pack_file(packed_file, tmp_path / "x"), "conflict"),
        (lambda: sparse.pack_file(tmp_path / "absent", tmp_path / "x"), "not-found"),
        (lambda: sparse.load(nn.GRU(3, 3), packed_file), "missing-key"),
        (lambda: sparse.pack(net, "csr")[0].gru(torch.ones(2, 3, 39)), "conflict"),
        (lambda: sparse.pack(net, "csr")[0].gru(torch.ones(2, 3, 40).double()), "unsupported"),
        (lambda: sparse.pack(net, "csr")[0].gru(torch.ones(3, 0, 40)), "unsupported"),
        (lambda: sparse.pack(net, "csr")[0].gru(torch.ones(2, 3, 3, 40)), "unsupported"),
        (
            lambda: sparse.pack(net, "csr")[0].gru(torch.ones(2, 3, 40), torch.ones(2, 1, 48)),
            "unsupported",
        ),
        (lambda: SparseMatrix.pack(np.ones((2, 2)), "csr"), "unsupported"),
    ):
        with pytest.raises(InputError) as refused:
            make()
        assert refused.value.code == code
    save_file({"bias": torch.ones(3)}, tmp_path / "nothing")
    for call in (sparse.inspect, lambda path: sparse.pack_file(path, tmp_path / "x")):
        with pytest.raises(InputError) as refused:
            call(tmp_path / "nothing")
        assert refused.value.code == "no-data"
    assert not (tmp_path / "x").exists()
    projected = pruned(nn.LSTM(20, 24, proj_size=8))  # weights of a class that has no packed layer
    kept, _ = sparse.pack(projected, "csr")
    assert isinstance(kept, nn.LSTM)
    x = torch.randn(3, 2, 20)
    torch.testing.assert_close(kept(x)[0], projected(x)[0])


def test_the_file_says_what_it_is(packed_file: Path) -> None:
    with safe_open(packed_file, "pt") as file:
        metadata = file.metadata()
        own = json.loads(metadata["holdfast-sparse"])
        assert own["version"] == 1
        assert set(own["crc32"]) == set(file.keys())
