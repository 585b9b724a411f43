"""Scores of gradients against closed forms, and probes that leave no trace."""

import math

import numpy as np
import pytest
from refusals import refused

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from training_worlds import (  # noqa: E402
    DisturbingCNN,
    batches_of,
    everything,
    image_batches,
    seed_all,
)

from holdfast.data.records.tuning.gradients import Probe  # noqa: E402
from holdfast.data.records.tuning.policies import GradientCosine  # noqa: E402
from holdfast.data.records.tuning.snapshot import Snapshot  # noqa: E402
from holdfast.data.records.tuning.tuner import Tuner  # noqa: E402
from holdfast.errors import InputError  # noqa: E402

CROSS_ENTROPY = nn.functional.cross_entropy


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def cosine(a, b):
    a, b = np.ravel(a).astype(np.float64), np.ravel(b).astype(np.float64)
    return a @ b / math.sqrt((a @ a) * (b @ b))


@pytest.mark.parametrize("sizes", [[8], [4, 4, 4], [7, 5, 1, 11]])
def test_scores_of_a_linear_model_are_those_of_its_closed_form(sizes):
    draw = np.random.default_rng(1)
    images, targets = draw.normal(size=(sum(sizes), 6)), draw.normal(size=(sum(sizes), 2))
    model = nn.Linear(6, 2)
    give = batches_of(images, targets, sizes, noise=(2.0, 0.3, 0.0))
    found = Probe(model, lambda out, y: ((out - y) ** 2).mean(), give).scores([1, 2], 3)

    def gradient(fidelity):
        weight, bias = (p.detach().double().numpy() for p in model.parameters())
        x = np.concatenate([x.double().numpy() for x, _ in give(fidelity)])
        rest = x @ weight.T + bias - targets  # mean over images and outputs of the square
        return np.concatenate([(2 * rest.T @ x).ravel(), 2 * rest.sum(0)])

    assert [one.fidelity for one in found] == [1, 2, 3]
    for one in found[:2]:
        assert one.value == pytest.approx(cosine(gradient(one.fidelity), gradient(3)), abs=1e-6)
        assert one.freedom == len(sizes) - 1 if len(sizes) > 1 else one.error is None
    assert found[2].value == 1.0
    assert found[0].value < found[1].value


def test_accumulated_gradients_are_those_of_one_batch_of_them_all():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3))
    give = image_batches(count=3, size=5)
    found = Probe(model, CROSS_ENTROPY, give).scores([1, 2], 3)

    def gradient(fidelity):
        images, labels = (torch.cat(parts) for parts in zip(*give(fidelity), strict=True))
        loss = CROSS_ENTROPY(model(images), labels)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        return np.concatenate([part.numpy().ravel() for part in parts])

    for one in found[:2]:
        assert one.value == pytest.approx(cosine(gradient(one.fidelity), gradient(3)), abs=1e-5)


@pytest.mark.parametrize(("blocks", "freedom"), [(10, 4), (3, 2), (1, 0)])
def test_less_memory_makes_fewer_blocks_and_the_same_score(blocks, freedom):
    model, give = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), image_batches(count=5)
    parameters = sum(one.numel() for one in model.parameters())
    whole = Probe(model, CROSS_ENTROPY, give).scores([1], 3)[0]
    found = Probe(model, CROSS_ENTROPY, give, memory_bytes=2 * 4 * parameters * blocks).scores(
        [1], 3
    )[0]
    assert found.value == pytest.approx(whole.value, abs=1e-6)
    assert found.freedom == freedom


def test_the_same_images_score_one_whatever_the_dropout():
    found = Probe(DisturbingCNN(), CROSS_ENTROPY, image_batches(noise=(0, 0, 0))).scores([1, 2], 3)
    assert [one.value for one in found] == pytest.approx([1, 1, 1], abs=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_grads", [True, False])
def test_a_probe_leaves_everything_bit_for_bit(training, with_grads):
    generator = torch.Generator().manual_seed(3)
    numpy_generator = np.random.default_rng(4)
    model = DisturbingCNN(generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for images, labels in image_batches()(3):
        optimizer.zero_grad()
        scaler.scale(CROSS_ENTROPY(model(images), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
    model.train(training)
    model.frozen.eval()
    if not with_grads:
        optimizer.zero_grad(set_to_none=True)
    state = (optimizer, scaler, generator, numpy_generator)
    objects = [id(t) for t in (*model.parameters(), *model.buffers())]
    grads = [p.grad for p in model.parameters()]
    versions = [p._version for p in model.parameters()]
    calls = []
    model.register_forward_hook(lambda *_: calls.append(model.frozen.training))
    before = everything(model, *state)
    probe = Probe(
        model,
        CROSS_ENTROPY,
        image_batches(),
        optimizers=[optimizer],
        scaler=scaler,
        autocast=lambda: torch.autocast("cpu", torch.bfloat16),
        generators=[generator, numpy_generator],
    )
    scores = probe.scores([1, 2], 3)
    assert everything(model, *state) == before
    assert [id(t) for t in (*model.parameters(), *model.buffers())] == objects
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    assert [p._version for p in model.parameters()] == versions
    assert len(calls) == 12
    # A layer frozen in eval mode stays frozen, unless the whole model was in eval mode.
    assert set(calls) == {not training}
    assert all(0 < one.value <= 1 for one in scores)
    # And the picture of everything does notice: a plain pass changes it.
    for images, _ in image_batches(count=1)(3):
        model(images)
    assert everything(model, *state) != before


def trained(probing):
    """Weights after a short training, with a tuner that probes every epoch or none."""
    seed_all(1)
    model = DisturbingCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    probe = Probe(model, CROSS_ENTROPY, image_batches(), optimizers=[optimizer])
    # No score passes 1: the tuner probes, and stays at full fidelity.
    policy = GradientCosine(threshold=0.999999, margin=1.0)
    tuner = Tuner(3, 5, probe, policy, every=1, last_full=0) if probing else None
    for epoch in range(5):
        assert tuner is None or tuner.fidelity(epoch) == 3
        for images, labels in image_batches(seed=epoch)(3):
            optimizer.zero_grad()
            CROSS_ENTROPY(model(images), labels).backward()
            optimizer.step()
    probes = 0 if tuner is None else sum(bool(one.scores) for one in tuner.history)
    return everything(model, optimizer), probes


def test_training_with_a_probing_tuner_gives_the_same_weights_as_without():
    with_tuner, probes = trained(True)
    assert probes == 5
    assert trained(False)[0] == with_tuner


def test_a_probe_that_fails_leaves_everything_too():
    model = DisturbingCNN()

    def give(fidelity):
        yield from image_batches(count=2)(fidelity)
        if fidelity == 2:
            raise OSError("the store is gone")

    before = everything(model)
    with pytest.raises(OSError, match="the store is gone"):
        Probe(model, CROSS_ENTROPY, give).scores([1, 2], 3)
    assert everything(model) == before


def test_nothing_steps_inside_a_probe():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for parameter in model.parameters():  # an optimiser that steps while gradients arrive
        parameter.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    before = everything(model)
    Probe(model, CROSS_ENTROPY, image_batches()).scores([1], 3)
    assert everything(model) == before


def test_a_snapshot_restores_what_was_really_changed():
    model = DisturbingCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    images, labels = next(iter(image_batches()(3)))
    CROSS_ENTROPY(model(images), labels).backward()
    optimizer.step()
    before = everything(model, optimizer)
    with Snapshot(model, optimizers=[optimizer]):
        for _ in range(2):
            model.unused.requires_grad_(False)
            CROSS_ENTROPY(model.eval()(images), labels).backward()
            optimizer.step()
        optimizer.param_groups[0].update(lr=7.0, added=1)
        model.calls = torch.full((), 99)
        assert everything(model, optimizer) != before
    assert everything(model, optimizer) == before


def test_negative_zero_and_nan_are_put_back_as_they_were():
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-0.0, math.nan], [math.inf, 1.0]]))
    before = everything(model)
    with Snapshot(model), torch.no_grad():
        model.weight[0, 0] = 0.0
    assert everything(model) == before


def test_batches_that_differ_between_fidelities_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

    def give(fidelity):
        return image_batches(count=fidelity)(fidelity)

    with refused("conflict"):
        Probe(model, CROSS_ENTROPY, give).scores([1], 3)
    with refused("no-data"):
        Probe(model, CROSS_ENTROPY, lambda _: []).scores([1], 3)
    model.requires_grad_(False)
    with refused("invalid-value"):
        Probe(model, CROSS_ENTROPY, image_batches()).scores([1], 3)


def test_a_gradient_that_explodes_asks_for_full_fidelity():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

    def loss(out, labels):
        return CROSS_ENTROPY(out, labels) * math.inf

    tuner = Tuner(3, 10, Probe(model, loss, image_batches()))
    assert tuner.fidelity(0) == 3
    assert all(math.isnan(one.value) for one in tuner.history[0].scores[:2])


def test_generators_of_an_accelerator_in_use_are_put_back(monkeypatch):
    """Stand-ins for CUDA's generators: no GPU is needed to see that they are seeded and put back."""
    drawn = [torch.tensor([1, 2], dtype=torch.uint8)]
    seeds = []

    def seed_all(number):
        seeds.append(number)
        drawn[0] = torch.tensor([number, 9], dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [drawn[0].clone()])
    monkeypatch.setattr(
        torch.cuda, "set_rng_state_all", lambda states: drawn.__setitem__(0, *states)
    )
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seed_all)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    Probe(model, CROSS_ENTROPY, image_batches(count=2)).scores([1], 3)
    assert seeds == [0, 1, 0, 1]  # each batch alike at both fidelities
    assert drawn[0].tolist() == [1, 2]


def test_an_accelerator_that_is_not_in_use_is_not_asked(monkeypatch):
    def used(*_):
        pytest.fail("it was started, or left a seed")

    for name in ("get_rng_state_all", "set_rng_state_all", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, used)
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is in use here")
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    Probe(model, CROSS_ENTROPY, image_batches(count=1)).scores([1], 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_probe_on_cuda_leaves_its_generators_bit_for_bit():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 3)).cuda()

    def give(fidelity):
        return ((x.cuda(), y.cuda()) for x, y in image_batches()(fidelity))

    torch.rand(3, device="cuda")
    before = everything(model), [one.clone() for one in torch.cuda.get_rng_state_all()]
    Probe(model, CROSS_ENTROPY, give, scaler=torch.amp.GradScaler("cuda")).scores([1, 2], 3)
    assert everything(model) == before[0]
    assert all(
        torch.equal(a, b) for a, b in zip(torch.cuda.get_rng_state_all(), before[1], strict=True)
    )


def test_batches_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(InputError, match=r"dict with image, label"):
        Probe(DisturbingCNN(), CROSS_ENTROPY, lambda _: [{"image": 0, "label": 1}]).scores([1], 3)
