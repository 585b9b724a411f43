"""`holdfast fst`: every command on files and streams, in text, binary and JSON."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pywrapfst
from machines import random_fst
from openfst import from_openfst, to_openfst
from same_machine import assert_same

from command_line import Result, invoke
from holdfast import cli
from holdfast.automata import (
    Fst,
    compose,
    determinize,
    equivalent,
    isomorphic,
    rmepsilon,
    shortest_distance,
)
from holdfast.automata.cli import app
from holdfast.automata.comparing import first_difference
from holdfast.automata.formats.files import decode, encode
from holdfast.automata.operations_cli import OPERATIONS as COMMANDS
from holdfast.automata.operations_cli import size
from holdfast.errors import InputError, LimitError

EXAMPLE = Path(__file__).parents[2] / "examples" / "transducers"
TEXT = "0\t1\t1\t2\t0.5\n0\t1\t3\t0\n1\t0.25\n"


def called(*arguments: str | Path, stdin: bytes | str | None = None, code: int = 0) -> Result:
    done = invoke(app, arguments, stdin)
    if done.exception is not None:
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def as_json(*arguments: str | Path, stdin: bytes | str | None = None, code: int = 0) -> Any:
    return json.loads(called(*arguments, "--json", stdin=stdin, code=code).stdout)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A folder with the machines of the worked example."""
    phones, words = EXAMPLE / "phones.txt", EXAMPLE / "words.txt"
    for name, options in (
        ("lexicon", ["--isymbols", phones, "--osymbols", words]),
        ("grammar", ["--isymbols", words, "--osymbols", words]),
        ("heard", ["--isymbols", phones, "--acceptor"]),
    ):
        called("compile", EXAMPLE / f"{name}.txt", "-o", tmp_path / f"{name}.fst", *options)
    return tmp_path


def test_every_command_has_help_and_json() -> None:
    text = called("--help").stdout
    for name in (name for name in app if not name.startswith("-")):
        assert f" {name} " in text
        assert "--json" in called(name, "--help").stdout


def test_compile_and_print_are_inverse(tmp_path: Path) -> None:
    (tmp_path / "f.text").write_text(TEXT)
    done = called("compile", tmp_path / "f.text", "-o", tmp_path / "f.fst")
    assert done.stderr == f"wrote {tmp_path / 'f.fst'}: 2 states, 2 arcs\n"
    assert done.stdout == ""
    assert called("print", tmp_path / "f.fst").stdout == TEXT
    assert called("print", tmp_path / "f.text").stdout == TEXT
    assert called("print", stdin=TEXT).stdout == TEXT
    assert called("print", "-", "-o", tmp_path / "g.txt", stdin=TEXT).stdout == ""
    assert (tmp_path / "g.txt").read_text() == TEXT


def test_streams_hold_what_openfst_reads_and_writes() -> None:
    f = from_openfst(to_openfst(random_fst(4)))
    compiled = called("compile", "--quiet", stdin=f.to_text()).stdout_bytes
    assert pywrapfst.equal(pywrapfst.Fst.read_from_string(compiled), to_openfst(f))
    assert called("print", stdin=to_openfst(f).write_to_string()).stdout == f.to_text()


def test_label_0_is_epsilon_whatever_its_name(tmp_path: Path) -> None:
    text, table = tmp_path / "f.text", tmp_path / "t.text"
    text.write_text("0 1 a b\n1\n")
    for symbols, warned in (
        ("a 0\nb 1\n", True),  # a vocabulary that is numbered from 0
        ("\ufeffa 0\nb 1\n", True),
        ("a 1\nb 2\n", False),
        ("\ufeff<eps> 0\r\na 1\r\nb 2\r\n", False),  # of Windows
        ("<epsilon> 0\na 1\nb 2\n", False),
    ):
        table.write_bytes(symbols.encode())
        options = ["--isymbols", table, "--osymbols", table, "-o", tmp_path / "f.fst"]
        assert ("'a'" in called("compile", text, *options).stderr) == warned
        paths = as_json("shortestpath", tmp_path / "f.fst")["paths"]
        assert paths[0]["output"] == "b"
        assert paths[0]["input"] == ("" if warned else "a")
    text.write_bytes("\ufeff0 1 7 7\n1\n".encode())
    assert as_json("compile", text)["states"] == 2


def test_compile_numbers_states_as_fstcompile_on_request() -> None:
    text = "7 3 1 1\n3 5 2 2\n5\n"
    compiler = pywrapfst.Compiler()
    compiler.write(text)
    renumbered = decode(called("compile", "-", "--renumber", stdin=text).stdout_bytes, "x")
    assert_same(renumbered, from_openfst(compiler.compile()))
    assert decode(called("compile", stdin=text).stdout_bytes, "x").start == 7


@pytest.mark.parametrize(
    ("given", "name"),
    [("standard", "tropical"), ("log", "log"), ("log64", "log64"), ("boolean", "boolean")],
)
def test_semirings_by_both_names(given: str, name: str) -> None:
    found = called("compile", "--semiring", given, stdin="0 0 1 1\n0\n").stdout_bytes
    assert decode(found, "x").semiring.name == name


def test_symbols(example: Path) -> None:
    text = called("print", example / "heard.fst").stdout
    assert text.startswith("0\t1\tAY\tAY\n1\t2\tN\tN\n")
    assert called("print", example / "heard.fst", "--acceptor").stdout.startswith("0\t1\tAY\n")
    numeric = called("print", example / "heard.fst", "--numeric").stdout
    assert numeric.startswith("0\t1\t1\t1\n")
    tables = ["--isymbols", EXAMPLE / "phones.txt", "--osymbols", EXAMPLE / "phones.txt"]
    assert called("print", *tables, stdin=numeric).stdout == text
    without = called("compile", *tables, "--no-keep-symbols", stdin=text).stdout_bytes
    assert decode(without, "x").isymbols is None


def test_k2_text() -> None:
    text = "0 1 1 2 0.5\n1 2 -1 -1 -0.25\n2\n"
    binary = called("compile", "--form", "k2", stdin=text).stdout_bytes
    assert called("print", stdin=binary).stdout == "0\t1\t1\t2\t-0.5\n1\t0.25\n"
    assert called("print", "--form", "k2", stdin=binary).stdout == text


def test_info(example: Path) -> None:
    found = as_json("info", example / "lexicon.fst")
    assert list(found)[:7] == [
        "states",
        "arcs",
        "start",
        "finals",
        "semiring",
        "acyclic",
        "connected",
    ]
    assert found["states"] == 13
    assert found["arcs"] == 19
    assert (found["start"], found["finals"], found["semiring"]) == (0, 1, "tropical")
    assert (found["acyclic"], found["connected"], found["acceptor"]) == (False, True, False)
    assert found["osymbols"] == {"name": str(EXAMPLE / "words.txt"), "symbols": 8}
    text = called("info", example / "lexicon.fst").stdout
    assert "words.txt, 8 symbols" in text
    assert as_json("info", stdin="0 1 1 1\n2\n")["connected"] is False


def test_the_worked_example(example: Path) -> None:
    done = called(
        "compose", example / "lexicon.fst", example / "grammar.fst", "-o", example / "LG.fst"
    )
    assert done.stdout == ""
    assert f"wrote {example / 'LG.fst'}: 20 states, 33 arcs, in " in done.stderr
    lattice = called("compose", example / "heard.fst", example / "LG.fst").stdout_bytes
    found = as_json("shortestpath", "-n", "3", stdin=lattice)
    assert found["paths"][0]["output"] == "I know I scream"
    assert found["paths"][0]["input"] == "AY N OW AY S K R IY M"
    assert found["paths"][0]["weight"] == pytest.approx(6.1)
    unique = as_json("shortestpath", "-n", "3", "--unique", stdin=lattice)
    assert len(unique["paths"]) == 1
    table = called("shortestpath", stdin=lattice).stdout
    assert "6.100   AY N OW AY S K R IY M   I know I scream" in table
    machine = called("shortestpath", "-o", "-", stdin=lattice).stdout_bytes
    assert shortest_distance(decode(machine, "x")) == pytest.approx(6.1)


def test_compose_and_its_options(tmp_path: Path) -> None:
    a, b = random_fst(1, states=30, arcs=90), random_fst(2, states=30, arcs=90)
    a.write(tmp_path / "a.fst")
    b.write(tmp_path / "b.txt")
    files = (tmp_path / "a.fst", tmp_path / "b.txt")
    expected = compose(a, b)
    for options in ([], ["--memory", "1G"], ["--max-states", "100000"]):
        assert called("compose", *files, *options).stdout_bytes == encode(expected)
    assert called("compose", files[0], "-", stdin=b.to_text()).stdout_bytes == encode(expected)
    trivial = called("compose", *files, "--filter", "match", "--no-connect").stdout_bytes
    assert_same(decode(trivial, "x"), compose(a, b, False, filter="match"))
    found = as_json("compose", *files, "-o", tmp_path / "c.fst")
    assert (found["states"], found["arcs"]) == (expected.num_states, expected.num_arcs)
    assert found["wrote"] == str(tmp_path / "c.fst")
    assert found["seconds"] > 0
    assert as_json("compose", *files)["wrote"] is None
    with pytest.raises(LimitError):
        called("compose", *files, "--max-states", "3")
    with pytest.raises(LimitError):
        called("compose", *files, "--memory", "10")


def oracle(name: str, *machines: Any, **options: Any) -> Any:
    """What OpenFST makes of the machines."""
    made = getattr(pywrapfst, name, None)
    if made is not None and name not in ("union", "concat", "closure", "connect", "arcsort"):
        return made(*machines, **options)
    first = machines[0].copy()
    getattr(first, name)(*machines[1:], **options)
    return first


# command, its options; OpenFST's options; how the machines must agree; the kind of machine
DAG = {"acceptor": True, "acyclic": True}
TO_FINAL = {"reweight_type": "to_final", "remove_total_weight": True}
OPERATIONS: list[tuple[str, list[str], dict[str, Any], str, dict[str, Any]]] = [
    ("union", [], {}, "isomorphic", {}),
    ("concat", [], {}, "isomorphic", {}),
    ("closure", [], {"closure_type": "star"}, "isomorphic", {}),
    ("closure", ["--closure-plus"], {"closure_type": "plus"}, "isomorphic", {}),
    ("reverse", [], {}, "isomorphic", {}),
    ("invert", [], {}, "isomorphic", {}),
    ("project", [], {"project_type": "input"}, "isomorphic", {}),
    ("project", ["--project-type", "output"], {"project_type": "output"}, "isomorphic", {}),
    ("connect", [], {}, "isomorphic", {}),
    ("arcsort", [], {"sort_type": "ilabel"}, "isomorphic", {}),
    ("arcsort", ["--sort-type", "olabel"], {"sort_type": "olabel"}, "isomorphic", {}),
    ("topsort", [], {}, "isomorphic", {"acyclic": True}),
    ("rmepsilon", [], {}, "isomorphic", {}),
    ("prune", ["--weight", "1"], {"weight": 1}, "isomorphic", {}),
    ("push", [], {"push_weights": True, "reweight_type": "to_initial"}, "equivalent", DAG),
    (
        "push",
        ["--reweight-type", "final", "--remove-total-weight"],
        {"push_weights": True, **TO_FINAL},
        "equivalent",
        DAG,
    ),
    ("compose", [], {}, "isomorphic", {}),
    ("intersect", [], {}, "isomorphic", {"acceptor": True}),
    ("difference", [], {}, "equivalent", DAG),
    ("determinize", [], {}, "equivalent", DAG),
    ("minimize", [], {}, "equivalent", DAG),
]


@pytest.mark.parametrize("row", OPERATIONS, ids=[" ".join([row[0], *row[1]]) for row in OPERATIONS])
def test_operations_do_what_openfst_does(row: Any, tmp_path: Path) -> None:
    command, options, theirs, sense, kind = row
    same = isomorphic if sense == "isomorphic" else equivalent
    for seed in range(4):
        a, b = (random_fst(10 * seed + k, **kind) for k in (1, 2))
        if command == "difference":
            b = determinize(rmepsilon(b.as_semiring("boolean"))).as_semiring("tropical")
        if command == "minimize":
            a = determinize(a)
        files = [tmp_path / "a.fst", tmp_path / "b.txt"]
        a.write(files[0])
        b.write(files[1])
        machines = [to_openfst(a), to_openfst(b)]
        if command not in ("compose", "intersect", "difference", "union", "concat"):
            files, machines = files[:1], machines[:1]
        elif command in ("compose", "intersect", "difference"):
            machines[1] = oracle("arcsort", machines[1], sort_type="ilabel")
        found = decode(called(command, *options, *files).stdout_bytes, "x")
        expected = from_openfst(oracle(command, *machines, **theirs))
        # OpenFST may not know that no arc enters the start, and then adds another one.
        if command != "union" or found.num_states == expected.num_states:
            assert same(found, expected, delta=1e-3), seed


def test_operations_are_all_compared() -> None:
    assert {row[0] for row in OPERATIONS} == {command.__name__ for command in COMMANDS}


def test_shortestdistance_and_cycles(tmp_path: Path) -> None:
    f = random_fst(3)
    for options, reverse in (([], False), (["--reverse"], True)):
        listed = called("shortestdistance", *options, stdin=f.to_text()).stdout.splitlines()
        expected = pywrapfst.shortestdistance(to_openfst(f), reverse=reverse)
        for at, weight in enumerate(expected):
            state, distance = listed[at].split("\t")
            assert int(state) == at
            assert float(distance) == pytest.approx(float(str(weight).replace("Infinity", "inf")))
        found = as_json("shortestdistance", *options, stdin=f.to_text())
        assert len(found["distances"]) == f.num_states
    with pytest.raises(InputError) as caught:
        called("topsort", stdin="0 0 1 1\n0\n")
    assert caught.value.code == "cyclic"


@pytest.mark.parametrize("command", ["determinize", "minimize", "rmepsilon"])
def test_simplifying_commands(command: str, tmp_path: Path) -> None:
    text = "0 1 1 1 0.5\n0 2 2 2 0.5\n1 3 4 4 1\n2 3 4 4 1\n3\n"
    out = called(command, "-o", tmp_path / "out.fst", stdin=text)
    assert out.stderr.startswith(f"wrote {tmp_path / 'out.fst'}: ")
    made = Fst.read(tmp_path / "out.fst")
    assert made.num_states == (3 if command == "minimize" else 4)
    assert as_json(command, stdin=text)["states"] == made.num_states
    called("equal", "-", tmp_path / "out.fst", "--sense", "equivalent", stdin=text)


def test_determinize_options() -> None:
    text = "0 1 1 1\n0 2 1 2\n1\n2\n"
    with pytest.raises(InputError) as caught:
        called("determinize", stdin=text)
    assert caught.value.code == "not-functional"
    (option,) = re.findall(r"--[a-z-]+", caught.value.remedy or "")
    assert as_json("determinize", option, stdin=text)["arcs"] == 2
    twins = "0 1 1 1\n0 2 1 1\n1 1 1 1 1\n2 2 1 1 2\n1\n2\n"  # no two cycles of one cost
    with pytest.raises(LimitError):
        called("determinize", "--max-states", "50", stdin=twins)


def test_randgen(tmp_path: Path) -> None:
    f = random_fst(3, states=6, arcs=14, acyclic=True)
    text = f.to_text()
    found = as_json("randgen", "-n", "20", "--seed", "4", "-o", tmp_path / "p.fst", stdin=text)
    assert len(found["paths"]) == 20
    again = as_json("randgen", "-n", "20", "--seed", "4", stdin=text)
    assert again["paths"] == found["paths"]
    listed = as_json("shortestpath", tmp_path / "p.fst", "-n", "20")
    for key in ("ilabels", "olabels"):
        assert sorted(path[key] for path in listed["paths"]) == sorted(
            path[key] for path in found["paths"]
        )
    assert sorted(path["weight"] for path in found["paths"]) == pytest.approx(
        [path["weight"] for path in listed["paths"]]
    )
    assert "cost" in called("randgen", "--weighting", "weight", stdin=text).stdout


def test_equivalence_of_transducers_by_exit_code(tmp_path: Path) -> None:
    texts = {
        "a": "0 1 1 2\n1 2 3 0\n2\n",
        "b": "0 1 1 0\n1 2 3 2\n2\n",
        "c": "0 1 1 0\n1 2 3 4\n2\n",
        "several": "0 0 1 2\n0 0 1 0\n0\n",
        "other": "0 0 1 0\n0 1 1 0\n1 0 0 2\n0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for x, y, code in (("a", "b", 0), ("b", "a", 0), ("a", "c", 1), ("several", "a", 1)):
        called("equal", tmp_path / x, tmp_path / y, "--sense", "equivalent", code=code)
    with pytest.raises(InputError) as caught:
        called("equal", tmp_path / "several", tmp_path / "other", "--sense", "equivalent")
    assert (caught.value.code, caught.value.exit_code) == ("undecidable", 2)


def test_equal_answers_by_exit_code(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    a.write_text("0 1 1 1\n0 2 2 2\n1\n2\n")
    b.write_text("0 2 1 1\n0 1 2 2\n1\n2\n")
    c.write_text("0 1 1 1\n0 1 2 2\n1\n")
    assert called("equal", a, a).stdout == "equal\n"
    done = called("equal", a, b, code=1)
    assert done.stdout == "different: arc 0 of state 0: destination 1 and 2\n"
    assert called("equal", a, b, "--sense", "isomorphic").stdout == "isomorphic\n"
    assert called("equal", a, c, "--sense", "isomorphic", code=1).stdout == "not isomorphic\n"
    assert called("equal", a, c, "--sense", "equivalent").stdout == "equivalent\n"
    assert as_json("equal", a, b, code=1) == {
        "equal": False,
        "sense": "exact",
        "difference": "arc 0 of state 0: destination 1 and 2",
    }


def test_first_difference_agrees_with_openfst() -> None:
    for seed in range(60):
        a, b = random_fst(seed, states=3, arcs=3), random_fst(seed, states=3, arcs=3)
        weight = b.weight.copy()
        if seed % 3 and len(weight):
            weight[-1] += 0.5 * 10.0 ** -(seed % 7)
        b = b.with_(weight=weight)
        same = pywrapfst.equal(to_openfst(a), to_openfst(b))
        assert (first_difference(a, b) is None) == same


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ("0 1 1 2 0.5\n0 1 3 0\n", "final weight of state 1: 0.25 and inf"),
        ("0 1 1 2 0.5\n0 1 3 0\n1 0.25\n2\n", "number of states: 2 and 3"),
        ("1 0.25\n0 1 1 2 0.5\n0 1 3 0\n", "start: 0 and 1"),
        ("0 1 1 2 0.5\n1 0.25\n", "number of arcs: 2 and 1"),
        ("0 1 1 2 0.5\n1 1 3 0\n1 0.25\n", "number of arcs of state 0: 2 and 1"),
        ("0 1 1 2 0.5\n0 1 4 0\n1 0.25\n", "arc 1 of state 0: ilabel 3 and 4"),
        ("0 1 1 2 0.6\n0 1 3 0\n1 0.25\n", "arc 0 of state 0: weight 0.5 and 0.6"),
    ],
)
def test_what_differs_is_named(changed: str, difference: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    found = as_json("equal", tmp_path / "a.txt", "-", stdin=changed, code=1)
    assert str(found["difference"]).startswith(difference)


def test_symbols_count_on_request(example: Path) -> None:
    bare = called("print", example / "heard.fst", "--numeric").stdout
    called("equal", "-", example / "heard.fst", stdin=bare)
    done = called("equal", "-", example / "heard.fst", "--symbols", stdin=bare, code=1)
    assert done.stdout == "different: tables of input symbols\n"


def test_draw(tmp_path: Path) -> None:
    done = called("draw", "-o", tmp_path / "f.svg", stdin=TEXT)
    assert done.stderr == f"wrote {tmp_path / 'f.svg'}\n"
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    assert called("draw", stdin=TEXT).stdout.startswith("digraph")
    assert as_json("draw", stdin=TEXT)["dot"].startswith("digraph")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10", 10), ("2G", 2 << 30), ("1.5GiB", 3 << 29), ("500m", 500 << 20), ("7KB", 7 << 10)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size(int, [SimpleNamespace(value=text)]) == expected


@pytest.mark.parametrize("text", ["", "G", "2X", "x"])
def test_no_sizes(text: str) -> None:
    assert called("compose", "a", "b", f"--memory={text}", code=2).stdout == ""


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input, line 1"):
        called("info", stdin="0 1 1\n")
    with pytest.raises(InputError, match="the file is empty"):
        called("info", stdin=b"")
    with pytest.raises(InputError, match="holds one transducer"):
        called("compose", "-", "-", stdin=TEXT)
    with pytest.raises(InputError, match="both the transducer and JSON"):
        called("rmepsilon", "-o", "-", "--json", stdin=TEXT)
    with pytest.raises(InputError, match="cannot be read"):
        called("info", tmp_path / "missing.fst")
    with pytest.raises(InputError, match="unknown semiring"):
        called("info", "--semiring", "vector", stdin=TEXT)
    assert called("compile", stdin="").stdout_bytes == encode(Fst.empty("tropical"))


def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.fst").write_bytes(b"\xd6\xfd\xb2\x7e\x06")
    with pytest.raises(SystemExit) as ended:
        cli.main(["fst", "info", str(tmp_path / "bad.fst"), "--json"])
    assert ended.value.code == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["kind"], error["place"]) == ("InputError", "byte 4")


def test_errors_of_an_operation_name_the_machines(tmp_path: Path) -> None:
    first, second = tmp_path / "first.fst", tmp_path / "second.fst"
    Fst.from_text(TEXT, "tropical").write(first)
    Fst.from_text(TEXT, "log").write(second)
    with pytest.raises(InputError, match=f"{first} and {second}: the semirings differ"):
        called("compose", first, second)
    both = Fst.build([(0, 1, 1, 0.0, 1), (0, 1, 2, 0.0, 1)], [1], semiring="tropical")
    both.write(first)
    with pytest.raises(InputError, match=f"{first}: the transducer gives two outputs"):
        called("determinize", first)
    names = tmp_path / "names.txt"
    names.write_text("<eps>\t0\na\t1\n")
    with pytest.raises(InputError, match=f"{first}: a label has no symbol"):
        called("print", first, "--isymbols", names, "--osymbols", names)


def test_packed_files_are_told_to_be_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "a.fst.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    with pytest.raises(InputError, match="gunzip"):
        called("info", packed)
