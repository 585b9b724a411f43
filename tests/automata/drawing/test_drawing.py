"""Pictures: nothing lies on anything else, every arc leads where it should, nothing breaks out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from machines import random_fst

from holdfast.automata import Fst, SymbolTable
from holdfast.automata.drawing.labels import bundles, state_label
from holdfast.automata.drawing.layout import LINE, RADIUS, node_width, place, text_width
from holdfast.automata.drawing.pictures import draw, to_dot, to_svg
from holdfast.errors import InputError, LimitError

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("seed", range(40))
def test_states_and_labels_never_lie_on_each_other(seed: int) -> None:
    machine = random_fst(
        seed, states=2 + seed % 12, arcs=3 + 2 * (seed % 13), acyclic=seed % 2 == 0
    )
    drawn = bundles(machine)
    names = [state_label(machine, state) for state in range(machine.num_states)]
    layout = place(machine.num_states, machine.start, names, drawn)
    boxes = [
        (x - node_width(name) / 2, y - RADIUS, x + node_width(name) / 2, y + RADIUS)
        for name, (x, y) in zip(names, layout.states, strict=True)
    ]
    for one, route in zip(drawn, layout.routes, strict=True):
        x, y = route.label
        half = text_width(one.lines) / 2
        boxes.append((x - half, y - LINE * len(one.lines) + 2, x + half, y))
    for first, second in combinations(boxes, 2):
        apart_x = max(first[0], second[0]) >= min(first[2], second[2])
        apart_y = max(first[1], second[1]) >= min(first[3], second[3])
        assert apart_x or apart_y, (first, second)
    assert all(x0 >= 0 and y0 >= 0 for x0, y0, _, _ in boxes)
    assert all(x1 <= layout.width and y1 <= layout.height for _, _, x1, y1 in boxes)


@pytest.mark.parametrize("seed", range(20))
def test_every_line_runs_from_its_source_to_its_target(seed: int) -> None:
    machine = random_fst(seed, states=7, arcs=16)
    drawn = bundles(machine)
    layout = place(machine.num_states, machine.start, [""] * machine.num_states, drawn)
    assert sum(one.arcs for one in drawn) == machine.num_arcs
    for one, route in zip(drawn, layout.routes, strict=True):
        assert route.points[0] == layout.states[one.source]
        assert route.points[-1] == layout.states[one.target]
        # No turning back on the way: a reader follows it in one direction.
        steps = [after[0] - before[0] for before, after in pairwise(route.points)]
        assert all(step > 0 for step in steps) or all(step < 0 for step in steps)
    assert layout.states[machine.start][0] == min(x for x, _ in layout.states)


def test_what_users_name_their_symbols_stays_text(tmp_path: Path) -> None:
    table = SymbolTable.of(["<script>alert(1)</script>", 'a"b\\', "&amp;"])
    machine = Fst.build(
        [(0, 1, 1, 0.0, 1), (0, 2, 2, 0.0, 1), (1, 3, 3, 0.5, 1)],
        [1],
        isymbols=table,
        osymbols=table,
        semiring="log",
    )
    draw(machine, tmp_path / "x.svg")
    root = ET.fromstring((tmp_path / "x.svg").read_text(encoding="utf-8"))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "<script>alert(1)</script>" in texts
    assert "&amp;/0.5" in texts
    assert not list(root.iter(f"{SVG}script"))
    draw(machine, tmp_path / "x.dot")
    assert 'label = "a\\"b\\\\"' in (tmp_path / "x.dot").read_text(encoding="utf-8")


def test_an_svg_shows_every_state_and_final(tmp_path: Path) -> None:
    machine = random_fst(5, states=6, arcs=12)
    root = ET.fromstring(to_svg(machine))
    rings = [e for e in root.iter(f"{SVG}rect") if e.get("class") == "state"]
    assert len(rings) == machine.num_states + len(machine.finals)


def test_dot_has_a_line_for_each_state_and_arc() -> None:
    machine = random_fst(6, states=6, arcs=12)
    text = to_dot(machine)
    assert len(re.findall(r"^  \d+ \[", text, re.M)) == machine.num_states
    assert len(re.findall(r"^  \d+ -> \d+ \[", text, re.M)) == machine.num_arcs
    assert text.count("doublecircle") == len(machine.finals)


def test_parallel_arcs_are_one_line_and_the_rest_is_counted() -> None:
    machine = Fst.build([(0, label, label, 0.0, 1) for label in range(1, 11)], [1], semiring="log")
    (bundle,) = bundles(machine)
    assert bundle.lines == ("1", "2", "3", "… 7 more")


def test_an_empty_machine_is_a_sheet_of_paper() -> None:
    ET.fromstring(to_svg(Fst.empty(semiring="log")))
    assert Fst.empty(semiring="log")._repr_svg_()


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.svg"):
        draw(random_fst(1), tmp_path / "x.png")
    large = Fst.build([(s, 1, 1, 0.0, s + 1) for s in range(400)], [400], semiring="log")
    with pytest.raises(LimitError, match="401 states"):
        draw(large, tmp_path / "x.svg")
    assert large._repr_svg_() is None
