"""Masks that hold: momentum, weight decay, mixed precision, tied weights, checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast.errors import InputError
from holdfast.sparse import Cubic, Narang, Pruner


class Tied(nn.Module):
    """A GRU whose decoder shares its weight with the embedding."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, width)
        self.norm = nn.LayerNorm(width)
        self.gru = nn.GRU(width, width)
        self.decoder = nn.Linear(width, 9)
        self.decoder.weight = self.embedding.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.gru(self.norm(self.embedding(text)))[0])


def train(
    model: nn.Module, optimizer: Any, steps: int, scaler: Any = None, amp: bool = False
) -> Any:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        text = torch.randint(9, (6, 4), generator=generator)
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            loss = nn.functional.cross_entropy(model(text).flatten(0, 1).float(), text.flatten())
        optimizer.zero_grad()
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        yield


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.5, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, nesterov=True, weight_decay=0.01),
}


@pytest.mark.examples(6)
@settings(max_examples=15)
@given(
    st.sampled_from(sorted(OPTIMIZERS)),
    st.sampled_from([1, 4, 5]),
    st.sampled_from(["narang", "cubic"]),
    st.booleans(),
    st.booleans(),
)
def test_pruned_weights_stay_zero_at_every_step(
    optimizer: str, block: int, kind: str, amp: bool, scaled: bool
) -> None:
    torch.manual_seed(0)
    model = Tied()
    schedule: Narang | Cubic = Cubic(0.8, 2, 14, 3, block)
    if kind == "narang":
        schedule = Narang(0.07, 2, 6, 14, 3, block)
    steps = OPTIMIZERS[optimizer](model.parameters())
    pruner = Pruner(model, schedule).attach(steps)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if scaled else None
    weights = dict(model.named_parameters(remove_duplicate=False))
    # A tied weight is pruned once, under the name of a layer that is pruned.
    assert set(pruner.masks) == {"gru.weight_ih_l0", "gru.weight_hh_l0", "decoder.weight"}
    before: dict[str, torch.Tensor] = {}
    for step, _ in enumerate(train(model, steps, 20, scaler, amp), 1):
        assert pruner.step_count == step
        for name, mask in pruner.masks.items():
            assert not weights[name][~mask].any()
            assert not (mask & ~before.get(name, mask)).any()  # none comes back
            rows = mask.split(block)
            assert all((part == part[0]).all() for part in rows)  # whole blocks
        before = {name: mask.clone() for name, mask in pruner.masks.items()}
    assert pruner.sparsity() > 0
    assert model.embedding.weight is model.decoder.weight
    assert model.norm.weight.all()
    assert {row["step"] for row in pruner.history} == set(schedule.updates)
    # What is left still learns: the masks did not freeze it.
    assert weights["gru.weight_hh_l0"][before["gru.weight_hh_l0"]].all()


def test_the_threshold_applies_to_the_weights_of_the_moment() -> None:
    model = nn.Linear(6, 5, bias=False)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Narang(0.3, 1, 4, 10, 2)
    Pruner(model, schedule).attach(steps)
    plain = model.weight.detach().clone()
    mask = torch.ones_like(plain, dtype=torch.bool)
    for step in range(1, 12):
        model.weight.grad = torch.full_like(model.weight, 0.05).sin() * step
        plain = (plain - 0.1 * model.weight.grad) * mask
        if 1 < step < 10 and step % 2 == 0:
            mask = plain.abs() > schedule.threshold(step)
            plain = plain * mask
        steps.step()
        torch.testing.assert_close(model.weight.detach(), plain)
    assert 0 < int(mask.sum()) < 30


def test_master_copies_are_pruned_with_the_weights() -> None:
    model = nn.Linear(8, 8).bfloat16()
    master = nn.Parameter(model.weight.detach().float())
    steps = torch.optim.Adam([master], lr=0.1, weight_decay=0.1)
    pruner = Pruner(model, Cubic(0.5, 0, 4, 1), masters={"weight": master}).attach(steps)
    for _ in range(8):
        model(torch.ones(2, 8).bfloat16()).float().square().sum().backward()
        assert model.weight.grad is not None
        master.grad = model.weight.grad.float()
        steps.step()
        with torch.no_grad():
            model.weight.copy_(master)
        assert not master[~pruner.masks["weight"]].any()
        assert not model.weight[~pruner.masks["weight"]].any()
    assert pruner.sparsity() == 0.5


def test_a_skipped_step_does_not_count_and_overflow_leaves_no_nan() -> None:
    model = nn.Linear(4, 4, bias=False)
    steps = torch.optim.SGD(model.parameters(), lr=1.0)
    pruner = Pruner(model, Cubic(0.5, 0, 2, 1)).attach(steps)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.full((1, 4), torch.inf)).sum()).backward()
    scaler.step(steps)
    assert pruner.step_count == 0
    for _ in range(2):
        model.weight.grad = torch.zeros_like(model.weight)
        steps.step()
    model.weight.grad = torch.full_like(model.weight, torch.inf)
    steps.step()
    assert (model.weight[~pruner.masks["weight"]] == 0).all()


def test_a_checkpoint_resumes_to_the_same_masks() -> None:
    def start() -> tuple[nn.Module, Any, Pruner]:
        torch.manual_seed(0)
        model = Tied()
        steps = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, steps, Pruner(model, Cubic(0.9, 1, 9, 2)).attach(steps)

    model, steps, pruner = start()
    batches = train(model, steps, 12)
    for _ in range(6):
        next(batches)
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    masks = pruner.state_dict()
    list(batches)
    other, other_steps, resumed = start()
    other.load_state_dict(saved)
    resumed.load_state_dict(masks)
    skipped = train(other, other_steps, 12)
    resumed_batches = torch.Generator().manual_seed(0)
    del skipped
    for number in range(12):
        text = torch.randint(9, (6, 4), generator=resumed_batches)
        if number < 6:
            continue
        loss = nn.functional.cross_entropy(other(text).flatten(0, 1), text.flatten())
        other_steps.zero_grad()
        loss.backward()
        other_steps.step()
    assert resumed.step_count == 12
    for name, mask in pruner.masks.items():
        assert (resumed.masks[name] == mask).all()
    with pytest.raises(InputError) as refused:
        Pruner(nn.Linear(3, 3), Cubic(0.5, 0, 2)).load_state_dict(masks)
    assert (refused.value.code, refused.value.place) == ("conflict", "weight")


def test_a_layer_is_never_pruned_to_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    nn.init.constant_(model[1].weight, 1e-6)
    steps = torch.optim.SGD(model.parameters(), lr=0.0)
    Pruner(model, Narang(0.2, 0, 2, 4, 1)).attach(steps)
    model(torch.ones(1, 4)).sum().backward()
    with pytest.raises(InputError) as refused:
        steps.step()
    assert (refused.value.code, refused.value.place) == ("empty-layer", "1.weight")
    assert model[1].weight.all()


def test_what_cannot_be_pruned_is_refused() -> None:
    schedule = Cubic(0.5, 0, 2)
    model = nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4))
    assert set(Pruner(model, {"recurrent": schedule}).masks) == {"1.weight_ih_l0", "1.weight_hh_l0"}
    assert set(Pruner(model, schedule, exclude=["1.*"]).masks) == {"0.weight"}
    for make, code, place in (
        (lambda: Pruner(nn.LayerNorm(3), schedule), "no-data", "model"),
        (
            lambda: Pruner(model, schedule, masters={"x": torch.ones(1)}),
            "unknown-name",
            "masters, x",
        ),
        (
            lambda: Pruner(model, schedule).attach(torch.optim.SGD(model[0].parameters())),
            "unknown-name",
            "1.weight_ih_l0",
        ),
    ):
        with pytest.raises(InputError) as refused:
            make()
        assert (refused.value.code, refused.value.place) == (code, place)
