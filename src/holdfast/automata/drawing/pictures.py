"""Pictures of a machine: SVG, which needs no other program and follows light and dark; and Graphviz."""

from __future__ import annotations

from collections.abc import Set
from html import escape
from itertools import pairwise
from pathlib import Path

from holdfast.automata.drawing.labels import Bundle, arc_label, bundles, state_label
from holdfast.automata.drawing.layout import (
    LINE,
    LOOP,
    RADIUS,
    Layout,
    Point,
    Route,
    node_width,
    place,
)
from holdfast.automata.fst import Fst
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import counted

STYLE = """
.paper { fill: #ffffff } .line { fill: none; stroke: #4a5560; stroke-width: 1.3 }
.state { fill: #ffffff; stroke: #0072b2; stroke-width: 1.6 } .start .state { stroke-width: 3 }
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1a1f24;
  text-anchor: middle }
.head { fill: #4a5560 } .marked .line { stroke: #d55e00; stroke-width: 2.2 } text.mark { fill: #b34700 }
@media (prefers-color-scheme: dark) { .paper { fill: #14181c } .line { stroke: #a4afba }
  .state { fill: #14181c; stroke: #56b4e9 } text { fill: #e6ebf0 } .head { fill: #a4afba }
  .marked .line { stroke: #e69f00 } text.mark { fill: #e69f00 } }
"""


def to_svg(machine: Fst, marked: Set[int] = frozenset()) -> str:
    """The machine as an SVG picture: states from left to right, final states with two rings.

    Args:
        machine: what to draw.
        marked: numbers of arcs to be drawn in another colour.

    Raises:
        LimitError: if the machine is too large for a picture that anybody could read.
    """
    drawn = bundles(machine, marked)
    names = [state_label(machine, state) for state in range(machine.num_states)]
    layout = place(machine.num_states, machine.start, names, drawn)
    title = (
        f"{counted(machine.num_states, 'state')}, {counted(machine.num_arcs, 'arc')}, "
        f"{machine.semiring.name} semiring"
    )
    width, height = round(layout.width), round(layout.height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
            '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *(
                _bundle(one, route, layout, names)
                for one, route in zip(drawn, layout.routes, strict=True)
            ),
            *(_state(machine, state, layout, names[state]) for state in range(machine.num_states)),
            "</svg>\n",
        ]
    )


def _state(machine: Fst, state: int, layout: Layout, name: str) -> str:
    x, y = layout.states[state]
    half = node_width(name) / 2
    rings = [(half, RADIUS)]
    if machine.final[state] != machine.semiring.zero:
        rings.append((half - 3.5, RADIUS - 3.5))
    shapes = "".join(
        f'<rect class="state" x="{x - w:.1f}" y="{y - h:.1f}" width="{2 * w:.1f}" '
        f'height="{2 * h:.1f}" rx="{h:.1f}"/>'
        for w, h in rings
    )
    begins = state == machine.start
    if begins:
        arrow = f"M{x - half - 24:.1f} {y:.1f}H{x - half - 2:.1f}"
        shapes = f'<path class="line" marker-end="url(#head)" d="{arrow}"/>' + shapes
    kind = ' class="start"' if begins else ""
    return f'<g{kind}>{shapes}<text x="{x:.1f}" y="{y + 4:.1f}">{escape(name)}</text></g>'


def _bundle(one: Bundle, route: Route, layout: Layout, names: list[str]) -> str:
    if one.source == one.target:
        path = _loop(route.points[0])
    else:
        path = _curve(
            route.points, node_width(names[one.source]) / 2, node_width(names[one.target]) / 2
        )
    x, y = route.label
    kinds = ("plain", "mark")
    lines = "".join(
        f'<text class="{kinds[mark]}" x="{x:.1f}" '
        f'y="{y - LINE * (len(one.lines) - 1 - place):.1f}">{escape(line)}</text>'
        for place, (line, mark) in enumerate(zip(one.lines, one.marked, strict=True))
    )
    tip = f"{one.source} to {one.target}: {counted(one.arcs, 'arc')}"
    kind = ' class="marked"' if any(one.marked) else ""
    return (
        f'<g{kind}><title>{escape(tip)}</title><path class="line" marker-end="url(#head)" d="{path}"/>'
        f"{lines}</g>"
    )


def _loop(centre: Point) -> str:
    x, y = centre
    top = y - RADIUS - LOOP * 1.25
    return (
        f"M{x - 8:.1f} {y - RADIUS + 2:.1f}C{x - 20:.1f} {top:.1f} {x + 20:.1f} {top:.1f} "
        f"{x + 8:.1f} {y - RADIUS + 1:.1f}"
    )


def _curve(points: tuple[Point, ...], source_half: float, target_half: float) -> str:
    """A smooth line through the points that leaves and enters states at their sides."""
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    leaves = 1 if points[1][0] > first_x else -1
    enters = 1 if last_x > points[-2][0] else -1
    stops = [
        (first_x + leaves * source_half, first_y),
        *points[1:-1],
        (last_x - enters * (target_half + 2), last_y),
    ]
    path = f"M{stops[0][0]:.1f} {stops[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(stops):
        middle = (x0 + x1) / 2
        path += f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return path


def to_dot(machine: Fst) -> str:
    """The machine as a Graphviz digraph, as `fstdraw` would lay it out: left to right, finals doubled."""
    lines = ["digraph FST {", "  rankdir = LR;", '  node [shape = circle, fontname = "monospace"];']
    for state in range(machine.num_states):
        shape = "doublecircle" if machine.final[state] != machine.semiring.zero else "circle"
        style = ", style = bold" if state == machine.start else ""
        name = _quoted(state_label(machine, state))
        lines.append(f"  {state} [label = {name}, shape = {shape}{style}];")
    lines += [
        f"  {arc.source} -> {arc.nextstate} [label = {_quoted(arc_label(machine, arc))}];"
        for arc in machine.arcs()
    ]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


FORMATS = {".svg": to_svg, ".dot": to_dot, ".gv": to_dot}


def draw(machine: Fst, path: str | Path) -> None:
    """Write a picture of a machine: SVG or Graphviz's dot, as the name of the file ends.

    Raises:
        InputError: if the name ends in neither.
        LimitError: if the machine is too large for a picture that anybody could read (SVG only).
        HoldfastError: if the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise InputError(
            "unknown picture format",
            code="unknown-format",
            path=target,
            found=repr(target.suffix),
            expected=f"a name that ends in {', '.join(FORMATS)}",
        )
    write_whole(target, FORMATS[target.suffix](machine).encode())
