"""Weighted finite-state transducers, composed in parallel with OpenFST's answers.

    from holdfast import automata as fa
    lattice = fa.compose(fa.Fst.read("L.fst"), fa.Fst.read("G.fst"), threads=2)
    best = fa.shortest_path(lattice, n=10)

`Fst` is the data structure, `fst.py`; the packages are what is done with it. Names are imported when they
are first used; nothing here needs torch but `TensorFst` and `compose(..., device=...)`.
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
    from holdfast.automata.path_sums.best import paths, shortest_path
    from holdfast.automata.path_sums.counting import count_paths
    from holdfast.automata.path_sums.distances import (
        forward_score,
        shortest_distance,
        state_distances,
    )
    from holdfast.automata.path_sums.path import Path
    from holdfast.automata.path_sums.pruning import prune
    from holdfast.automata.path_sums.sampling import random_paths
    from holdfast.automata.semirings import SEMIRINGS, Semiring
    from holdfast.automata.simplifying.epsilons.removing import rmepsilon
    from holdfast.automata.simplifying.partitions.minimizing import minimize
    from holdfast.automata.simplifying.pushing import push
    from holdfast.automata.simplifying.subsets.determinizing import determinize
    from holdfast.automata.structure.components import (
        is_acyclic,
        strong_components,
        topological_order,
    )
    from holdfast.automata.structure.connecting import connect, is_connected
    from holdfast.automata.structure.reachability import accessible, coaccessible
    from holdfast.automata.symbols import SymbolTable

_HOMES = {
    "SEMIRINGS": "semirings",
    "Arc": "fst",
    "ArcMap": "composition.composing",
    "ComposedOnDemand": "composition.on_demand",
    "Fst": "fst",
    "Path": "path_sums.path",
    "Semiring": "semirings",
    "SymbolTable": "symbols",
    "TensorFst": "differentiable",
    "accessible": "structure.reachability",
    "arcsort": "algebra.sides",
    "closure": "algebra.rational",
    "coaccessible": "structure.reachability",
    "complement": "algebra.sets",
    "compose": "composition.composing",
    "compose_batch": "composition.batches",
    "compose_pruned": "composition.beams",
    "compose_tensors": "differentiable",
    "concat": "algebra.rational",
    "connect": "structure.connecting",
    "count_paths": "path_sums.counting",
    "describe": "describing",
    "determinize": "simplifying.subsets.determinizing",
    "difference": "algebra.sets",
    "draw": "drawing.pictures",
    "emissions": "differentiable",
    "equivalent": "algebra.equality",
    "first_difference": "comparing",
    "forward_score": "path_sums.distances",
    "intersect": "algebra.sets",
    "invert": "algebra.sides",
    "is_acyclic": "structure.components",
    "is_connected": "structure.connecting",
    "isomorphic": "algebra.isomorphism",
    "linear_emissions": "algebra.strings",
    "minimize": "simplifying.partitions.minimizing",
    "parse_k2": "formats.k2_text",
    "paths": "path_sums.best",
    "project": "algebra.sides",
    "prune": "path_sums.pruning",
    "push": "simplifying.pushing",
    "randequivalent": "algebra.equality",
    "random_paths": "path_sums.sampling",
    "read_symbols": "formats.symbol_tables",
    "render_k2": "formats.k2_text",
    "reverse": "algebra.sides",
    "rmepsilon": "simplifying.epsilons.removing",
    "shortest_distance": "path_sums.distances",
    "shortest_path": "path_sums.best",
    "state_distances": "path_sums.distances",
    "string_fst": "algebra.strings",
    "strong_components": "structure.components",
    "topological_order": "structure.components",
    "topsort": "algebra.sides",
    "trie": "algebra.strings",
    "union": "algebra.rational",
    "write_symbols": "formats.symbol_tables",
}

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
