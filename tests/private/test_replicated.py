"""Replicated secret sharing among three parties: results, costs as published, and what each party sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.config import Duration
from holdfast.private.mpc import functions, launch
from holdfast.private.mpc.launch import PartyError, run_local, simulate
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.transport import HEADER_BYTES

REPLICATED: dict[str, Any] = {"mode": "replicated3"}


def components(party: Party, tensor: Any) -> list[np.ndarray]:
    """What a party holds of c0, c1, c2; None of the third."""
    share, second = tensor.share.numpy(), tensor.second.numpy()
    held = {0: (share - second, second, None), 1: (None, second, share), 2: (second, None, share)}
    return list(held[party.rank])


@pytest.mark.parametrize("owner", [0, 1, 2])
def test_every_summand_is_at_two_parties_and_no_party_has_all(owner: int) -> None:
    values = torch.arange(-3000, 3000)

    def main(party: Party) -> Any:
        x = party.secret(values if party.rank == owner else None, owner=owner)
        every = [x, x + 7, 3 - x, x.reshape(60, 100).sum(0), x.pad((1, 2), 5), x * 3 - x[:1]]
        every += [functions.cat([x, x]), party.public(values), x.reshape(2, -1).T]
        every += [x.roll(7), x.unfold(0, 5, 3), x.chunk(4)[2], x.detach()[values % 9 == 0]]
        every += [functions._windows(x.reshape(1, 1, 60, 100), (3, 2), (2, 2), (1, 1))]
        return [components(party, each) for each in every], [each.reveal() for each in every]

    results = simulate(3, main, **REPLICATED)
    for number, expected in enumerate(results[0][1]):
        held = [results[rank][0][number] for rank in range(3)]
        for place in range(3):
            known = [each[place] for each in held if each[place] is not None]
            assert len(known) == 2
            assert np.array_equal(*known)
        total = held[0][0] + held[0][1] + held[1][2]
        assert np.array_equal(total, expected.numpy())
    x = values.numpy()
    wanted = [x, x + 7, 3 - x, x.reshape(60, 100).sum(0), np.pad(x, (1, 2), constant_values=5)]
    wanted += [x * 3 - x[:1], np.concatenate([x, x]), x, x.reshape(2, -1).T]
    windows = np.lib.stride_tricks.sliding_window_view
    wanted += [np.roll(x, 7), windows(x, 5)[::3], np.split(x, 4)[2], x[x % 9 == 0]]
    framed = windows(np.pad(x.reshape(60, 100), 1), (3, 2))[::2, ::2]
    wanted += [framed.transpose(2, 3, 0, 1)[None, None]]
    for got, each in zip(results[2][1], wanted, strict=True):
        assert np.array_equal(got.numpy(), each)


PRODUCTS = [
    ("mul", (5, 7), (5, 7), ()),
    ("mul", (5, 1), (7,), ()),
    ("matmul", (3, 4, 6), (6, 5), ()),
    ("conv2d", (2, 4, 6, 5), (6, 2, 3, 3), (("padding", (1, 1)), ("groups", 2))),
]


@pytest.mark.parametrize(("op", "left", "right", "options"), PRODUCTS)
def test_products_of_integers_are_exact(op: str, left: Any, right: Any, options: Any) -> None:
    rng = np.random.default_rng(11)
    x, y = (torch.from_numpy(rng.integers(-(2**20), 2**20, size)) for size in (left, right))

    def main(party: Party) -> Any:
        a = party.secret(x if party.rank == 0 else None, owner=0, bound=2.0**20)
        b = party.secret(y if party.rank == 2 else None, owner=2, bound=2.0**20)
        out = a.product(b, op, options)
        return out.reveal(), (out + out).product(a.sum() * 0 + 1, "mul").reveal()

    if op == "conv2d":
        wanted = torch.nn.functional.conv2d(x.double(), y.double(), padding=1, groups=2).long()
    else:
        wanted = x @ y if op == "matmul" else x * y
    once, again = simulate(3, main, **REPLICATED)[1]
    assert torch.equal(once, wanted)
    assert torch.equal(again, 2 * wanted)


def test_a_product_costs_one_ring_element_per_party() -> None:
    count, factors = 1000, 6

    def main(party: Party) -> int:
        ones = torch.ones(count, dtype=torch.int64)
        xs = [
            party.secret(
                ones if party.rank == 0 else None, owner=0, shape=(count,), integer=True, bound=2
            )
            for _ in range(factors)
        ]
        before = party.channel.ledger.total().bytes_sent
        total = xs[0]
        for x in xs[1:]:
            total = total * x
        total * 1 + 1  # public factors and sums are free
        messages = factors - 1 - (party.rank != 2)
        sent = party.channel.ledger.total().bytes_sent - before
        return (sent - messages * HEADER_BYTES) // 8

    # Each of the 5 products: one element from everyone; parties 0 and 1 send theirs with the next product.
    assert simulate(3, main, **REPLICATED) == [4 * count, 4 * count, 5 * count]


def test_a_linear_layer_sends_its_input_and_output_once() -> None:
    rows, width, outputs = 8, 64, 32

    def main(party: Party) -> list[int]:
        x = party.secret(
            torch.ones(rows, width) if party.rank == 0 else None, owner=0, shape=(rows, width)
        )
        w = party.secret(
            torch.ones(width, outputs) if party.rank == 1 else None, owner=1, shape=(width, outputs)
        )
        sent = []
        for _ in range(2):
            before = party.channel.ledger.total().bytes_sent
            x @ w
            sent.append(party.channel.ledger.total().bytes_sent - before)
        return sent

    output = rows * outputs * 8 + HEADER_BYTES
    assert simulate(3, main, **REPLICATED) == [[0, 0], [0, 0], [output, output]]


def test_random_expressions_match_float64() -> None:
    rng = np.random.default_rng(12)
    for _ in range(12):
        rows, inner, columns = rng.integers(1, 6, 3)
        size = 10.0 ** rng.integers(-1, 4)
        x = torch.from_numpy(rng.normal(size=(rows, inner))) * size
        y = torch.from_numpy(rng.normal(size=(inner, columns)))

        def main(party: Party, x: Tensor = x, y: Tensor = y, size: float = size) -> list[Any]:
            a = party.secret(x if party.rank == 0 else None, owner=0, bound=6 * size)
            b = party.secret(y if party.rank == 1 else None, owner=1, bound=6.0)
            z = a @ b
            every = [
                z,
                (z + 1.5) * z,
                z.relu() * b.sum(),
                (a - 2 * a).T @ a,
                z.argmax(1),
                a.square() / size,
            ]
            return [each.reveal() for each in every]

        z = x @ y
        wanted = [z, (z + 1.5) * z, z.relu() * y.sum(), -(x.T @ x), z.argmax(1), x * x / size]
        for got, each in zip(simulate(3, main, **REPLICATED)[2], wanted, strict=True):
            assert (got - each).abs().max() <= 1e-3 * max(1.0, float(each.abs().max()))


FAILING = """
import os, signal

def main(party):
    x = party.secret([1.0, -1.0], owner=0, shape=(2,))
    y = x.relu()
    if party.rank == {rank}:
        os.kill(os.getpid(), signal.{signal})
    return (y * y).relu().reveal()
"""
DIFFERING = """
import torch

def main(party):
    x = party.secret([1.5, 2.0], owner=0, shape=(2,))
    y = {step}
    return y.reveal()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(launch, "_GRACE_S", 0.5)
    monkeypatch.setattr(launch, "_END_S", 0.1)


def failures(folder: Path, text: str, **settings: Any) -> dict[int, dict[str, Any]]:
    path = folder / "script.py"
    path.write_text(text)
    with pytest.raises(PartyError) as failed:
        run_local(3, path, mode="replicated3", **settings)
    assert failed.value.failures.keys() == {0, 1, 2}
    return failed.value.failures


@pytest.mark.parametrize("rank", [1, 2])
def test_a_party_that_dies_ends_all(tmp_path: Path, rank: int) -> None:
    found = failures(tmp_path, FAILING.format(rank=rank, signal="SIGKILL"))
    assert found[rank]["code"] == "party-died"


@pytest.mark.quick(1)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_party_that_falls_silent_ends_all(tmp_path: Path, rank: int) -> None:
    text = FAILING.format(rank=rank, signal="SIGSTOP")
    found = failures(tmp_path, text, timeout=Duration(1.5))
    # Who is given up first depends on the machine's load; that all end does not.
    assert "peer-timeout" in {each["code"] for each in found.values()}


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize(
    "step",
    [
        "x * (2.0 + {other})",
        "x + (0.25 + {other})",
        "x * x * (2 + {other})",
        "x[torch.tensor([int({other})])]",
        "x.roll(int({other}))",
    ],
    ids=["factors", "summands", "products", "places", "moves"],
)
def test_parties_whose_public_operands_differ_reveal_nothing(
    tmp_path: Path, step: str, rank: int
) -> None:
    other = step.format(other=f"(party.rank == {rank})")
    found = failures(tmp_path, DIFFERING.format(step=other))
    codes = {each["code"] for each in found.values()}
    assert "desync" in codes
    assert codes <= {"desync", "peer-aborted", "peer-lost"}
