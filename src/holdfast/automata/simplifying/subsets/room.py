"""The arrays of a subset construction, and how they grow."""

from __future__ import annotations

from typing import Any, NamedTuple


class Machine(NamedTuple):
    """What is made deterministic: V states, E arcs with labels 0 to L - 1."""

    offsets: Any
    """i64[V + 1]"""
    label: Any
    """i32[E], in any order."""
    olabel: Any
    """i32[E] output labels; empty for an acceptor."""
    nextstate: Any
    """i32[E]"""
    weight: Any
    """f64[E] costs; none is infinite."""
    final: Any
    """f64[V] costs; infinite where a state is not final."""


class Subsets(NamedTuple):
    """What has been made, with room for more; how much of it is used stands in counters.

    Subset s has the elements begin[s]:begin[s + 1], in the order in which their states were found, and the
    arcs arcs_begin[s]:arcs_begin[s + 1].
    """

    begin: Any
    """i64[S + 1]"""
    arcs_begin: Any
    """i64[S + 1]"""
    hashed: Any
    """u64[S] of its elements, whatever their order."""
    final: Any
    """f64[S] costs."""
    final_string: Any
    """i32[S] what output is still owed there."""
    element_state: Any
    """i32[X]"""
    element_string: Any
    """i32[X] what output the state owes."""
    element_cost: Any
    """f64[X] the residual."""
    label: Any
    """i32[A]"""
    string: Any
    """i32[A] the output of an arc."""
    nextstate: Any
    """i32[A]"""
    weight: Any
    """f64[A]"""
    slots: Any
    """i32[power of two] open addressing by hash: a subset + 1, or 0."""
    strings: Any
    """i32[N, 3] a tree; see `simplifying.strings`."""
    string_slots: Any
    """i32[power of two]"""
    string_count: Any
    """i64[1] how many strings there are."""


class Scratch(NamedTuple):
    """Room to work in."""

    bucket: Any
    """i64[L] how many arcs of a label there are, then where they end; 0 between two subsets."""
    touched: Any
    """i32[L] the labels of one subset."""
    target: Any
    """i32[G] what the arcs of one subset lead to, by label."""
    target_string: Any
    """i32[G]"""
    target_cost: Any
    """f64[G]"""
    seen: Any
    """i64[V] the last set of targets that the state was found in."""
    where: Any
    """i64[V] where among the elements it stands there."""
