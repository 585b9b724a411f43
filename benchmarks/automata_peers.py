"""Who composes transducers beside holdfast: OpenFST and its relatives, called alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.automata import Fst
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.matching import sides


@dataclass(frozen=True)
class Peer:
    """One library; every function takes machines as that library holds them."""

    name: str
    distribution: str
    read: Callable[[Path], Any]
    """From OpenFST's binary format."""
    sort: Callable[[Any, Any], None]
    """A by output label, B by input label; what is made is kept with the machines."""
    compose: Callable[[Any, Any], Any]
    """With the epsilon filter called sequence, and connected."""
    size: Callable[[Any], tuple[int, int]]
    """States and arcs."""
    fresh: Callable[[Any], Any] = lambda machine: machine
    """A copy without what earlier calls left at the machine."""


def ours() -> Peer:
    """Holdfast itself, called like the others."""

    def sort(a: Fst, b: Fst) -> None:
        # What is kept with a machine for all its compositions: sorted arcs, and an index of them.
        sides(a, b, mapped=False)

    return Peer(
        "holdfast",
        "holdfast",
        Fst.read,
        sort,
        compose,
        lambda f: (f.num_states, f.num_arcs),
        Fst.with_,
    )


def _pywrapfst() -> Peer:
    import pywrapfst

    def sort(a: Any, b: Any) -> None:
        a.arcsort("olabel")
        b.arcsort("ilabel")

    def size(f: Any) -> tuple[int, int]:
        states = f.num_states()
        return states, sum(map(f.num_arcs, range(states)))

    return Peer(
        "OpenFST",
        "pynini",
        lambda path: pywrapfst.Fst.read(str(path)),
        sort,
        lambda a, b: pywrapfst.compose(a, b, connect=True),
        size,
    )


def _rustfst() -> Peer:
    from rustfst import VectorFst

    def sort(a: Any, b: Any) -> None:
        a.tr_sort(ilabel_cmp=False)
        b.tr_sort(ilabel_cmp=True)

    def size(f: Any) -> tuple[int, int]:
        states = f.num_states()
        return states, sum(map(f.num_trs, range(states)))

    return Peer("rustfst", "rustfst-python", VectorFst.read, sort, lambda a, b: a.compose(b), size)


def _kaldifst() -> Peer:
    import kaldifst

    def sort(a: Any, b: Any) -> None:
        kaldifst.arcsort(a, "olabel")
        kaldifst.arcsort(b, "ilabel")

    def size(f: Any) -> tuple[int, int]:
        states = f.num_states
        return states, sum(map(f.num_arcs, range(states)))

    return Peer(
        "kaldifst",
        "kaldifst",
        lambda path: kaldifst.StdVectorFst.read(str(path)),
        sort,
        lambda a, b: kaldifst.compose(a, b, compose_filter="sequence", connect=True),
        size,
    )


_MAKERS = {"pywrapfst": _pywrapfst, "rustfst": _rustfst, "kaldifst": _kaldifst}


def installed() -> list[Peer]:
    """The peers that are there; OpenFST first."""
    return [make() for module, make in _MAKERS.items() if find_spec(module)]


def versions(peers: list[Peer]) -> dict[str, str]:
    """Name of the distribution -> version."""
    return {peer.distribution: version(peer.distribution) for peer in peers}


def carried(pair: tuple[Fst, Fst], peer: Peer, folder: Path) -> tuple[Any, Any]:
    """The pair as the peer holds it, through files."""
    read = []
    for name, machine in zip("ab", pair, strict=True):
        path = folder / f"{name}.fst"
        machine.write(path)
        read.append(peer.read(path))
        path.unlink()
    return read[0], read[1]
