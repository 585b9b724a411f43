"""Which points to augment: influence against true leave-one-out, draws against enumeration, verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from holdfast.data.curation import (
    AugmentationSelector,
    LabelledFeatures,
    augment,
    extract_features,
)
from holdfast.data.curation.budget_curve import judged
from holdfast.data.curation.influence_scores import Classifier, influence, influence_vectors
from holdfast.data.curation.suspects import label_suspects
from holdfast.errors import InputError


def points(n: int, d: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(classes, d))[y] + rng.normal(size=(n, d)), y


@pytest.mark.parametrize("classes", [2, 3])
def test_influence_is_what_leaving_a_point_out_adds_to_its_loss(classes: int) -> None:
    x, y = points(120, 4, classes)
    model = Classifier.fit(x, y)
    scores = influence(model, x, y)
    left_out = []
    for point in range(len(x)):
        others = np.arange(len(x)) != point
        loss = Classifier.fit(x[others], y[others]).losses(x[[point]], y[[point]])
        left_out.append(float((loss - model.losses(x[[point]], y[[point]]))[0]))
    assert spearmanr(scores, left_out).statistic > 0.99
    # First order: the larger the effect, the more it is underestimated; never by half here.
    assert np.all(scores <= np.array(left_out) * 1.001)
    assert np.all(scores >= np.array(left_out) * 0.5)


# Scores of pyDVL 0.10.0 (DirectInfluence, divided by n) for points(24, 3, 2, seed=7) and our weights.
PYDVL = [0.010183, 0.057826, 0.072665, 0.110973, 1.169305, 0.034857, 0.334396, 0.028784]


def test_influence_equals_the_scores_of_pydvl() -> None:
    x, y = points(24, 3, 2, seed=7)
    assert influence(Classifier.fit(x, y), x, y)[:8] == pytest.approx(PYDVL, abs=1e-4)


def features(kind: str, scale: float, classes: int) -> tuple[Any, Any]:
    """As users have them: pixels up to 255, the same length in cm and in inches, one column per month."""
    x, y = points(300, 5, classes, seed=8)
    x *= scale
    match kind:
        case "two units":
            x = np.c_[x, x[:, :2] / 2.54]
        case "of low rank":
            x = x @ np.random.default_rng(0).normal(size=(5, 12))
        case "one-hot":
            x = np.c_[x, scale * np.eye(4)[np.arange(300) % 4]]
        case "of very different size":
            x *= np.geomspace(1e-6, 1e6, 5)
    return x - x.mean(axis=0), y


@pytest.mark.filterwarnings("ignore")  # scikit-learn's, of columns that depend on each other
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1.0, 255.0, 1e7, 1e21])
@pytest.mark.parametrize(
    "kind", ["independent", "two units", "of low rank", "one-hot", "of very different size"]
)
def test_influence_is_that_along_the_principal_axes_or_refused(
    kind: str, scale: float, classes: int
) -> None:
    """[x; 1] = U T: along the columns of U nothing depends on anything, and T only regularizes."""
    x, y = features(kind, scale, classes)
    model = Classifier.fit(x, y)
    ones = np.c_[x, np.ones(len(x))]
    size = np.linalg.norm(ones, axis=0)
    u, s, v = np.linalg.svd(ones / size, full_matrices=False)
    rank = int((s > 1e-12 * s[0]).sum())
    u, inverse = u[:, :rank], v[:rank].T / s[:rank] / size[:, None]
    nothing = np.linalg.qr(v[rank:].T / size[:, None])[0]  # directions that change no log odds
    inverse -= nothing @ (nothing.T @ inverse)  # so the smallest weights: w = T^+ w'
    p = model.probabilities(x)
    h = sum(np.kron(np.diag(q) - np.outer(q, q), np.outer(r, r)) for q, r in zip(p, u, strict=True))
    h += np.kron(np.eye(classes), inverse.T @ inverse) / model.c
    gradients = np.einsum("nk,nd->nkd", p - np.eye(classes)[y], u).reshape(len(x), -1)
    if classes == 2:  # one output: the weights of the second class
        h, gradients = h[rank:, rank:], gradients[:, rank:]
    # Not `solve`: to the kernels of some processors the matrix is singular.
    exact = np.einsum("np,pn->n", gradients, np.linalg.pinv(h, hermitian=True) @ gradients.T)
    try:
        scores = influence(model, x, y)
    except InputError as refused:
        assert (refused.code, refused.place) == ("unsupported", "x")  # noqa: PT017
        assert scale > 255 and kind in ("two units", "of low rank", "one-hot")  # noqa: PT018
        return
    assert scores == pytest.approx(exact, rel=2e-3, abs=1e-6 * exact.max())
    vectors = influence_vectors(model, x, y)
    assert (vectors**2).sum(axis=1) == pytest.approx(scores, rel=2e-3, abs=1e-6 * exact.max())


@pytest.mark.parametrize("policy", ["deterministic", "dpp", "kmeans"])
def test_it_does_not_matter_where_zero_is(policy: Any) -> None:
    """Years, degrees in kelvin, prices: what is far from 0 chooses as what is around it."""
    x, y = points(80, 4, 2, seed=3)
    augmented = x[:, None] + 0.25 * np.random.default_rng(1).normal(size=(80, 2, 4))
    chooser = AugmentationSelector(policy=policy, fraction=0.025)

    def chosen(offset: float) -> Any:
        data = LabelledFeatures(x + offset, y, augmented + offset)
        return augment(data, chooser, fractions=(), splits=2)

    near = chosen(0.0)
    for offset in (-1e3, 2.0**20, 1e9):
        far = chosen(offset)
        assert (far.verdict, far.labels_checked) == (near.verdict, near.labels_checked)
        assert far.gain == pytest.approx(near.gain, abs=1e-9)
        assert far.selected == near.selected
        assert label_suspects(x + offset, y).tolist() == label_suspects(x, y).tolist()


def rare_group(seed: int, moving: float) -> LabelledFeatures:
    """One point in 17 lies where its transforms, and no others, cross the boundary."""
    rng = np.random.default_rng(seed)
    n = 1200
    y = np.arange(n) % 2
    sign = 2.0 * y - 1
    x = rng.normal(size=(n, 3)) * 0.3
    rare = rng.random(n) < 0.06
    x[:, 0] += np.where(rare, 0.4, 3) * sign
    x[:, 1] += np.where(rare, 2.0, 0)
    augmented = np.repeat(x[:, None], 4, axis=1) + rng.normal(size=(n, 4, 3)) * 0.1
    augmented[rare, :, 0] -= moving * sign[rare, None]
    augmented[rare, :, 2] += moving * sign[rare, None]
    return LabelledFeatures(x, y, augmented)


def test_the_verdict_is_for_influence_where_few_points_matter() -> None:
    made = augment(rare_group(0, 1.5), AugmentationSelector(fraction=0.01), splits=8)
    assert made.verdict == "use"
    assert made.advantage_ci95[0] > 0
    assert made.enough is not None
    assert made.enough < 1
    by = {(row["policy"], row["fraction"]): row["accuracy"] for row in made.curve}
    assert by["deterministic", 0.0] == by["uniform", 0.0]
    assert by["deterministic", 1.0] == by["uniform", 1.0]
    assert by["deterministic", 0.01] - by["uniform", 0.01] == pytest.approx(made.advantage)


def test_the_verdict_is_random_or_no_gain_where_that_is_true() -> None:
    alike = augment(rare_group(0, 1.5), AugmentationSelector(policy="uniform"), splits=6)
    assert (alike.verdict, alike.advantage) == ("random is as good", 0)
    still = augment(rare_group(1, 0.0), splits=6)
    assert still.verdict == "no gain"
    assert all(0 <= row["ci95"][0] <= row["ci95"][1] <= 1 for row in still.curve)


@pytest.mark.parametrize(
    "seed", [0, 1]
)  # the splits of the first all agree: not one point is gained
def test_too_little_data_is_a_verdict(seed: int) -> None:
    data = rare_group(seed, 1.5)
    few = LabelledFeatures(data.x[:24], data.y[:24], data.augmented[:24])
    made = augment(few, splits=4)
    low, high = made.gain_ci95
    assert low < 0 < made.matters < high
    assert made.verdict == "too little data"


@pytest.mark.parametrize(
    ("gain", "advantage", "verdict"),
    [
        ((0.02, 0.01, 0.03), (0.01, 0.005, 0.02), "use"),
        ((0.02, 0.01, 0.03), (-0.01, -0.02, -0.005), "random is better"),
        ((0.02, 0.01, 0.03), (0.001, -0.003, 0.004), "random is as good"),
        ((0.02, 0.01, 0.03), (0.001, -0.013, 0.014), "too little data"),
        ((0.001, -0.002, 0.004), (0.001, -0.001, 0.004), "no gain"),
        ((-0.03, -0.05, -0.01), (0.0, 0.0, 0.0), "no gain"),  # it does harm
        ((0.12, -0.25, 0.49), (0.01, 0.005, 0.02), "too little data"),
    ],
)
def test_the_verdict_on_two_differences(
    gain: tuple[float, float, float], advantage: tuple[float, float, float], verdict: str
) -> None:
    assert judged(gain, advantage, 0.005) == verdict


def test_scores_are_renewed_and_transforms_weigh_less_where_asked() -> None:
    data = rare_group(3, 1.5)
    once = AugmentationSelector(fraction=40 / len(data.x)).fit(data.x, data.y, data.augmented)
    renewed = AugmentationSelector(fraction=40 / len(data.x), updates=3, downweight=True)
    renewed.fit(data.x, data.y, data.augmented)
    assert len(set(renewed.selected_.tolist())) == len(once.selected_) == 40
    assert once.selected_[:10].tolist() == renewed.selected_[:10].tolist()
    assert once.selected_.tolist() != renewed.selected_.tolist()
    with pytest.raises(InputError) as refused:
        AugmentationSelector(updates=1).fit(data.x, data.y)
    assert (refused.value.code, refused.value.place) == ("missing-key", "augmented")


def test_features_of_a_torch_module_do_not_depend_on_chance_or_batches() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(1, 2, 3)
    module = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(2), torch.nn.Dropout(0.5))
    images = np.random.default_rng(0).normal(size=(7, 3, 1, 5, 5)).astype(np.float32)
    found = extract_features(module, images, transforms=True, batch=4)
    assert found.shape == (7, 3, 2 * 3 * 3)
    assert found[:, 1] == pytest.approx(extract_features(module, images[:, 1]))
    weight, bias = (part.detach().numpy() for part in convolution.parameters())
    patch = images[6, 2, 0, 1:4, 2:5]  # features of the second channel, place (1, 2)
    assert found[6, 2, 9 + 3 + 2] == pytest.approx((patch * weight[1, 0]).sum() + bias[1], rel=1e-4)
    assert module.training
    y = np.arange(7) % 2
    assert AugmentationSelector(fraction=2 / len(y)).fit(found[:, 0], y, found).selected_.shape == (
        2,
    )


def damaged(name: str) -> dict[str, Any]:
    x, y = points(20, 3, 2)
    arrays: dict[str, Any] = {"x": x, "y": y, "augmented": np.repeat(x[:, None], 2, axis=1)}
    match name:
        case "missing":
            del arrays["augmented"]
        case "nan":
            x[4, 1] = np.nan
        case "nan in a transform":
            arrays["augmented"][7, 0, 0] = np.inf
        case "nan label":
            arrays["y"] = np.where(np.arange(20) == 5, np.nan, y)
        case "half a label":
            arrays["y"] = y + 0.5
        case "measured labels":
            arrays["y"] = x[:, 0].astype(np.float32)
        case "one class":
            arrays["y"] = np.zeros(20)
        case "rows":
            arrays["y"] = y[:-1]
        case "shape":
            arrays["augmented"] = x
        case "single point of a class":
            arrays["y"] = np.r_[1, np.zeros(19)]
        case "ten classes of two":
            arrays["y"] = np.arange(20) // 2
        case "four points":
            arrays = {key: value[:4] for key, value in arrays.items()}
        case "beyond a float":
            x[3, 0] = -1e300
    return arrays


@pytest.mark.parametrize(
    ("name", "code", "place"),
    [
        ("missing", "missing-key", "augmented"),
        ("nan", "invalid-value", "x, row 4"),
        ("nan in a transform", "invalid-value", "augmented, row 7"),
        ("nan label", "invalid-value", "y, row 5"),
        ("half a label", "invalid-value", "y"),
        ("measured labels", "invalid-value", "y"),
        ("one class", "no-data", "y"),
        ("rows", "invalid-value", "x"),
        ("shape", "invalid-value", "augmented"),
        ("single point of a class", "no-data", "y"),
        ("ten classes of two", "no-data", "y"),
        ("four points", "no-data", "y"),
        ("beyond a float", "out-of-range", "x, row 3"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, name: str, code: str, place: str) -> None:
    np.savez(tmp_path / "f.npz", **damaged(name))
    with pytest.raises(InputError) as refused:
        augment(tmp_path / "f.npz", splits=2)
    assert (refused.value.code, refused.value.place) == (code, place)


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "g.npz", x=np.array([{}], dtype=object))
    with (tmp_path / "i.npz").open("wb") as single:
        np.save(single, np.zeros(3))
    codes = {"f": "unknown-format", "g": "missing-key", "h": "not-found", "i": "unknown-format"}
    for name, code in codes.items():
        with pytest.raises(InputError) as refused:
            augment(tmp_path / f"{name}.npz")
        assert refused.value.code == code
