"""The engine as controllers meet it, and a whole game through one of our own."""

from __future__ import annotations

import io
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.go import Game, PlayoutSearch, gtp, match
from holdfast.go._kernels import BLACK, INFO, TURN, WHITE
from holdfast.go.analysis import Analysis, Judge
from holdfast.go.clock import Clock
from holdfast.go.controller import GAMES, EngineFailure, GtpProcess, Lines
from holdfast.go.matches import make_player

ENGINE = f"{sys.executable} -c 'from holdfast.cli import main; main()' go gtp --visits 20"
GNUGO = shutil.which("gnugo", path=GAMES)
needs_gnugo = pytest.mark.skipif(GNUGO is None, reason="no gnugo on this machine")


def engine(size: int = 9, **settings: Any) -> gtp.Engine:
    return gtp.Engine(Game(size, rules="chinese"), visits=settings.pop("visits", 10), **settings)


def answers(lines: str, **settings: Any) -> list[str]:
    target = io.StringIO()
    with tempfile.TemporaryFile() as source:
        source.write(lines.encode())
        source.seek(0)
        gtp.serve(engine(**settings), Lines(source.fileno()), target)
    return target.getvalue().split("\n\n")[:-1]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("name", "= holdfast"),
        ("7 name\r", "=7 holdfast"),
        ("  007\tname # comment", "=007 holdfast"),
        ("pro\x07tocol_version", "= 2"),
        ("known_command genmove", "= true"),
        ("known_command", "= false"),
        ("nothing", "? unknown command"),
        ("12", "?12 unknown command"),
        ("3 play x D4", "?3 syntax error"),
        ("play b", "? syntax error"),
        ("play b I4", "? invalid vertex"),
        ("PLAY b D4", "? unknown command"),
        ("boardsize 1", "? unacceptable size"),
        ("boardsize 20", "? unacceptable size"),
        ("boardsize nan", "? syntax error"),
        ("boardsize 9.5", "? syntax error"),
        ("komi inf", "? syntax error"),
        ("komi -3.5", "="),
        ("undo", "? cannot undo"),
        ("fixed_handicap 1", "? invalid number of stones"),
        ("fixed_handicap 5", "= C3 G7 C7 G3 E5"),
        ("set_free_handicap A1", "? bad vertex list"),
        ("set_free_handicap A1 pass", "? bad vertex list"),
        ("set_free_handicap A1 a1", "? bad vertex list"),
        ("set_free_handicap A1 Z9", "? invalid vertex"),
        ("time_settings 1 2", "? syntax error"),
        ("time_settings -1 0 0", "? syntax error"),
        ("final_status_list lost", "? syntax error"),
        ("lz-analyze b 10 avoid b D4 1", "? unsupported: avoid"),
        ("lz-analyze 0", "? syntax error"),
        ("lz-analyze interval", "? syntax error"),
        ("kata-analyze w 10 maxmoves 0", "? syntax error"),
        ("known_command kata-analyze", "= true"),
    ],
)
def test_a_command(line: str, answer: str) -> None:
    assert engine().answer(line) == answer + "\n\n"


@pytest.mark.parametrize("line", ["", "   ", "# only a comment", "\r", "\t\x00"])
def test_lines_without_a_command_have_no_response(line: str) -> None:
    assert engine().answer(line) is None


def test_illegal_moves_are_refused_and_change_nothing() -> None:
    moves = "play b A2,play b B1,play w A1,play b A2,play w pass,undo,undo,play w b1,quit"
    found = answers(moves.replace(",", "\n"))
    assert found == ["=", "=", "? illegal move", "? illegal move", "=", "=", "=", "=", "="]


def test_a_session_ends_with_quit_or_its_input() -> None:
    assert answers("1 quit\n2 name\n") == ["=1"]
    assert answers("1 name") == ["=1 holdfast"]


def test_every_command_is_listed_and_known() -> None:
    listed = answers("list_commands\n")[0].removeprefix("= ").split("\n")
    required = (
        "protocol_version name version known_command list_commands quit boardsize clear_board"
    )
    required += " komi play genmove"
    assert set(required.split()) < set(listed)


def test_genmove_plays_for_either_side_and_twice_in_a_row() -> None:
    found = engine(5)
    for color in "bwwb":
        vertex = str(found.answer(f"genmove {color}"))
        assert vertex.startswith("= ")
    assert [color for color, _ in found.game.moves] == [BLACK, WHITE, WHITE, BLACK]
    before = list(found.game.moves)
    assert str(found.answer("reg_genmove w")).startswith("= ")
    assert found.game.moves == before


def test_the_score_is_that_after_dead_stones_are_captured() -> None:
    # White's stone at B2 is dead, although it was not captured when both passed.
    lines = ["boardsize 5", "komi 0.5"]
    lines += [f"play b {v}" for v in ("A3", "B3", "C3", "D3", "E3", "C4")]
    lines += ["play w B2", "play b pass", "play w pass", "final_score", "final_status_list dead"]
    assert answers("\n".join(lines), visits=50)[-2:] == ["= B+24.5", "= B2"]


def test_stones_in_seki_are_neither_dead_nor_alive() -> None:
    # Nobody can fill E1; the two outer groups share no liberty. GNU Go 3.8: no dead stones.
    rows = [*["....XO..."] * 6, "XXXXXOOOO", "OOOOOXXXX", ".OOO.XXX."]
    lines = ["boardsize 9"]
    for number, row in zip(range(9, 0, -1), rows, strict=True):
        stones = [(col, cell) for col, cell in zip("ABCDEFGHJ", row, strict=True) if cell != "."]
        lines += [f"play {'b' if cell == 'X' else 'w'} {col}{number}" for col, cell in stones]
    lines += ["play b pass", "play w pass"]
    lines += [f"final_status_list {status}" for status in ("seki", "dead", "alive")]
    seki, dead, alive = (one[2:].split() for one in answers("\n".join(lines))[-3:])
    assert set(seki) == {*(f"{col}2" for col in "ABCDEFGHJ"), *(f"{col}1" for col in "BCDFGH")}
    assert dead == []
    assert len(alive) == sum(cell != "." for row in rows[:7] for cell in row)


def test_game_records_are_loaded_before_a_move(tmp_path: Path) -> None:
    path = tmp_path / "game.sgf"
    path.write_text("(;SZ[5]KM[3];B[aa];W[bb];B[cc])")
    found = engine()
    assert found.answer(f"loadsgf {path} 3") == "=\n\n"
    assert (len(found.game.moves), found.game.rows, found.game.komi) == (2, 5, 3.0)
    assert found.answer("play b cc") == "? invalid vertex\n\n"
    assert found.answer("loadsgf no-such-file") == "? cannot load file\n\n"
    assert found.answer("loadsgf") == "? syntax error\n\n"


def test_rectangular_boards() -> None:
    found = engine()
    assert found.answer("rectangular_boardsize 3 2") == "=\n\n"
    assert found.answer("showboard") == "= \n 2 . . .\n 1 . . .\n   A B C\n\n"


@given(
    main=st.integers(0, 600),
    period=st.integers(0, 60),
    stones=st.integers(0, 30),
    overrun=st.floats(0, 0.2),
)
def test_no_time_control_is_ever_exceeded(
    main: int, period: int, stones: int, overrun: float
) -> None:
    clock = Clock()
    clock.set(main, period, stones)
    # A controller's clock: main time, then periods of some moves each, begun anew when they are played.
    left, moves = float(main), 0
    for number in range(200):
        seconds = clock.allowance(BLACK, 10)
        if seconds is None:
            assert period > 0
            assert stones == 0
            return
        spent = seconds + (overrun if seconds else 0.0)
        left -= spent
        if moves == 0 and left < 0 and stones:
            left, moves = left + period, stones
        assert left >= 0, (number, seconds)
        if moves:
            moves -= 1
            if moves == 0:
                left, moves = float(period), stones
        clock.spend(BLACK, spent)


def test_time_left_replaces_our_own_count() -> None:
    found = engine()
    found.answer("time_settings 100 10 5")
    assert found.clock.allowance(BLACK, 10) == pytest.approx(9.0)
    found.answer("time_left b 3 1")
    assert found.clock.allowance(BLACK, 10) == pytest.approx(2.43)
    found.answer("clear_board")
    assert found.clock.allowance(BLACK, 10) == pytest.approx(9.0)


def test_only_the_protocol_is_on_standard_output() -> None:
    lines = b"1 boardsize 5\r\n\xff\xfe\r\n2 genmove b\r\n3 showboard\r\n4 quit\r\n"
    done = subprocess.run(shlex.split(ENGINE), input=lines, capture_output=True, check=True)
    blocks = done.stdout.decode().split("\n\n")
    assert [block[:2] for block in blocks] == ["=1", "? ", "=2", "=3", "=4", ""]


def test_an_analysis_runs_until_the_next_line() -> None:
    child = subprocess.Popen(
        shlex.split(ENGINE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for stop in (b"1 name\n", b"\n", b""):
        child.stdin.write(b"9 lz-analyze w 1\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"=9\n"
        # It goes on by itself: nothing was sent when the later lines came.
        visits = []
        while len({*visits}) < 2:  # two lines may show one state of the search
            line = child.stdout.readline()
            assert line.startswith(b"info move ")
            visits.append(int(line.split()[4]))
        assert visits == sorted(visits)
        if stop:
            child.stdin.write(stop)
            child.stdin.flush()
        else:
            child.stdin.close()
        while (line := child.stdout.readline()) != b"\n":
            assert line.startswith(b"info move ")
        if stop == b"1 name\n":
            assert [child.stdout.readline() for _ in range(2)] == [b"=1 holdfast\n", b"\n"]
    assert child.stdout.read() == b""
    assert child.wait() == 0
    child.stdout.close()
    assert child.stderr is not None
    child.stderr.close()


def infos(analysis: Analysis) -> list[dict[str, str]]:
    """The first line of an analysis: settings of its moves by name, its owners in the last."""
    (line,) = itertools.islice(analysis.run(lambda _: False), 1)
    rows = []
    for part in line.split("info ")[1:]:
        part, _, owners = part.partition("ownership ")
        head, _, moves = part.partition(" pv ")
        words = head.split()
        rows.append(dict(zip(words[::2], words[1::2], strict=True)))
        rows[-1] |= {"pv": moves.strip(), "owners": owners}
    return rows


@pytest.mark.parametrize("net", [None, "examples/go/net-7x7.safetensors"])
@pytest.mark.parametrize("black", [True, False])
def test_an_analysis_has_the_side_to_move_in_view(net: str | None, black: bool) -> None:
    # One color has a wall with two eyes and all of the board; it is asked for both sides.
    found = engine(7, net=net)
    own = "b" if black else "w"
    found.answer("rectangular_boardsize 6 5")
    found.answer("komi 0.5")
    for col in "BCE":
        for row in range(1, 6):
            found.answer(f"play {own} {col}{row}")
    for side, sign in ((own, 1), ("w" if black else "b", -1)):
        assert found.answer(f"kata-analyze {side} 10 maxmoves 4 ownership true") == "=\n"
        assert found.analysis is not None
        rows = infos(found.analysis)
        assert [row["order"] for row in rows] == [str(n) for n in range(len(rows))]
        assert 1 <= len(rows) <= 4
        assert all(row["pv"].split()[0] == row["move"] for row in rows)
        assert [int(row["visits"]) for row in rows] == sorted(
            (int(row["visits"]) for row in rows), reverse=True
        )
        assert sign * (float(rows[0]["winrate"]) - 0.5) > 0.2
        owners = [float(one) for one in rows[-1]["owners"].split()]
        assert len(owners) == 30
        assert sign * sum(owners) > 10
        assert sign * float(rows[0]["scoreLead"]) > 10
        assert ("prior" in rows[0]) == (net is not None)
    found.answer("lz-analyze 10")
    assert found.analysis is not None
    assert int(infos(found.analysis)[0]["winrate"]) in range(10_001)
    assert "scoreLead" not in infos(found.analysis)[0]


def test_an_analysis_that_is_long_enough_only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.go.analysis.MOST_VISITS", 100)
    asked: list[float | None] = []

    def stopped(timeout_s: float | None) -> bool:
        asked.append(timeout_s)
        return timeout_s is None

    analysis = Analysis(PlayoutSearch(), Game(5), None, interval_s=60.0)
    assert len(list(analysis.run(stopped))) == 1
    assert asked[-1] is None


def test_owners_by_playouts_are_the_area_of_a_board_that_is_full() -> None:
    game = Game(3, komi=2.5)
    for vertex in ("A1", "A2", "B2", "B3", "B1", "C2"):
        game.play(vertex, 1)
    # White to move sees black's nine points.
    judge = Judge()
    game.board[INFO, TURN] = WHITE
    assert judge.owners(game) == pytest.approx(-np.ones((3, 3)), abs=0.2)
    assert judge.lead(game, -np.ones((3, 3))) == -9 + 2.5


def test_lines_come_whole_whatever_their_parts() -> None:
    read, write = os.pipe()
    lines = Lines(read)
    assert not lines.ready()
    with pytest.raises(TimeoutError):
        lines.next(0.0)
    os.write(write, b"on")
    assert not lines.ready()
    os.write(write, b"e\ntwo\n\n\xffthree")
    assert [lines.next() for _ in range(3)] == ["one", "two", ""]
    assert not lines.ready()
    os.close(write)
    assert [lines.next() for _ in range(3)] == ["\ufffdthree", None, None]
    os.close(read)


def test_players_that_are_none() -> None:
    for text in ("visits:0", "visits:x", "visits:", "", "no-such-program-here --gtp"):
        with pytest.raises(InputError):
            make_player(text, 1)
    net = "examples/go/net-7x7.safetensors"
    for text in (net, f"{net}:"):
        with pytest.raises(InputError, match="player"):
            make_player(text, 1)


def test_an_engine_that_fails_forfeits_and_the_match_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    # It answers one genmove of each game with a move on the occupied point, and then ends.
    script.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    print('not GTP')\n"
        "    if 'genmove' in line:\n"
        "        print('= A1\\n', flush=True)\n"
        "    elif 'A1' in line:\n"
        "        sys.exit()\n"
        "    else:\n"
        "        print('=\\n', flush=True)\n"
    )
    found = match(f"{sys.executable} {script}", "visits:5", 4, size=(5, 5))
    assert (found.wins, found.losses, found.draws) == (0, len(found.games), 0)
    assert len(found.to_dict()["forfeits"]) == len(found.games)


def test_a_late_engine_is_a_failure() -> None:
    late = GtpProcess(f"{sys.executable} -c 'import time; time.sleep(60)'", deadline_s=0.2)
    with pytest.raises(EngineFailure):
        late.send("name")
    late.close(quit_s=0.1)


@needs_gnugo
def test_handicaps_are_those_of_gnugo() -> None:
    peer = GtpProcess("gnugo --mode gtp")
    for size in (7, 9, 10, 13, 19):
        for stones in range(2, 10):
            peer.send(f"boardsize {size}")
            peer.send("clear_board")
            try:
                expected = set(peer.send(f"fixed_handicap {stones}").split())
            except EngineFailure:
                expected = None
            answer = str(engine(size).answer(f"fixed_handicap {stones}"))
            assert (set(answer[1:].split()) if answer[0] == "=" else None) == expected
    peer.close()


@needs_gnugo
def test_a_whole_game_against_gnugo() -> None:
    found = match("gnugo --mode gtp --level 1 --chinese-rules", ENGINE, 1, size=(5, 5), komi=0.5)
    assert found.wins + found.losses == 1
    assert not found.to_dict()["forfeits"]
    assert min(found.core_s) > 0
