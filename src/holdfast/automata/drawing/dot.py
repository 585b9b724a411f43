"""A machine in the language of Graphviz."""

from __future__ import annotations

from holdfast.automata.drawing.labels import arc_label, state_label
from holdfast.automata.fst import Fst


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
