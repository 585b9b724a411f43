"""Networks, what self-play records, and training runs that are interrupted, resumed or diverge."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import HoldfastError, InputError
from holdfast.go import Game, Iteration, Training, match, train
from holdfast.go.ablation import Ablation, Change
from holdfast.go.inference import Network
from holdfast.go.net import Net, NetSize, evaluator, load_net, save_net
from holdfast.go.selfplay import Part, SelfPlay, _together, play_part
from holdfast.go.training import Diverged

TINY: dict[str, Any] = {
    "iterations": 2,
    "size": "3x3",
    "komi": 0.5,
    "net": {"channels": 4, "blocks": 1},
    "selfplay": {"games": 4, "visits": 8, "quick_visits": 4, "playout_visits": 8, "batch": 2},
    "steps": {"batch": 8, "uses": 2.0},
    "rating": {"every": 0},
}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    path = tmp_path / "net.safetensors"
    save_net(Net(NetSize(4, 1)), path)
    return path


def test_a_network_comes_back_and_serves_boards_of_any_size(net: Path) -> None:
    torch.manual_seed(1)
    same = Net(NetSize(4, 1))
    for rows, cols in ((3, 3), (4, 6)):
        planes = np.random.default_rng(1).random((2, 18, rows, cols), np.float32)
        policy, win = evaluator(load_net(net))(planes)
        assert policy.shape == (2, rows * cols + 1)
        assert policy.sum(1) == pytest.approx([1, 1], abs=1e-5)
        assert ((win > 0) & (win < 1)).all()
        assert (policy == evaluator(same)(planes)[0]).all()


def test_weights_that_are_not_finite_are_neither_written_nor_read(net: Path) -> None:
    import safetensors.torch

    broken = load_net(net)
    before = net.read_bytes()
    with torch.no_grad():
        broken.stem.weight[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        save_net(broken, net)
    assert net.read_bytes() == before
    with safetensors.safe_open(net, "pt") as file:
        metadata = file.metadata()
    net.write_bytes(safetensors.torch.save(broken.state_dict(), metadata))
    with pytest.raises(InputError) as caught:
        load_net(net)
    assert caught.value.code == "out-of-range"


@pytest.mark.parametrize("content", [b"", b"(;GM[1])", b"\x02" + bytes(7) + b"{}", b"\xff" * 99])
def test_files_that_are_no_network(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.safetensors"
    path.write_bytes(content)
    for opened in (lambda: load_net(path), lambda: match(f"{path}:5", "visits:5", 1)):
        with pytest.raises(InputError) as caught:
            opened()
        assert caught.value.code == "invalid-syntax"


def test_a_network_plays_a_match(net: Path) -> None:
    found = match(f"{net}:4", "visits:4", 2, size=(3, 3))
    assert [game.reason for game in found.games] == [""] * len(found.games)
    with pytest.raises(InputError) as caught:
        match(f"{net}:no", "visits:4", 1)
    assert caught.value.code == "invalid-value"


@pytest.mark.parametrize("with_net", [True, False])
def test_samples_have_the_end_of_their_game_from_the_side_to_move(
    net: Path, tmp_path: Path, with_net: bool
) -> None:
    settings = SelfPlay(at_once=3, visits=8, quick_visits=4, playout_visits=8, full_share=0.5)
    start = Game(4, 3, komi=2.5)
    path = tmp_path / "part.npz"
    play_part(Part(Network(net, 0) if with_net else None, start, settings, 5, 7, path))
    with np.load(path) as file:
        samples = dict(file)
    side, planes = samples["side"], samples["planes"]
    # Area by its definition: own points minus the opponent's, komi is white's.
    area = samples["owners"].astype(float).sum((1, 2))
    assert samples["score"] == pytest.approx(area - side * 2.5)
    assert set(side.tolist()) == {-1, 1}
    assert (planes[:, 16].all((1, 2)) == (side == 1)).all()
    # No visits where stones are.
    taken = (planes[:, 0] | planes[:, 8]).reshape(len(planes), -1)
    assert (samples["policy"][:, :-1][taken] == 0).all()
    assert samples["policy"].sum(1) == pytest.approx(np.ones(len(side)), abs=1e-5)
    assert (samples["costs"] >= 0).all()
    assert (samples["costs"][1] > 0) == with_net
    assert start.moves == []


def test_games_share_a_batch_and_get_their_own_answers() -> None:
    batches = []

    def game(number: int, length: int) -> Any:
        for _ in range(length):
            own = np.full((number, 1, 1, 1), number, np.float32)
            policy, values = yield own
            assert policy.tolist() == values.tolist() == [float(number)] * number
        return [{"number": number}]

    def evaluate(planes: Any) -> Any:
        batches.append(len(planes))
        return planes[:, 0, 0, 0], planes[:, 0, 0, 0]

    done = _together(
        [game(n, length) for n, length in ((1, 2), (2, 1), (3, 0), (4, 1))], 2, evaluate
    )
    assert sorted(one["number"] for rows in done for one in rows) == [1, 2, 3, 4]
    assert batches == [3, 5]


def test_an_interrupted_run_ends_like_one_that_was_not(tmp_path: Path) -> None:
    whole = train(TINY, tmp_path / "whole")
    assert isinstance(whole, Training)
    assert [row.number for row in whole.iterations] == [1, 2]
    # Stopped after an iteration; and again in the next, with its games on the disk.
    folder = tmp_path / "stopped"
    train(TINY | {"iterations": 1}, folder)
    name = "00001-0-of-1.npz"
    (folder / "games" / name).write_bytes((tmp_path / "whole" / "games" / name).read_bytes())
    found = train(TINY, folder)
    assert isinstance(found, Training)
    nets = [one / "net.safetensors" for one in (folder, tmp_path / "whole")]
    assert nets[0].read_bytes() == nets[1].read_bytes()
    assert [row.loss for row in found.iterations] == [row.loss for row in whole.iterations]
    assert train(TINY, folder) == found
    with pytest.raises(InputError) as caught:
        train(TINY | {"komi": 1.5}, folder)
    assert (caught.value.code, caught.value.found) == ("conflict", "komi")


def test_a_full_disk_ends_the_run_which_resumes(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "full"
    train(TINY, whole)
    train(TINY | {"iterations": 1}, folder)
    before = (folder / "state.pt").read_bytes()
    # No file may grow beyond this: what writing says on a full disk is the same.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(HoldfastError):
            train(TINY, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (folder / "state.pt").read_bytes() == before
    assert load_net(folder / "net.safetensors").finite()
    train(TINY, folder)
    nets = [(one / "net.safetensors").read_bytes() for one in (whole, folder)]
    assert nets[0] == nets[1]


def test_an_ablation_trains_each_change_and_plays_the_base(tmp_path: Path) -> None:
    rating = {"games": 2, "visits": 4}
    changes = {"more-steps": {"steps": {"uses": 8.0}}, "small-net": {"net": {"channels": 2}}}
    config = TINY | {"iterations": 1, "rating": rating, "changes": changes}
    found = train(config, tmp_path)
    assert isinstance(found, Ablation)
    assert [one.name for one in found.changes] == list(changes)
    for one in found.changes:
        assert 1 <= one.wins + one.losses + one.draws <= 2
        assert one.core_s == pytest.approx(found.base_core_s + one.extra_s)
    nets = [load_net(tmp_path / name / "net.safetensors") for name in ("base", *changes)]
    assert [(net.size.channels, net.size.blocks) for net in nets] == [(4, 1), (4, 1), (2, 1)]
    again = train(config, tmp_path)  # nothing is trained or paid for again
    assert isinstance(again, Ablation)
    assert [one.core_s for one in again.changes] == [one.core_s for one in found.changes]
    for change in ({"steps": {"use": 8.0}}, {"size": 9}):
        with pytest.raises(InputError):
            train(config | {"changes": {"wrong": change}}, tmp_path)
    with pytest.raises(InputError) as caught:
        train(config | {"changes": {"../up": {}}}, tmp_path)
    assert caught.value.code == "invalid-value"


def test_the_cheapest_point_is_the_lowest_price_of_a_certain_gain() -> None:
    def change(name: str, extra_s: float, wins: int, losses: int) -> Change:
        return Change(name, 1000.0 + extra_s, extra_s, wins, losses, 0)

    dear = change("dear", 7200.0, 90, 10)  # 400 log10(9) = 382 Elo for two core-hours
    cheap = change("cheap", 900.0, 65, 35)  # 108 Elo for a quarter
    unsure = change("unsure", 1.0, 55, 45)
    free = change("free", -10.0, 62, 38)
    worse = change("worse", 10.0, 20, 80)
    assert dear.row["elo_per_core_hour"] == pytest.approx(200 * np.log10(9))
    assert cheap.row["elo_per_core_hour"] == pytest.approx(1600 * np.log10(65 / 35))
    assert free.row["elo_per_core_hour"] is None
    for changes, expected in (
        ([dear, cheap, unsure, worse], "cheap"),
        ([dear, cheap, free], "free"),
        ([unsure, worse], None),
        ([worse], None),
        ([change("all", 5.0, 20, 0)], "all"),
    ):
        found = Ablation(1000.0, changes)
        assert found.to_dict()["cheapest"] == expected
        assert found.sections()
        assert any(each.doubt for each in found.unknowns())


def test_a_network_that_diverges_is_not_published(tmp_path: Path) -> None:
    steps = TINY["steps"] | {"learning_rate": 1e30, "uses": 20.0}
    with pytest.raises(Diverged):
        train(TINY | {"steps": steps}, tmp_path)
    assert load_net(tmp_path / "net.safetensors").finite()


def test_the_ledger_says_what_a_point_of_elo_cost() -> None:
    def row(number: int, wins: int, losses: int) -> Iteration:
        return Iteration(number, 8, 100, 1.0, 600.0, 900.0, 100.0, 200.0, 50.0, wins, losses)

    run = Training(
        "net", "visits:9", [row(1, 10, 10), row(2, 0, 0), row(3, 30, 10), row(4, 20, 20)]
    )
    points = run.to_dict()["ratings"]
    assert isinstance(points, list)
    assert [point["core_hours"] for point in points] == [0.5, 1.5, 2.0]
    # 30 to 10 is 400 log10(3) Elo; two iterations of 1,800 s lie between the ratings.
    gain = 400 * np.log10(3)
    assert [point["elo"] for point in points] == pytest.approx([0.0, gain, 0.0])
    assert points[1]["core_seconds_per_elo"] == pytest.approx(3600 / gain)
    assert (points[0]["core_seconds_per_elo"], points[2]["core_seconds_per_elo"]) == (None, None)
    assert run.to_dict()["core_seconds"] == {
        "search": 2400.0,
        "inference": 3600.0,
        "training": 800.0,
        "waiting": 400.0,
        "rating": 200.0,
    }
    assert not run.unknowns()
    assert Training("net", "visits:9", [row(1, 20, 0)]).unknowns()
    assert Training("net", "visits:9", [row(1, 0, 0)]).values()[0].name == "core_hours"
