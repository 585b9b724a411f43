"""Weighted finite-state transducers, composed with OpenFST's answers.

    from holdfast import automata as fa
    lattice = fa.compose(fa.Fst.read("L.fst"), fa.Fst.read("G.fst"))
    best = fa.shortest_path(lattice, n=10)

`Fst` is the data structure, `fst.py`; the packages are what is done with it. Names are imported when they
are first used; nothing here needs torch but the functions of `TensorFst`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.automata.algebra.equality import equivalent, randequivalent
    from holdfast.automata.algebra.isomorphism import isomorphic
    from holdfast.automata.algebra.rational import closure, concat, union
    from holdfast.automata.algebra.sets import complement, difference, intersect
    from holdfast.automata.algebra.sides import arcsort, invert, project, reverse, topsort
    from holdfast.automata.algebra.strings import linear_emissions, string_fst, trie
    from holdfast.automata.comparing import first_difference
    from holdfast.automata.composition.batches import compose_batch
    from holdfast.automata.composition.beams import compose_pruned
    from holdfast.automata.composition.composing import ArcMap, compose
    from holdfast.automata.composition.on_demand import ComposedOnDemand
    from holdfast.automata.describing import describe
    from holdfast.automata.differentiable import TensorFst, compose_tensors, emissions
    from holdfast.automata.drawing.pictures import draw
    from holdfast.automata.formats.k2_text import parse_k2, render_k2
    from holdfast.automata.formats.symbol_tables import read_symbols, write_symbols
    from holdfast.automata.fst import Arc, Fst
    from holdfast.automata.path_sums.best import paths, prune, shortest_path
    from holdfast.automata.path_sums.counting import count_paths
    from holdfast.automata.path_sums.distances import (
        forward_score,
        shortest_distance,
        state_distances,
    )
    from holdfast.automata.path_sums.path import Path
    from holdfast.automata.path_sums.sampling import random_paths
    from holdfast.automata.semirings import SEMIRINGS, Semiring
    from holdfast.automata.simplifying.epsilon_removal import rmepsilon
    from holdfast.automata.simplifying.minimization import minimize
    from holdfast.automata.simplifying.pushing import push
    from holdfast.automata.simplifying.subsets.determinizing import determinize
    from holdfast.automata.structure import (
        accessible,
        coaccessible,
        connect,
        is_acyclic,
        is_connected,
        strong_components,
        topological_order,
    )
    from holdfast.automata.symbols import SymbolTable

_NAMES = {
    "algebra.equality": "equivalent randequivalent",
    "algebra.isomorphism": "isomorphic",
    "algebra.rational": "closure concat union",
    "algebra.sets": "complement difference intersect",
    "algebra.sides": "arcsort invert project reverse topsort",
    "algebra.strings": "linear_emissions string_fst trie",
    "comparing": "first_difference",
    "composition.batches": "compose_batch",
    "composition.beams": "compose_pruned",
    "composition.composing": "ArcMap compose",
    "composition.on_demand": "ComposedOnDemand",
    "describing": "describe",
    "differentiable": "TensorFst compose_tensors emissions",
    "drawing.pictures": "draw",
    "formats.k2_text": "parse_k2 render_k2",
    "formats.symbol_tables": "read_symbols write_symbols",
    "fst": "Arc Fst",
    "path_sums.best": "paths prune shortest_path",
    "path_sums.counting": "count_paths",
    "path_sums.distances": "forward_score shortest_distance state_distances",
    "path_sums.path": "Path",
    "path_sums.sampling": "random_paths",
    "semirings": "SEMIRINGS Semiring",
    "simplifying.epsilon_removal": "rmepsilon",
    "simplifying.minimization": "minimize",
    "simplifying.pushing": "push",
    "simplifying.subsets.determinizing": "determinize",
    "structure": "accessible coaccessible connect is_acyclic is_connected strong_components "
    "topological_order",
    "symbols": "SymbolTable",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "SEMIRINGS",
    "Arc",
    "ArcMap",
    "ComposedOnDemand",
    "Fst",
    "Path",
    "Semiring",
    "SymbolTable",
    "TensorFst",
    "accessible",
    "arcsort",
    "closure",
    "coaccessible",
    "complement",
    "compose",
    "compose_batch",
    "compose_pruned",
    "compose_tensors",
    "concat",
    "connect",
    "count_paths",
    "describe",
    "determinize",
    "difference",
    "draw",
    "emissions",
    "equivalent",
    "first_difference",
    "forward_score",
    "intersect",
    "invert",
    "is_acyclic",
    "is_connected",
    "isomorphic",
    "linear_emissions",
    "minimize",
    "parse_k2",
    "paths",
    "project",
    "prune",
    "push",
    "randequivalent",
    "random_paths",
    "read_symbols",
    "render_k2",
    "reverse",
    "rmepsilon",
    "shortest_distance",
    "shortest_path",
    "state_distances",
    "string_fst",
    "strong_components",
    "topological_order",
    "topsort",
    "trie",
    "union",
    "write_symbols",
]

__getattr__ = lazily(__name__, _HOMES)
