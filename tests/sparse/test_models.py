"""Packed layers inside published architectures: outputs equal those of the dense model, or it is said."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import rnn

from holdfast import sparse
from holdfast.errors import InputError
from holdfast.sparse import Narang, Pruner
from holdfast.sparse.layers import pack_state
from pruned_modules import pruned


def equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-6)


class WordModel(nn.Module):
    """PyTorch's word language model: encoder (an embedding), recurrent layers, decoder."""

    def __init__(self, kind: str = "LSTM", tied: bool = False) -> None:
        super().__init__()
        self.kind, self.drop = kind, nn.Dropout(0.2)
        self.encoder = nn.Embedding(70, 40)
        self.rnn = getattr(nn, kind)(40, 40, 2, dropout=0.2)
        self.decoder = nn.Linear(40, 70)
        if tied:
            self.decoder.weight = self.encoder.weight

    def init_hidden(self, batch: int) -> Any:
        weight = next(self.parameters())
        zeros = weight.new_zeros(self.rnn.num_layers, batch, self.rnn.hidden_size)
        return (zeros, zeros) if self.kind == "LSTM" else zeros

    def forward(self, text: torch.Tensor, hidden: Any) -> Any:
        self.rnn.flatten_parameters()
        output, hidden = self.rnn(self.drop(self.encoder(text)), hx=hidden)
        return self.decoder(input=self.drop(output)).log_softmax(-1), hidden


class Speech(nn.Module):
    """The layout of DeepSpeech 2: convolution, bidirectional layers over sequences of several lengths."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(20, 30, 3, padding=1)
        self.layers = nn.ModuleList(kind(n, 24, bidirectional=True) for n in (30, 24))
        self.out = nn.Linear(24, 29, bias=False)

    def forward(self, sound: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.convolution(sound).relu().permute(2, 0, 1)  # [steps, batch, features]
        for layer in self.layers:
            packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            x, _ = rnn.pad_packed_sequence(layer(packed)[0])
            if layer.bidirectional:
                x = x.unflatten(2, (2, -1)).sum(2)
        return self.out(x)


class Decoder(nn.Module):
    """The attention decoder of Tacotron 2 in small: cells, projections, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 32))
        self.cell = nn.LSTMCell(32, 64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.out = nn.LSTM(64, 32, proj_size=16, batch_first=True)

    def forward(self, frames: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        state, outputs = None, []
        for frame in self.prenet(frames).unbind(1):
            state = self.cell(frame, state)
            outputs.append(state[0])
        x, _ = self.attention(torch.stack(outputs, 1), memory, memory)
        output: torch.Tensor = self.out(x)[0]
        return output


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_word_language_model(kind: str, tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = pruned(WordModel(kind, tied))
    save_file(
        {k: v for k, v in model.state_dict().items() if not (tied and k == "decoder.weight")},
        tmp_path / "dense",
    )
    sparse.pack_file(tmp_path / "dense", tmp_path / "packed", "csr")
    text = torch.randint(70, (9, 3))
    for packed in (
        sparse.pack(model, "csr")[0],
        sparse.load(WordModel(kind, tied).eval(), tmp_path / "packed"),
    ):
        expected, hidden = model(text, model.init_hidden(3))
        found, state = packed(text, packed.init_hidden(3))
        equal(found, expected)
        equal(packed(text[:1], state), model(text[:1], hidden))
        assert isinstance(packed.rnn, sparse.PackedRNN)
        assert isinstance(packed.encoder, nn.Embedding)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("layout", ["csr", "bsr16x1"])
def test_speech_models_with_sequences_of_several_lengths(
    kind: type[nn.RNNBase], layout: Any
) -> None:
    torch.manual_seed(0)
    model = pruned(Speech(kind), block=16)
    packed, decisions = sparse.pack(model, layout)
    assert all(isinstance(each, sparse.PackedRNN) for each in packed.layers)
    assert {each.layout for each in decisions} == {layout}
    sound, lengths = torch.randn(20, 20, 11), torch.randint(1, 12, (20,))
    lengths[3] = 11
    equal(packed(sound, lengths), model(sound, lengths))
    # The last states are those of each sequence's own end, in the order of the batch.
    x = rnn.pack_sequence([torch.randn(n, 30) for n in (2, 5, 1)], enforce_sorted=False)
    hx: Any = torch.randn(2, 3, 24)
    hx = (hx, hx.cos()) if kind is nn.LSTM else hx
    for state in (None, hx):
        equal(packed.layers[0](x, state)[1], model.layers[0](x, state)[1])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:.*nested")
def test_transformer_encoders(masked: bool, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 96, batch_first=True, norm_first=norm_first)
    model = pruned(nn.TransformerEncoder(layer, 2, nn.LayerNorm(32)))
    packed, decisions = sparse.pack(model, "csr")
    x = torch.randn(3, 7, 32)
    mask = torch.arange(7) >= torch.tensor([[7], [4], [6]]) if masked else None
    kept = ~mask if mask is not None else slice(None)
    for context in (torch.no_grad(), torch.enable_grad()):
        with context:
            found = packed(x, src_key_padding_mask=mask)
            equal(found[kept], model(x, src_key_padding_mask=mask)[kept].detach())
    layouts = {each.weight.split(".", 2)[2]: each.layout for each in decisions}
    assert layouts == {
        "self_attn.in_proj_weight": "dense",
        "self_attn.out_proj.weight": "dense",
        "linear1.weight": "csr",
        "linear2.weight": "csr",
    }


def bert() -> tuple[nn.Module, Any]:
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    )
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    return model, lambda m: m(torch.arange(18).reshape(2, 9), mask)[0][mask]


def parakeet() -> tuple[nn.Module, Any]:
    """NeMo's Parakeet RNN-T: a Conformer encoder, an LSTM that predicts from step to step."""
    from transformers import ParakeetEncoderConfig, ParakeetForRNNT, ParakeetRNNTConfig

    encoder = ParakeetEncoderConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_kernel_size=5,
        subsampling_conv_channels=8,
        num_mel_bins=16,
    )
    model = ParakeetForRNNT(
        ParakeetRNNTConfig(
            vocab_size=21, decoder_hidden_size=32, blank_token_id=20, encoder_config=encoder
        )
    )
    sound, first = torch.randn(2, 48, 16), torch.tensor([[3], [4]])

    def run(m: Any) -> Any:
        start = m(input_features=sound, decoder_input_ids=first, use_decoder_cache=True)
        # The second step takes the LSTM's states of the first.
        after = m(
            input_features=sound, decoder_input_ids=first + 1, decoder_cache=start.decoder_cache
        )
        return start.logits, after.logits

    return model, run


def encodec() -> tuple[nn.Module, Any]:
    """Meta's EnCodec: LSTMs between convolutions."""
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=16)
    model, sound = EncodecModel(config), torch.randn(1, 1, 3200)
    return model, lambda m: m.decoder(m.encoder(sound))


@pytest.mark.full  # imports of transformers
@pytest.mark.parametrize(
    ("made", "packed_layers"),
    [
        (bert, {"attention.self.query", "intermediate.dense", "output.dense", "pooler.dense"}),
        (parakeet, {"decoder.lstm", "joint.head", "self_attn.q_proj", "feed_forward1.linear1"}),
        (encodec, {"encoder.layers.13.lstm", "decoder.layers.1.lstm"}),
    ],
)
@pytest.mark.parametrize("layout", ["csr", "bsr16x1"])
def test_published_models_of_transformers(
    made: Any, packed_layers: set[str], layout: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, run = made()
    model = pruned(model, block=16)
    packed, decisions = sparse.pack(model, layout)
    names = {name for name, each in packed.named_modules() if type(each).__name__[:6] == "Packed"}
    assert all(any(name.endswith(end) for name in names) for end in packed_layers)
    assert {each.layout for each in decisions} <= {layout, "dense"}
    save_file(packed.state_dict(), tmp_path / "packed")
    loaded = sparse.install(copy.deepcopy(model), packed.state_dict())
    with torch.no_grad():
        expected = run(model)
        for each in (packed, loaded):
            equal(run(each), expected)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_layers_without_a_packed_form_stay_dense_and_are_named() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "decoder": Decoder(),
            "scaled": Scaled(32, 32),
            "hooked": nn.Linear(32, 32),
            "patched": nn.Linear(32, 32),
        }
    )
    own = model["patched"].forward
    model["patched"].forward = lambda x: 3 * own(x)
    hook = model["hooked"].register_forward_hook(lambda layer, inputs, output: output + 1)
    packed, decisions = sparse.pack(pruned(model), "csr")
    layouts = {each.weight: each.layout for each in decisions}
    assert layouts == {
        "decoder.prenet.0.weight": "csr",
        "decoder.prenet.2.weight": "csr",
        **dict.fromkeys(
            [
                *(f"decoder.cell.weight_{each}" for each in ("ih", "hh")),
                "decoder.attention.in_proj_weight",
                "decoder.attention.out_proj.weight",
                *(f"decoder.out.weight_{each}_l0" for each in ("ih", "hh", "hr")),
                "scaled.weight",
                "hooked.weight",
                "patched.weight",
            ],
            "dense",
        ),
    }
    assert all(each.reason for each in decisions)
    # A state dict has no modules, but names and shapes of cells and projections.
    by_name = {each.weight: each.layout for each in pack_state(model.state_dict(), "csr")[1]}
    for name in ("cell.weight_ih", "cell.weight_hh", "out.weight_ih_l0", "out.weight_hh_l0"):
        assert by_name[f"decoder.{name}"] == "dense"
    frames, memory = torch.randn(2, 5, 16), torch.randn(2, 6, 64)
    equal(packed["decoder"](frames, memory), model["decoder"](frames, memory))
    for name in ("scaled", "hooked", "patched"):
        equal(packed[name](memory[..., :32]), model[name](memory[..., :32]))
    hook.remove()


def test_conv1d_of_transformers_stays_dense_and_the_decisions_say_so() -> None:
    class Conv1D(nn.Module):  # the weight is stored as [inputs, outputs]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(40, 60))
            self.bias = nn.Parameter(torch.randn(60))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.bias, x, self.weight)

    model = pruned(nn.Sequential(Conv1D(), nn.Linear(60, 60)))
    packed, decisions = sparse.pack(model, "csr")
    assert [each.layout for each in decisions] == ["dense", "csr"]
    x = torch.randn(3, 40)
    equal(packed(x), model(x))
    with pytest.raises(InputError) as refused:  # its shape is not that of a linear layer
        sparse.percentiles(model.state_dict())
    assert (refused.value.code, refused.value.place) == ("ambiguous", "0.weight")
    assert sparse.percentiles(model) == sparse.percentiles(model.state_dict(), exclude=["0.*"])


@pytest.mark.parametrize(
    "call",
    [
        torch.nn.functional.linear,
        torch.matmul,
        lambda x, weight: x @ weight,
        lambda x, weight: torch.addmm(x, x, weight),
    ],
)
def test_whoever_reads_a_packed_weight_is_told(call: Any) -> None:
    packed, _ = sparse.pack(pruned(nn.Linear(40, 60)), "csr")
    with pytest.raises(InputError) as refused:
        call(torch.ones(3, 40), packed.weight)
    assert (refused.value.code, refused.value.place) == ("unsupported", "weight")


def test_a_layer_with_two_names_is_packed_once() -> None:
    layer = nn.Linear(40, 40)
    model = pruned(nn.ModuleDict({"a": nn.Sequential(layer), "b": layer}))
    packed, _ = sparse.pack(model, "csr")
    assert packed["a"][0] is packed["b"]
    loaded = sparse.install(copy.deepcopy(model), packed.state_dict())
    assert loaded["a"][0] is loaded["b"]
    assert isinstance(loaded["b"], sparse.PackedLinear)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_are_converted_exactly_or_refused_by_name(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    model = pruned(nn.Sequential(nn.Linear(64, 64), nn.GRU(64, 64))).to(dtype)
    with pytest.raises(InputError) as refused:
        sparse.pack(model)
    assert (refused.value.code, refused.value.place) == ("unsupported", "0.weight")
    save_file(model.state_dict(), tmp_path / "dense")
    if dtype == torch.float64:
        with pytest.raises(InputError) as refused:
            sparse.pack_file(tmp_path / "dense", tmp_path / "packed", "csr")
        assert refused.value.code == "unsupported"
        assert not (tmp_path / "packed").exists()
        return
    answer = sparse.pack_file(tmp_path / "dense", tmp_path / "packed", "csr")
    assert answer.converted == [str(dtype).removeprefix("torch.")]
    assert {each.layout for each in answer.weights} == {"csr"}
    loaded = sparse.load(nn.Sequential(nn.Linear(64, 64), nn.GRU(64, 64)), tmp_path / "packed")
    x = torch.randn(5, 2, 64)
    equal(loaded(x)[0], model.float()(x)[0])


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_empty_batches_attributes_and_not_a_number(kind: str) -> None:
    dense = pruned(getattr(nn, kind)(30, 30, 2, bidirectional=True, dropout=0.1))
    packed, _ = sparse.pack(dense, "csr")
    for name in ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first"):
        assert getattr(packed, name) == getattr(dense, name)
    assert (packed.bidirectional, packed.dropout, packed.proj_size) == (True, 0.1, 0)
    x = torch.randn(3, 4, 30)
    x[1, 2, 0] = torch.nan
    found, expected = packed(input=x)[0], dense(x)[0]
    # Zero weights are not multiplied: fewer features become NaN, of the same steps and sequences.
    assert (found.isnan().any(-1) == expected.isnan().any(-1)).all()
    assert found.isnan().any()
    linear, _ = sparse.pack(pruned(nn.Linear(30, 20, bias=False)), "csr")
    assert linear.bias is None
    assert linear(input=torch.ones(0, 5, 30)).shape == (0, 5, 20)
    assert linear(torch.ones(30)).shape == (20,)
    with pytest.raises(InputError) as refused:  # three states for one, or for two
        packed(x, (torch.ones(4, 4, 30),) * 3)
    assert refused.value.code == "unsupported"


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_an_empty_batch_has_empty_outputs(kind: str) -> None:
    packed, _ = sparse.pack(pruned(getattr(nn, kind)(30, 30)), "csr")
    output, end = packed(torch.ones(3, 0, 30))
    assert output.shape == (3, 0, 30)
    assert (end[0] if kind == "LSTM" else end).shape == (1, 0, 30)


def test_a_batch_is_divided_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pruned(nn.LSTM(30, 50))
    x, threads = torch.randn(6, 37, 30), torch.get_num_threads()
    for layout in ("csr", "bsr16x1"):
        packed, _ = sparse.pack(dense, layout)
        one = packed(x)
        try:
            torch.set_num_threads(3)
            monkeypatch.setattr("holdfast.sparse.matrices._SPLIT", 1)
            assert packed.weight_hh_l0.matrix.cuts(37, 6, 3)[1] in (8, 16)
            several = packed(x)
        finally:
            torch.set_num_threads(threads)
            monkeypatch.undo()
        assert (one[0] == several[0]).all()
        assert (one[1][1] == several[1][1]).all()


def test_a_file_of_another_model_leaves_the_model_as_it_was() -> None:
    state = sparse.pack(pruned(nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 30))), "csr")[
        0
    ].state_dict()
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 20))
    with pytest.raises(InputError) as refused:
        sparse.install(model, state)
    assert (refused.value.code, refused.value.place) == ("conflict", "1.bias")
    assert [type(each) for each in model] == [nn.Linear, nn.Linear]


def test_q_of_a_model_is_of_the_weights_that_are_pruned_and_a_state_dict_is_asked() -> None:
    torch.manual_seed(0)
    model = WordModel()
    q = sparse.percentiles(model)["linear"]
    assert q == pytest.approx(float(model.decoder.weight.detach().abs().quantile(0.9)), rel=1e-2)
    with pytest.raises(InputError) as refused:
        sparse.plan(model.state_dict(), 20, 60)
    assert (refused.value.code, refused.value.place) == ("ambiguous", "encoder.weight")
    plan = sparse.plan(model.state_dict(), 20, 60, exclude=["encoder.*"])
    assert plan.schedules["linear"].q == q
    assert set(plan.weights) == set(Pruner(model, plan.schedules).masks)
    wrong = sparse.percentiles(model.state_dict(), include=["encoder.*"])["linear"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Pruner(model, {"linear": Narang(wrong, 1, 50, 100, 2)}).attach(optimizer)
    before = model.decoder.weight.detach().clone()
    optimizer.step()
    with pytest.raises(InputError) as refused:  # at the first update, before a weight is gone
        optimizer.step()
    assert (refused.value.code, refused.value.place) == ("empty-layer", "decoder.weight")
    assert (model.decoder.weight == before).all()


@pytest.mark.parametrize("layout", ["csr", "bsr16x1"])
def test_a_packed_model_is_pickled_and_copied(layout: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LSTM(6, 16, bidirectional=True))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(torch.rand_like(weight) > 0.9)
    packed, _ = sparse.pack(model.eval(), layout=layout)
    x = torch.randn(5, 6)
    for other in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):
        assert torch.equal(other(x)[0], packed(x)[0])
        assert {n: t.dtype for n, t in other.named_buffers()} == {
            n: t.dtype for n, t in packed.named_buffers()
        }
