"""Aggregation rules against closed forms, Flower, and liars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_vectors import EXAMPLES, clients, start
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from holdfast import federated
from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.federated.aggregation import combine, rule_named
from holdfast.federated.updates import screen

HERE = Path(__file__).parent


def updates(*vectors: Any, examples: Any = None, **metrics: Any) -> list[federated.Update]:
    """Updates of one tensor each."""
    counts = examples or [1] * len(vectors)
    return [
        federated.Update(
            {"w": np.asarray(vector, np.float64)},
            count,
            {name: values[place] for name, values in metrics.items()},
            f"c{place}",
        )
        for place, (vector, count) in enumerate(zip(vectors, counts, strict=True))
    ]


def aggregated(rule: str, current: Any, given: Any, **parameters: Any) -> Any:
    """The tensor of one round."""
    weights, _, _ = federated.aggregate(
        rule, {"w": np.asarray(current, np.float64)}, given, **parameters
    )
    return weights["w"].tolist()


def test_fedavg_is_flowers_to_the_last_bit_in_each_round() -> None:
    current = start()
    with np.load(HERE / "flower-fedavg.npz") as flower:
        for number in (1, 2, 3):
            given = [
                federated.Update(weights, examples)
                for weights, examples in zip(clients(current, number), EXAMPLES, strict=True)
            ]
            current, _, _ = federated.aggregate("fedavg", current, given)
            for name, array in current.items():
                assert array.dtype == np.float32
                assert array.tobytes() == flower[f"{number}/{name}"].tobytes()


def test_closed_forms() -> None:
    three = updates([1.0, 0.0], [2.0, 6.0], [9.0, 3.0], examples=[1, 1, 2])
    assert aggregated("fedavg", [0, 0], three) == [5.25, 3.0]
    assert aggregated("median", [0, 0], three, f=1) == [2.0, 3.0]
    assert aggregated("trimmed-mean", [0, 0], three, f=1) == [2.0, 3.0]
    # q-FedAvg with q = 0 is the plain mean of the weights, whatever the examples.
    losses = updates([1.0], [4.0], loss_before=[1.0, 3.0])
    assert aggregated("q-fedavg", [0], losses, q=0.0, learning_rate=0.5) == pytest.approx([2.5])
    # q = 1, L = 2: d = (-2, -8); sum F d = -26; sum |d|^2 + L F = (4 + 2) + (64 + 6).
    after = aggregated("q-fedavg", [0], losses, q=1.0, learning_rate=0.5)
    assert after == pytest.approx([26 / 76])


def test_fedadam_follows_the_paper() -> None:
    current, state = {"w": np.array([1.0])}, {}
    m, v = 0.0, 1e-6
    for step in (0.5, -0.25):
        given = updates(current["w"] + step)
        current, state, _ = federated.aggregate("fedadam", current, given, state, server_rate=0.1)
        m, v = 0.9 * m + 0.1 * step, 0.99 * v + 0.01 * step**2
        expected = given[0].weights["w"] - step + 0.1 * m / (v**0.5 + 1e-3)
        assert current["w"] == pytest.approx(expected)
    statistics = {"w": np.array([0.0]), "seen": np.array(3, np.int64)}
    sent = federated.Update({"w": np.array([1.0]), "seen": np.array(8, np.int64)}, 1)
    after, _, _ = federated.aggregate("fedadam", statistics, [sent], buffers=["seen"])
    assert after["seen"] == 8
    assert after["seen"].dtype == np.int64


def test_fedadam_without_tau_leaves_what_no_update_has_moved() -> None:
    current = {"w": np.array([1.0, 2.0])}
    for _ in range(2):
        current, _, _ = federated.aggregate("fedadam", current, updates([1.5, 2.0]), tau=0.0)
    assert current["w"][1] == 2.0
    assert np.isfinite(current["w"]).all()


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "multi-krum", "bulyan", "scaffold"])
@pytest.mark.parametrize("scale", [1e307, 1e30, 1.0, 5e-324])
def test_means_of_the_largest_and_smallest_numbers(rule: str, scale: float) -> None:
    given = [
        federated.Update({"w": np.array([scale, -scale, -0.0])}, 1, control=np.zeros(3))
        for _ in range(8)
    ]
    parameters = {"population": 8} if rule == "scaffold" else {"f": 1}
    after = aggregated(rule, [0, 0, 0], given, **parameters)
    assert after == pytest.approx([scale, -scale, 0.0], rel=1e-15, abs=0)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "multi-krum", "bulyan"])
def test_sums_beyond_float64_are_refused_and_those_of_liars_do_not_count(rule: str) -> None:
    with pytest.raises(InputError) as caught:
        aggregated(rule, [0], updates(*[[1.7e308]] * 8), f=1)
    assert caught.value.code == "not-finite"
    liar = updates(*[[1.0]] * 7, [1.7e308])
    assert aggregated(rule, [0], liar, f=1) == [1.0]


def test_a_result_beyond_its_type_is_refused() -> None:
    given = [
        federated.Update({"w": np.full(2, 3e38, np.float32)}, 1, control=np.zeros(2))
        for _ in range(2)
    ]
    with pytest.raises(InputError) as caught:
        federated.aggregate("scaffold", GOOD, given, server_rate=2.0, population=2)
    assert caught.value.code == "not-finite"


@pytest.mark.parametrize("rule", ["fedavg", "median", "fedadam"])
@pytest.mark.parametrize(
    "kept", [np.int64([2**63 - 1, 6364136223846793005]), np.uint64([2**64 - 1, 2**53 + 1])]
)
def test_whole_numbers_on_which_all_agree_stay(rule: str, kept: Any) -> None:
    given = [
        federated.Update({"w": np.full(2, k, np.float32), "kept": kept}, k + 1) for k in range(3)
    ]
    weights, _, _ = federated.aggregate(rule, given[0].weights, given)
    assert weights["kept"].dtype == kept.dtype
    assert weights["kept"].tolist() == kept.tolist()


@pytest.mark.parametrize("rule", ["krum", "multi-krum", "bulyan"])
def test_buffers_neither_choose_nor_are_chosen(rule: str) -> None:
    """BatchNorm's variance is large where the data is; a liar may hide its step behind it."""
    rng = np.random.default_rng(0)
    honest = [{"w": 0.01 * rng.normal(size=3), "var": np.array([1.0 + 100 * n])} for n in range(7)]
    steps = {"w": np.full(3, 5.0), "var": np.array([300.0])}
    statistics = {"w": np.zeros(3), "var": np.array([1e30])}
    for liar in (steps, statistics):
        given = [federated.Update(each, 1) for each in [*honest, liar]]
        weights, _, failures = federated.aggregate(
            rule, honest[0], given, f=1, largest_norm=100.0, buffers=["var"]
        )
        assert not failures
        assert abs(weights["w"]).max() < 0.1
        assert 1.0 <= weights["var"][0] <= 601.0


def test_scaffold_moves_by_the_mean_step_and_sums_control_variates() -> None:
    given = [
        federated.Update({"w": np.array([w])}, 1, control=np.array([c]))
        for w, c in ((2.0, 1.0), (4.0, 5.0))
    ]
    weights, state, _ = federated.aggregate(
        "scaffold", {"w": np.array([1.0])}, given, server_rate=0.5, population=10
    )
    assert weights["w"].tolist() == [2.0]  # 1 + 0.5 (3 - 1)
    assert state["control"].tolist() == [0.6]  # (1 + 5) / 10


@pytest.mark.parametrize("rule", ["krum", "multi-krum", "bulyan", "median", "trimmed-mean"])
def test_liars_do_not_move_a_robust_rule(rule: str) -> None:
    rng = np.random.default_rng(1)
    good = rng.normal(size=(9, 5))
    for lie in (1e9, -1e9, 5.0):
        given = updates(*good, *np.full((2, 5), lie))
        after = np.array(aggregated(rule, np.zeros(5), given, f=2))
        assert (after >= good.min(axis=0)).all()
        assert (after <= good.max(axis=0)).all()


def test_bulyan_by_hand() -> None:
    # f = 1, n = 7: Krum drops one end first; 5 are selected, and of each coordinate 3 are averaged.
    given = updates([0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [1000.0])
    assert aggregated("bulyan", [0.0], given, f=1) == pytest.approx([2.0], abs=1.0)


def test_krum_picks_a_good_client_where_all_share_a_large_offset() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        offset = 1000 * rng.normal(size=1000)
        good = offset + 1e-3 * rng.normal(size=(7, 1000))
        bad = offset + 3e-3 * rng.normal(size=(3, 1000))
        given = [
            federated.Update({"w": row.astype(np.float32)}, 1)
            for row in np.concatenate([bad, good])
        ]
        weights, _, _ = federated.aggregate("krum", given[0].weights, given, f=3)
        picked = [np.array_equal(weights["w"], each.weights["w"]) for each in given].index(True)
        assert picked >= 3


@given(st.permutations(range(11)), st.sampled_from(["krum", "multi-krum", "bulyan", "median"]))
def test_the_order_of_updates_does_not_matter(order: list[int], rule: str) -> None:
    rows = np.random.default_rng(3).normal(size=(11, 4))
    given = updates(*rows)
    shuffled = [given[place] for place in order]
    assert aggregated(rule, [0] * 4, shuffled, f=2) == pytest.approx(
        aggregated(rule, [0] * 4, given, f=2)
    )


@pytest.mark.parametrize(
    ("rule", "least"),
    [("median", 7), ("trimmed-mean", 7), ("krum", 9), ("multi-krum", 9), ("bulyan", 15)],
)
def test_too_few_updates_for_f_is_an_error(rule: str, least: int) -> None:
    given = updates(*np.eye(least))
    aggregated(rule, np.zeros(least), given, f=3)
    with pytest.raises(InputError) as caught:
        aggregated(rule, np.zeros(least), given[1:], f=3)
    assert (caught.value.code, caught.value.expected) == ("too-few-updates", f"at least {least}")


GOOD = {"w": np.zeros(2, np.float32)}
BAD = {
    "not-finite": federated.Update({"w": np.array([np.nan, 0], np.float32)}, 5),
    "shape": federated.Update({"w": np.zeros((2, 1), np.float32)}, 5),
    "names": federated.Update({"v": np.zeros(2, np.float32)}, 5),
    "dtype": federated.Update({"w": np.array(["a", "b"])}, 5),
    "no-examples": federated.Update(GOOD, 0),
    "norm": federated.Update({"w": np.array([3e30, 4e30], np.float32)}, 5),
}
ODD = [
    ("names", federated.Update(None, 5)),  # type: ignore[arg-type]
    ("dtype", federated.Update({"w": [0.0, 0.0]}, 5)),  # type: ignore[dict-item]
    ("no-examples", federated.Update(GOOD, 10**400)),
    ("dtype", federated.Update(GOOD, 5, {"loss": "x"})),  # type: ignore[dict-item]
    ("dtype", federated.Update(GOOD, 5, {"loss": None})),  # type: ignore[dict-item]
    ("dtype", federated.Update(GOOD, 5, control="x")),  # type: ignore[arg-type]
    ("not-finite", federated.Update({"w": np.array([1e300, 0.0])}, 5)),
]


@pytest.mark.parametrize(("code", "update"), ODD)
def test_odd_updates_are_named(code: str, update: federated.Update) -> None:
    weights, _, failures = federated.aggregate("fedavg", GOOD, [update, federated.Update(GOOD, 1)])
    assert weights["w"].tolist() == [0.0, 0.0]
    assert [each.code for each in failures] == [code]
    assert update.nbytes >= 0


@pytest.mark.parametrize(
    ("rule", "metrics", "parameters"),
    [
        ("q-fedavg", {}, {"learning_rate": 0.1}),
        ("q-fedavg", {"loss_before": -1.0}, {"learning_rate": 0.1}),
        ("heteroswitch", {"loss_before": 1.0}, {}),
        ("scaffold", {"loss": 1.0}, {"population": 2}),
    ],
)
def test_an_update_without_what_the_rule_computes_with_is_named(
    rule: str, metrics: dict[str, float], parameters: dict[str, Any]
) -> None:
    whole = federated.Update(GOOD, 1, {"loss": 1.0, "loss_before": 1.0}, "a", np.zeros(2))
    given = [whole, federated.Update(GOOD, 1, metrics, "eve")]
    _, _, failures = federated.aggregate(rule, GOOD, given, **parameters)
    assert [(each.client, each.code) for each in failures] == [("eve", "no-metric")]


@pytest.mark.parametrize("code", BAD)
def test_what_cannot_be_averaged_is_excluded_by_name(code: str) -> None:
    bad = federated.Update(BAD[code].weights, BAD[code].examples, client="eve")
    usable, failures = screen(GOOD, [bad, federated.Update(GOOD, 1)], largest_norm=10.0)
    assert [each.client for each in usable] == [""]
    assert [(each.client, each.code) for each in failures] == [("eve", code)]


@pytest.mark.parametrize("examples", [-1, 2.5, float("nan"), None])
def test_a_number_of_examples_is_a_positive_whole_number(examples: Any) -> None:
    assert screen(GOOD, [federated.Update(GOOD, examples)])[1][0].code == "no-examples"


def counted(weights: Any, count: Any) -> dict[str, Any]:
    """Weights beside BatchNorm's counter of batches."""
    return {"w": np.asarray(weights, np.float32), "batches": np.asarray(count)}


@pytest.mark.parametrize("rule", ["krum", "multi-krum", "bulyan"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.float32])
def test_counters_do_not_choose_between_updates(rule: str, dtype: Any) -> None:
    honest = [counted([0.01 * n] * 3, dtype(40 * n * n)) for n in range(6)]
    liar = counted([5.0] * 3, dtype(100))
    if (
        dtype is np.float32
    ):  # the order of names differs between clients, and the liar hides in integers
        honest = [dict(sorted(each.items(), reverse=n % 2 > 0)) for n, each in enumerate(honest)]
        honest = [{**each, "batches": np.float32(0)} for each in honest]
        liar = {"w": np.full(3, 5), "batches": np.array(0)}
    given = [federated.Update(each, 1, client=str(n)) for n, each in enumerate([*honest, liar])]
    weights, _, _ = federated.aggregate(rule, honest[0], [*given, given[0]], f=1)
    assert weights["w"].max() < 0.1


def test_counters_have_no_part_in_the_norm_of_a_step() -> None:
    start, client = counted([0.0], 0), federated.Update(counted([1.0], 10), 1, {"loss_before": 1.0})
    assert not screen(start, [client], largest_norm=1.0)[1]
    parameters = {"q": 1.0, "learning_rate": 0.5}
    with_counter, _, _ = federated.aggregate("q-fedavg", start, [client], **parameters)
    alone = aggregated("q-fedavg", [0.0], updates([1.0], loss_before=[1.0]), **parameters)
    assert with_counter["w"].tolist() == pytest.approx(alone)
    assert with_counter["batches"] == 10
    integers = [federated.Update({"n": np.arange(3)}, 1)] * 5
    with pytest.raises(InputError) as caught:
        federated.aggregate("krum", integers[0].weights, integers)
    assert caught.value.code == "unsupported"


def test_a_loss_that_is_not_finite_excludes_an_update() -> None:
    given = updates([1.0], [2.0], loss=[1.0, float("inf")])
    weights, state, failures = federated.aggregate("heteroswitch", {"w": np.zeros(1)}, given)
    assert weights["w"].tolist() == [1.0]
    assert state["loss_ema"] == 1.0
    assert [each.code for each in failures] == ["not-finite"]


@pytest.mark.parametrize(
    ("name", "parameters", "code", "place"),
    [
        ("fedmax", {}, "unknown-key", "rule.fedmax"),
        ("fedavg", {"f": 1}, "unknown-key", "f"),
        ("krum", {"f": -1}, "invalid-value", "f"),
        ("krum", {"f": 1.5}, "invalid-value", "f"),
        ("fedprox", {"mu": float("nan")}, "invalid-value", "mu"),
        ("heteroswitch", {"switch": "sometimes"}, "unknown-name", "switch"),
        ("q-fedavg", {}, "missing-key", "learning_rate"),
        ("q-fedavg", {"learning_rate": 0.0}, "invalid-value", "learning_rate"),
        ("fedadam", {"beta2": 2.0}, "invalid-value", "beta2"),
        ("heteroswitch", {"gamma": 1.5}, "invalid-value", "gamma"),
    ],
)
def test_parameters_of_rules_are_checked(
    name: str, parameters: dict[str, Any], code: str, place: str
) -> None:
    with pytest.raises(InputError) as caught:
        aggregated(name, [0], updates([1.0]), **parameters)
    assert (caught.value.code, caught.value.place) == (code, place)


def test_inputs_are_not_changed() -> None:
    current, given = {"w": np.zeros(2)}, updates(*np.ones((9, 2)), loss=[1.0] * 9)
    for rule in ("fedavg", "krum", "bulyan", "heteroswitch", "fedadam"):
        _, values = rule_named(rule, {})
        combine(rule, current, given, {}, values)
    assert current["w"].tolist() == [0, 0]
    assert all(each.weights["w"].tolist() == [1, 1] for each in given)


def files(folder: Path, count: int) -> list[Path]:
    """Updates in files; the last is a liar."""
    rng = np.random.default_rng(0)
    paths = [folder / f"u{place}.safetensors" for place in range(count)]
    for path in paths:
        vector = rng.normal(size=4) + (1e6 if path == paths[-1] else 0)
        save_file({"w": vector.astype(np.float32)}, path, {"examples": "10"})
    return paths


def run(*words: Any) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(str(ended.value.code))


def test_updates_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(tmp_path, 5)
    liar, sick = str(paths[-1]), str(tmp_path / "sick.safetensors")
    save_file({"w": np.full(4, np.nan, np.float32)}, sick, {"examples": "1"})
    out = tmp_path / "out.safetensors"
    words = ("federated", "aggregate", *paths, sick, "-o", out, "--json")
    assert run(*words, "--rule", "krum", "--f", 1) == 0
    answer = json.loads(capsys.readouterr().out)
    assert abs(load_file(out)["w"]).max() < 10
    assert [row["update"] for row in answer["updates"] if row["excluded"]] == [sick]
    # With the bound around the median the liar is named too.
    assert run(*words, "--largest-norm", 100) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["update"] for row in answer["updates"] if row["excluded"]] == [liar, sick]
    assert run(*words, "--rule", "krum", "--f", 2) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "too-few-updates"


def test_files_of_one_stem_are_clients_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = []
    for client in ("a", "b", "c"):
        Path(client).mkdir()
        paths.append(Path(client) / "update.safetensors")
        value = np.nan if client == "b" else 1.0
        save_file({"w": np.full(2, value, np.float32)}, paths[-1], {"examples": "10"})
    save_file({"w": np.ones(2, np.float32)}, "alone.safetensors", {"examples": "5"})
    result = federated.aggregate_files([*paths, "alone.safetensors"], "out")
    names = [row["update"] for row in result.updates]
    assert names == [*map(str, paths), "alone.safetensors"]
    assert [row["update"] for row in result.updates if row["excluded"]] == [str(paths[1])]
    with safe_open("out", framework="np") as file:
        assert file.metadata() == {"examples": "25"}
    for again in (paths[0], tmp_path / paths[0]):
        with pytest.raises(InputError) as caught:
            federated.aggregate_files([*paths, again], "out")
        assert caught.value.code == "conflict"


def test_the_result_of_files_counts_what_was_used_in_the_type_of_the_files(tmp_path: Path) -> None:
    paths = files(tmp_path, 5)
    federated.aggregate_files(paths, tmp_path / "out", largest_norm=1e3)
    with safe_open(tmp_path / "out", framework="np") as file:
        assert file.metadata() == {"examples": "40"}
        assert file.get_tensor("w").dtype == np.float32


def test_statistics_in_files_do_not_choose(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.safetensors" for n in range(6)]
    for n, path in enumerate(paths):
        step = np.full(2, 0.01 * n if n < 5 else 5.0)
        save_file({"w": step, "bn.running_var": np.array([100.0 * n])}, path, {"examples": "1"})
    result = federated.aggregate_files(paths, tmp_path / "out", rule="krum", largest_norm=10.0)
    assert load_file(tmp_path / "out")["w"].max() < 0.1
    assert load_file(tmp_path / "out")["bn.running_var"].tolist() == [250.0]
    assert not result.unknowns()


def test_files_of_several_types_are_averaged_in_the_widest(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.safetensors" for n in range(3)]
    for path, dtype in zip(paths, ("f2", "f4", "f4"), strict=True):
        save_file({"w": np.full(2, 1.0001, dtype)}, path, {"examples": "1"})
    for order in (paths, paths[::-1]):
        federated.aggregate_files(order, tmp_path / "out")
        assert load_file(tmp_path / "out")["w"].dtype == np.float32
        assert load_file(tmp_path / "out")["w"][0] == pytest.approx(1.00007, abs=1e-5)


@pytest.mark.parametrize(
    "count", ["-1", "nan", "1e3", "20.0", " 20 ", "0", "9" * 5000, "\u0b66", None]
)
def test_a_file_with_a_bad_number_of_examples_is_named(tmp_path: Path, count: str | None) -> None:
    paths = files(tmp_path, 3)
    bad = str(tmp_path / "bad.safetensors")
    noted = None if count is None else {"examples": count}
    save_file({"w": np.ones(4, np.float32)}, bad, noted)
    result = federated.aggregate_files([*paths, bad], tmp_path / "out")
    excluded = {row["update"]: row["excluded"] for row in result.updates if row["excluded"]}
    assert list(excluded) == [bad]
    assert excluded[bad].startswith("no-examples")


def test_an_output_is_none_of_the_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = files(tmp_path, 3)
    whole = paths[1].read_bytes()
    monkeypatch.chdir(tmp_path)
    for output in (paths[1], Path(paths[1].name)):
        with pytest.raises(InputError) as caught:
            federated.aggregate_files(paths, output)
        assert (caught.value.code, caught.value.path) == ("conflict", str(paths[1]))
    assert paths[1].read_bytes() == whole


def test_files_that_are_no_updates(tmp_path: Path) -> None:
    save_file({"w": np.zeros(2)}, tmp_path / "silent.safetensors")
    save_file({"w": np.zeros(2)}, tmp_path / "many.safetensors", {"examples": "lots"})
    save_file({"w": np.zeros(2)}, tmp_path / "more.safetensors", {"examples": "9" * 5000})
    (tmp_path / "torn.safetensors").write_bytes((tmp_path / "silent.safetensors").read_bytes()[:-3])
    expected = {
        "silent": "too-few-updates",
        "many": "too-few-updates",
        "more": "too-few-updates",
        "torn": "damaged",
        "no": "not-found",
    }
    for name, code in expected.items():
        with pytest.raises(InputError) as caught:
            federated.aggregate_files([tmp_path / f"{name}.safetensors"], tmp_path / "out")
        assert caught.value.code == code
