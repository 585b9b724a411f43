"""Models from PyTorch on secrets, against the same models in plaintext."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.private.mpc.accounting import Cost
from holdfast.private.mpc.critical_path import replay
from holdfast.private.mpc.forecast import dry_run, plan
from holdfast.private.mpc.importing import (
    PrivateModel,
    import_model,
    largest_results,
    load_weights,
    prepare,
)
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import RangeError
from holdfast.private.mpc.transport import Network, PeerError, TraceEvent


class Residual(nn.Module):
    """Convolutions of all sorts, batch normalization with and without a layer to fold into."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.grouped = nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.alone = nn.BatchNorm2d(8)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 5), nn.ReLU6())

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = self.pool(torch.relu(self.grouped(x)))
        return self.head(self.average(self.alone(x)))


class Encoder(nn.Module):
    """A transformer for token ids with positional embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.position = nn.Parameter(torch.randn(1, 9, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.output = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.position[:, : ids.shape[1]]
        return self.output(self.layers(x).mean(1)).log_softmax(-1)


class Causal(nn.Module):
    """RMS normalization, split projections, causal attention, SiLU gates."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.RMSNorm(8), nn.Linear(8, 24)
        self.gate, self.up = nn.Linear(8, 6), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(2, 5, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).split(8, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = x + y.transpose(1, 2).reshape(2, 5, 8)
        return nn.functional.silu(self.gate(y)) * self.up(y)


class Masked(nn.Module):
    """Attention written out, as older code does: public masks with infinities."""

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ x.transpose(1, 2)) / 2.0
        mask = torch.ones(4, 4).triu(1).bool()
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return torch.cat([weights @ x, x[:, :, :1]], dim=2).unsqueeze(1)[:, 0, 1:]


class Signal(nn.Module):
    """One dimension, several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Hardswish())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x).float()
        signs = torch.where(y > 0.3, y.abs(), 1 - y)
        return nn.functional.leaky_relu(y).sum(2), (torch.sigmoid(signs) - 0.5).pow(3).mean((1, 2))


def randomized(module: nn.Module) -> nn.Module:
    """Batch normalization with statistics that are not the trivial ones."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return module.eval()


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], float]] = {
    "residual": (Residual, lambda: torch.randn(2, 2, 9, 9), 2e-3),
    "encoder": (Encoder, lambda: torch.randint(0, 11, (2, 9)), 2e-2),
    "causal": (Causal, lambda: torch.randn(2, 5, 8), 1e-2),
    "masked": (Masked, lambda: torch.randn(2, 4, 3), 1e-2),
    "signal": (Signal, lambda: torch.randn(2, 2, 6), 5e-3),
}


def on_secrets(module: nn.Module, x: Tensor, parties: int = 2, **settings: Any) -> Any:
    """What the model gives on shares, and the parties' ledgers."""

    versions = [_forgotten(module), module]

    def main(party: Party) -> Any:
        party.supply.ledger = party.channel.ledger
        model = import_model(party, versions[party.rank], x, owner=1)
        shared = party.secret(x, owner=0, shape=x.shape, integer=not x.is_floating_point())
        outputs = model(shared)
        revealed = [each.reveal() for each in _several(outputs)]
        return revealed, party.channel.ledger.rows

    return simulate(parties, main, **settings)


def _several(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _forgotten(module: nn.Module) -> nn.Module:
    """The same architecture with other weights, as parties have it that do not own the model."""
    import copy

    other = copy.deepcopy(module)
    with torch.no_grad():
        for weight in [*other.parameters(), *other.buffers()]:
            if weight.is_floating_point():
                weight.fill_(0.25)
    return other


def checked(name: str) -> tuple[nn.Module, Tensor, Any]:
    """A model that computes on secrets what it computes in plaintext, its input, and both ledgers."""
    torch.manual_seed(3)
    build, draw, tolerance = CASES[name]
    module, x = randomized(build()), draw()
    with torch.no_grad():
        expected = _several(module(x))
    results = on_secrets(module, x)
    for revealed, _ in results:
        for got, want in zip(revealed, expected, strict=True):
            assert got.shape == want.shape
            torch.testing.assert_close(got, want.double(), rtol=0, atol=tolerance)
    return module, x, [rows for _, rows in results]


@pytest.mark.parametrize("name", ["encoder", "signal"])
def test_models_compute_what_they_compute_in_plaintext(name: str) -> None:
    checked(name)


@pytest.mark.full
@pytest.mark.parametrize("name", ["causal", "masked"])
def test_other_attention_computes_what_it_computes_in_plaintext(name: str) -> None:
    checked(name)


def test_convolutions_and_what_a_dry_run_says_of_them() -> None:
    module, x, ledgers = checked("residual")
    graph = prepare(module, [x])
    runs = dry_run(graph, [x])
    # Two parties exchange: what one party counts is the longest chain, too.
    rounds = replay([run.channel.trace for run in runs], Network()).row_rounds
    for run, rows in zip(runs, ledgers, strict=True):
        assert traffic(run.channel.ledger.rows) == traffic(rows)
        assert rounds == {key: row.rounds for key, row in rows.items() if row.rounds}
    # Batch normalization and pooling are rearranged.
    ops = [step.op for step in graph.steps]
    assert ops.count("batch_norm") == 1  # the one behind the pooling
    assert ops.index("max_pool2d") < ops.index("relu", ops.index("max_pool2d"))
    assert not any("running" in name for name in graph.constants)


def traffic(rows: dict[tuple[str, str], Cost]) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes sent, and bytes of preprocessing received, by module and operation."""
    return {key: (row.bytes_sent, row.offline_bytes) for key, row in rows.items()}


SHAPES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 3), (2, 6)),
    "relu": (nn.ReLU(), (4, 5)),
    "layers": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        (1, 1, 6, 6),
    ),
}


@pytest.mark.parametrize("comparison", ["tree", "dcf"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_party_of_a_dry_run_counts_what_it_counts_among_the_others(
    shape: str, comparison: Any
) -> None:
    # Party 2 deals, so the parties differ in bytes, in rounds and in whom they wait for.
    module, size = SHAPES[shape]
    x = torch.zeros(size)
    graph = prepare(module, [x])

    def main(party: Party) -> Party:
        PrivateModel(party, graph, owner=0)(party.secret(x, owner=0, shape=size)).reveal()
        return party

    settings: dict[str, Any] = {"mode": "replicated3", "comparison": comparison}
    alone = dry_run(graph, [x], 3, **settings)
    together = simulate(3, main, **settings)
    replayed = replay([run.channel.trace for run in alone], Network())
    assert replayed.rounds == [party.channel.round for party in together]
    assert sum(replayed.row_rounds.values()) == max(replayed.rounds)
    for run, party in zip(alone, together, strict=True):
        assert traffic(run.channel.ledger.rows) == traffic(party.channel.ledger.rows)
        assert run.supply.items == party.supply.items


def test_a_party_that_deals_delays_those_that_wait_for_it() -> None:
    def event(peer: int, received: bool, computing_s: float) -> TraceEvent:
        return TraceEvent(("", "relu"), peer, 100, received, computing_s)

    # Party 2 computes 3 s, then sends party 1 what it needs to answer party 0.
    traces = [
        [event(1, False, 0.5), event(1, True, 0.0)],
        [event(2, True, 1.0), event(0, False, 0.25), event(0, True, 0.0)],
        [event(1, False, 3.0)],
    ]
    assert replay(traces, Network()).ends_s == [3.25, 3.25, 3.0]
    # 2 messages follow each other: 2 delays, and 2 times 800 bits on links of their own.
    slow = replay(traces, Network(delay_s=10.0, bits_per_s=800.0))
    assert slow.ends_s == [25.25, 14.25, 3.0]
    assert slow.rounds == [2, 1, 0]
    assert slow.row_rounds == {("", "relu"): 2}


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(1, 1, 3)
        self.inner = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ELU())
        self.pool = nn.MaxPool2d(2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.inner(self.up(x)))
        return y.cumprod(1).sin() + torch.arange(3).cumprod(0).sum()


def test_everything_unsupported_is_listed_before_a_byte_is_sent() -> None:
    def main(party: Party) -> Any:
        sent = party.channel.ledger.total().bytes_sent
        with pytest.raises(InputError) as refused:
            import_model(party, Unsupported(), torch.zeros(1, 1, 5, 5))
        assert party.channel.ledger.total().bytes_sent == sent
        return refused.value

    error = simulate(2, main)[0]
    assert error.code == "unsupported"
    for op, module in (
        ("convolution", "up"),
        ("elu", "inner.1"),
        ("max_pool2d (ceil_mode)", "pool"),
        ("cumprod", "the model itself"),
        ("sin", "the model itself"),
    ):
        assert f"{op} in {module}" in error.found
    assert error.found.count("cumprod") == 1  # the other one is of the architecture alone


def test_a_model_that_branches_on_values_is_refused() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError) as refused:
        prepare(Branching(), [torch.zeros(2)])
    assert refused.value.code == "unsupported"


def test_another_architecture_ends_at_the_import() -> None:
    def main(party: Party) -> Any:
        module = nn.Linear(4, 2 + party.rank)
        with pytest.raises(PeerError) as refused:
            import_model(party, module, torch.zeros(1, 4))
        return refused.value

    for rank, error in enumerate(simulate(2, main)):
        assert (error.code, error.peer, error.op) == ("handshake", 1 - rank, "import")


def test_weights_come_from_safetensors(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("text")

    def main(party: Party) -> Any:
        model = import_model(party, nn.Linear(3, 2), x, weights=tmp_path / "weights.safetensors")
        return model(party.secret(x, owner=1)).reveal()

    torch.testing.assert_close(simulate(2, main)[0], module(x).double(), rtol=0, atol=1e-3)
    for name, code in (("other", "damaged"), ("text", "damaged"), ("none", "not-found")):
        with pytest.raises(InputError) as refused:
            load_weights(nn.Linear(3, 2), tmp_path / f"{name}.safetensors")
        assert refused.value.code == code


def test_repeated_calls_open_the_weights_once_in_batches_of_any_size() -> None:
    module = nn.Linear(64, 64)

    def main(party: Party) -> tuple[list[int], Tensor]:
        model = import_model(party, module, torch.zeros(2, 64))
        with pytest.raises(InputError) as refused:
            model(party.secret(torch.zeros(3, 63), owner=0))
        assert refused.value.code == "unsupported"
        sent = []
        for rows in (2, 2, 5, 2):
            before = party.channel.ledger.total().bytes_sent
            y = model(party.secret(torch.ones(rows, 64), owner=0, shape=(rows, 64)))
            assert y.shape == (rows, 64)
            sent.append(party.channel.ledger.total().bytes_sent - before)
        return sent, y.reveal()

    sent, y = simulate(2, main)[0]
    assert sent == [rows * 64 * 8 + 28 for rows in (2, 2, 5, 2)]
    torch.testing.assert_close(y, module(torch.ones(2, 64)).double(), rtol=0, atol=2e-3)


def test_weights_that_depend_on_the_shape_of_inputs_are_refused_for_another_one() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.rand(9, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.table[: x.shape[0]].cumprod(0)

    def main(party: Party) -> None:
        model = import_model(party, Positions(), torch.zeros(4, 3))
        with pytest.raises(InputError) as refused:
            model(party.secret(torch.zeros(5, 3), owner=0))
        assert refused.value.code == "invalid-value"

    simulate(2, main)


class Moves(nn.Module):
    """Padding by name, and what moves or picks elements by public places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2))
        self.second = nn.Conv1d(3, 2, 4, padding="same")

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.first(x)
        best, place = y.max(2)
        z = self.second(best).flip(-1).repeat(1, 2, 1)
        low = torch.maximum(z[:, [2, 0]], torch.minimum(z[:, 1:3], torch.tensor(0.1)))
        return (
            place,
            low.roll(1, 2),
            y.amin((1, 2)),
            y.index_select(3, torch.tensor([4, 0])),
            -y.min(),
        )


@pytest.mark.filterwarnings("ignore:Using padding")  # of torch, for even kernels
def test_padding_maxima_and_moves_of_models() -> None:
    torch.manual_seed(4)
    module, x = Moves(), torch.randn(2, 2, 6, 5)
    with torch.no_grad():
        expected = module(x)
    for got, want in zip(on_secrets(module, x)[0][0], expected, strict=True):
        torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=2e-3)


def test_places_that_are_secret_cannot_pick() -> None:
    class Picks(nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            return x[at]

    with pytest.raises(InputError) as refused:
        prepare(Picks(), [torch.zeros(3), torch.tensor([1])])
    assert "index (by secret places)" in refused.value.found


def test_batch_normalization_cannot_be_trained() -> None:
    with pytest.raises(InputError) as refused:
        prepare(nn.BatchNorm1d(3), [torch.zeros(2, 3)], trainable=True)
    assert "batch_norm (no gradient)" in refused.value.found


class Deep(nn.Module):
    """Layers whose bounds alone leave the ring, although their results stay small."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(30, 30) for _ in range(18))
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.leaky_relu(layer(x), 0.5)
        return x


CALIBRATED = """
import torch
from torch import nn

torch.manual_seed(7)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
typical = torch.randn(64, 8)


def several():
    return [typical]
"""


def test_a_plan_has_the_margins_that_a_calibrated_run_has(tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    file.write_text(CALIBRATED)
    names: dict[str, Any] = {}
    exec(CALIBRATED, names)

    def main(party: Party) -> dict[tuple[str, str], float]:
        given = names["typical"] if party.rank == 0 else None
        example = torch.zeros(1, 8)
        model = import_model(party, names["net"], example, calibration=given, margin=4.0)
        x = party.secret(torch.randn(1, 8), owner=0, shape=(1, 8), bound=1000.0)
        model(x).reveal()
        return {key: cost.margin_bits for key, cost in party.channel.ledger.rows.items() if key[0]}

    ran = simulate(2, main)[1]
    settings: dict[str, Any] = {"bound": 1000.0, "margin": 4.0}
    forecasts = [
        plan(f"{file}:net", "1x8", calibration=name, **settings)
        for name in ("typical", "several", None)
    ]
    margins = [
        {(row["module"], row["op"]): row["margin_bits"] for row in each.layers if row["module"]}
        for each in forecasts
    ]
    assert margins[0] == margins[1] == ran
    assert margins[2] != ran
    with pytest.raises(InputError) as refused:
        plan(f"{file}:net", "1x8", calibration="torch")
    assert (refused.value.code, refused.value.place) == ("unknown-name", "torch")


@pytest.mark.full
def test_calibration_replaces_bounds_set_by_hand() -> None:
    torch.manual_seed(7)
    module = Deep()
    x = torch.randn(3, 30)
    with torch.no_grad():
        expected = module(x)

    def main(party: Party, scale: float, **options: Any) -> Any:
        model = import_model(party, module, torch.zeros(1, 30), owner=1, **options)
        return model.expected, model(party.secret(x * scale, owner=0, bound=900.0)).reveal()

    with pytest.raises(RangeError):  # before anything is sent of it
        simulate(2, lambda party: main(party, 1.0))

    def calibrated(party: Party, scale: float) -> Any:
        return main(party, scale, calibration=torch.randn(50, 30) if party.rank == 1 else None)

    for bounds, got in simulate(2, lambda party: calibrated(party, 1.0)):
        torch.testing.assert_close(got, expected.double(), rtol=0, atol=5e-3)
        assert bounds["x"] == 8.0  # twice the largest of 1,500 normal numbers, as a power of two
    with pytest.raises(RangeError) as refused:  # what no example was like
        simulate(2, lambda party: calibrated(party, 100.0))
    assert "values outside" in str(refused.value)


# --- Small models of one operation each, against torch ---------------------------------------------


class Of(nn.Module):
    """A function as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


ONES = torch.ones(3, 2)
SUPPORTED = {
    "addmm": lambda x: torch.addmm(torch.tensor([1.0, 2.0]), x * 2, ONES),
    "addmm of an input": lambda x: torch.addmm(torch.tensor([1.0, 2.0]), x, ONES),
    "baddbmm": lambda x: torch.baddbmm(torch.ones(1, 2, 2), x[None], ONES[None]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "dot": lambda x: x[0] @ x[1],
    "outer": lambda x: torch.outer(x[0], x[1]),
    "itself as a weight": lambda x: nn.functional.linear(x, x),
    "a weight of it": lambda x: nn.functional.linear(x[:1], x * 2),
    "unfold": lambda x: nn.functional.unfold(x.reshape(1, 1, 2, 3), 2),
    "shuffle": lambda x: nn.functional.pixel_shuffle(x.repeat(2, 2).reshape(1, 4, 1, 6), 2),
    "reflection": lambda x: nn.functional.pad(x, (1, 1), mode="reflect"),
    "cropped": lambda x: nn.functional.pad(x, (-1, 2), value=0.5),
    "triangle": lambda x: x.tril(),
    "two limits": lambda x: x.clamp(-0.5, 0.25),
    "best two": lambda x: (*x.max(1), x.min(), x.argmax()),
    "bits": lambda x: ((x > 0) * x, (x > 0).sum(1), x == x.max()),
    "a constant beside": lambda x: (x, torch.tensor([1.0, 2.0])),
    "nothing at all": lambda x: x,
}


def test_models_of_one_operation_are_those_of_torch() -> None:
    x = torch.tensor([[0.5, -1.25, 3.0], [2.0, 0.25, -0.75]])
    module = Of(lambda x: [_several(call(x)) for call in SUPPORTED.values()])

    def main(party: Party) -> Any:
        outputs = import_model(party, module, x)(party.secret(x, owner=0, bound=4.0))
        return [each.reveal() if hasattr(each, "reveal") else each for each in outputs]

    wanted = [(name, each) for name, call in SUPPORTED.items() for each in _several(call(x))]
    for got, (name, each) in zip(simulate(1, main)[0], wanted, strict=True):
        assert got.shape == each.shape, name
        assert (got.double() - each.double()).abs().max() <= 2e-4, name


REFUSED = {
    "addmm (beta)": lambda x: torch.addmm(torch.ones(2), x, ONES, beta=2),
    "addmm (alpha)": lambda x: torch.addmm(torch.ones(2), x, ONES, alpha=3),
    "add (alpha)": lambda x: torch.add(x, x, alpha=2),
    "clamp.Tensor": lambda x: x.clamp(min=torch.tensor([0.0, 0.1, 0.2])),
    "pow (exponent 0)": lambda x: x**0,
    "pow (exponent 0.5)": lambda x: x**0.5,
    "div.Tensor_mode": lambda x: x // 1,
    "copy (conversion to torch.int64)": lambda x: x.long(),
    "cumsum": lambda x: x.cumsum(1),
    "avg_pool2d (count_include_pad)": lambda x: nn.functional.avg_pool2d(
        x[None], 2, 1, 1, count_include_pad=False
    ),
}


def test_forms_of_operations_that_would_be_something_else_are_refused() -> None:
    module = Of(lambda x: [call(x) for call in REFUSED.values()])
    with pytest.raises(InputError) as refused:
        prepare(module, [torch.ones(2, 3)])
    assert refused.value.code == "unsupported"
    names = [each.partition(" in ")[0] for each in refused.value.found.split("; ")]
    assert sorted(names) == sorted(REFUSED)


@pytest.mark.parametrize(
    ("margin", "typical", "place"),
    [
        (0.0, 1.0, "margin"), (-2.0, 1.0, "margin"), (float("nan"), 1.0, "margin"),
        (float("inf"), 1.0, "margin"), (2.0, float("nan"), "calibration[0, 0]"),
        (2.0, float("inf"), "calibration[0, 0]"),
    ],
)  # fmt: skip
def test_a_calibration_that_says_nothing_is_refused(
    margin: float, typical: float, place: str
) -> None:
    with pytest.raises(InputError) as refused:
        largest_results(nn.Linear(3, 2), torch.full((1, 3), typical), margin)
    assert refused.value.place == place


def test_a_calibration_is_the_power_of_two_above_each_result_times_the_margin() -> None:
    module = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[3.0, -5.0]]))
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]])  # 3, -10, -1; then 3, 0, 0
    for margin in (0.5, 3.0):
        largest = [2.0**bits for bits in largest_results(module, x, margin).values()]
        # Of the input 2, of the layer 10, of its positive part 3.
        wanted = [2.0 ** math.ceil(math.log2(margin * size)) for size in (2, 10, 3)]
        assert largest == wanted
