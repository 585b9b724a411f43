"""Ladders beside a plain reader and GNU Go; records that are read, and refused."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_go import PlainGame, Point

from holdfast.errors import InputError
from holdfast.go import Game, ladder, read_sgf
from holdfast.go.controller import GAMES, GtpProcess
from holdfast.go.ladders import ladder_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "go" / "ladder.sgf"


def captured(game: PlainGame, target: Point, attacking: bool, color: int) -> bool:
    """The definition: the attacker needs one move that works, the defender one answer."""
    if game.grid[target[0]][target[1]] != color:
        return True
    game.turn = 3 - color if attacking else color
    chain, _ = game.region(game.grid, target)
    open_ = {q for p in chain for q in game.near(p) if game.grid[q[0]][q[1]] == 0}
    if attacking:
        if len(open_) > 2:
            return False
        moves = open_
    else:
        if len(open_) > 1:
            return False
        moves = set(open_)
        for point in {q for p in chain for q in game.near(p) if game.grid[q[0]][q[1]] == 3 - color}:
            enemy, _ = game.region(game.grid, point)
            around = {q for p in enemy for q in game.near(p) if game.grid[q[0]][q[1]] == 0}
            if len(around) == 1:
                moves |= around
    legal = set(game.legal())
    results = [captured(game.play(move), target, not attacking, color) for move in moves & legal]
    return any(results) if attacking else all(results)


def test_random_positions_are_read_as_the_definition_says() -> None:
    random = np.random.default_rng(2)
    verdicts = []
    for _ in range(25):
        game, plain = Game(5, rules="simple-ko"), PlainGame(5, 5, "simple", suicide=False)
        for _ in range(int(random.integers(6, 15))):
            move = plain.legal()[int(random.integers(len(plain.legal())))]
            game.play((move[0] + 1) * 6 + move[1] + 1)
            plain = plain.play(move)
        game.play("pass")  # no ko stands
        plain.previous = None
        for row, col in zip(*np.nonzero(plain.grid), strict=True):
            try:
                found = ladder_of(game, (row + 1) * 6 + col + 1)
            except InputError:
                continue
            color = plain.grid[row][col]
            for attacking, verdict in ((True, found.attacked), (False, found.defended)):
                expected = captured(plain, (int(row), int(col)), attacking, color)
                assert verdict == ("captured" if expected else "escapes"), (str(game), found)
                verdicts.append(expected)
    assert 40 < sum(verdicts) < len(verdicts) - 40


def test_a_search_that_is_ended_gives_no_verdict() -> None:
    game = read_sgf(EXAMPLE, 8)
    assert ladder_of(game, game.cell("G6"), positions=3).attacked == "unknown"
    found = ladder_of(game, game.cell("G6"))
    assert (found.attacked, found.line[0]) == ("captured", "G4")
    for vertex in ("A1", "F6"):  # empty; many liberties
        with pytest.raises(InputError):
            ladder_of(game, game.cell(vertex))


def test_a_ladder_breaker_and_the_mirrored_colors() -> None:
    for black, white in ((1, 2), (2, 1)):
        game = Game(9, rules="simple-ko")
        for vertex in ("C4", "D3", "E3"):
            game.play(vertex, black)
        game.play("D4", white)
        assert ladder_of(game, game.cell("D4")).attacked == "captured"
        game.play("G7", white)
        assert ladder_of(game, game.cell("D4")).attacked == "escapes"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("gnugo", path=GAMES) is None, reason="no gnugo")
def test_the_suite_beside_gnugo(shared_data: Path, tmp_path: Path) -> None:
    with tarfile.open(shared_data / "go" / "ladder" / "elf_ladder_suite.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "ladder_suite"
    rows = [
        line.split()
        for name in ("ladder_list", "ladder_magic_list")
        for line in (folder / name).read_text().splitlines()
        if line
    ]
    assert len(rows) == 275
    peer, agreed, chains = GtpProcess("gnugo --mode gtp"), 0, 0
    for name, ply in rows:
        record = folder / "ladder" / name
        peer.send("boardsize 19")
        peer.send("clear_board")
        game = read_sgf(record, int(ply))
        for color, cell in game.moves:
            peer.send(f"play {'.bw'[color]} {game.vertex(cell)}")
        for row in ladder(record, int(ply)).ladders:
            two = row.liberties == 2
            code = peer.send(f"{'ladder_attack' if two else 'defend'} {row.vertex}")[0]
            lost = (code != "0") == two
            agreed += lost == ((row.attacked if two else row.defended) == "captured")
            chains += 1
    peer.close()
    assert chains > 800
    assert agreed >= 0.95 * chains


# --- Records -------------------------------------------------------------------------------------


def record(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "game.sgf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_main_line_handicap_setup_and_encodings(tmp_path: Path) -> None:
    game = read_sgf(EXAMPLE)
    assert (len(game.moves), game.komi, game.turn) == (10, 7.0, 1)
    text = (
        "(;GM[1]SZ[5]HA[2]AB[bb][dd]KM[0.5]CA[GB18030]PB[\u9ed1];W[cc];B[];W[tt](;B[aa])(;B[ee]))"
    )
    game = read_sgf(record(tmp_path, text.encode("gb18030")))
    assert [game.vertex(cell) for _, cell in game.moves[2:]] == ["C3", "pass", "pass", "A5"]
    assert game.colors[0, 0] == 1
    deep = "(;SZ[9]" + "(;B[]" * 3000 + ")" * 3001
    assert len(read_sgf(record(tmp_path, deep)).moves) == 3000
    assert read_sgf(record(tmp_path, "(;SZ[3]AB[aa]AW[cc]PL[W])")).turn == 2


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("big5", "\u8a31\u529f\u84cb"), ("shift_jis", "\u30bd\u8868\u80fd"), ("cp932", "\u5341")],
)
def test_characters_that_end_in_a_backslash(tmp_path: Path, encoding: str, name: str) -> None:
    text = f"(;CA[{encoding}]PB[{name}]SZ[5]C[{name}];B[aa]C[{name}];W[bb])"
    assert b"\\]" in text.encode(encoding)
    game = read_sgf(record(tmp_path, text.encode(encoding)))
    assert [game.vertex(cell) for _, cell in game.moves] == ["A5", "B4"]
    with pytest.raises(InputError) as error:
        read_sgf(tmp_path / "game.sgf", -1)
    assert error.value.code == "out-of-range"


@pytest.mark.parametrize(
    ("text", "komi"),
    [("KM[375]", 7.5), ("KM[650]", 6.5), ("KM[7.5]", 7.5), ("KM[25]", 25), ("KM[-25]", -25)],
)
def test_komi_of_the_fox_server_and_of_others(tmp_path: Path, text: str, komi: float) -> None:
    assert read_sgf(record(tmp_path, f"(;SZ[5]{text})")).komi == komi


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "invalid-syntax", None),
        ("no game", "invalid-syntax", None),
        ("(;GM[2]SZ[9])", "unsupported", None),
        ("(;SZ[9:7])", "invalid-syntax", None),
        ("(;SZ[1])", "invalid-syntax", None),
        ("(;SZ[25])", "out-of-range", None),
        ("(;SZ[9];B[zz])", "invalid-syntax", None),
        ("(;SZ[9];B[aa];W[aa])", "occupied", "move 2"),
        ("(;SZ[9];B[aa];AB[bb])", "invalid-syntax", None),
        ("(;SZ[9]CA[no-such-code];B[aa]", "invalid-syntax", None),
        ("(;SZ[2]AB[aa][ab][ba][bb])", "invalid-syntax", None),
        ("(;SZ[5]KM[26])", "out-of-range", "KM"),
        ("(;SZ[9]KM[-82])", "out-of-range", "KM"),
        ("(;SZ[19]KM[750])", "out-of-range", "KM"),
    ],
)
def test_records_that_are_refused(tmp_path: Path, text: str, code: str, place: str | None) -> None:
    with pytest.raises(InputError) as caught:
        read_sgf(record(tmp_path, text))
    assert (caught.value.code, caught.value.place) == (code, place)
    assert caught.value.path is not None


@given(start=st.integers(0, 150), bytes_=st.binary(max_size=6))
def test_damaged_records_are_read_or_refused(
    start: int, bytes_: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = EXAMPLE.read_bytes()
    path = tmp_path_factory.mktemp("sgf") / "game.sgf"
    path.write_bytes(data[:start] + bytes_ + data[start + len(bytes_) :])
    with contextlib.suppress(InputError):
        assert isinstance(read_sgf(path), Game)
