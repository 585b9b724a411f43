"""`Fst`, the data structure of this room: a weighted finite-state transducer as a struct of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.automata import _kernels as kernels
from holdfast.automata.arguments import invalid
from holdfast.automata.semirings import Semiring, check_weights, converted, semiring_of
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError, LimitError

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Weights = npt.NDArray[np.floating[Any]]

VALUE = "invalid-value"
EPS = 0
NO_STATE = -1


class Arc(NamedTuple):
    """One arc, as Python sees it."""

    source: int
    ilabel: int
    olabel: int
    weight: float
    nextstate: int


class SortedView(NamedTuple):
    """The arcs of each state sorted by one label, equal labels in their stored order.

    The arcs of state s are positions offsets[s]:offsets[s + 1] here as in the `Fst`.
    """

    label: I32
    """[E] the label sorted by."""
    other: I32
    """[E] the label on the other side."""
    nextstate: I32
    """[E]"""
    weight: Weights
    """[E]"""
    arc: I64
    """[E] the arc's position in the `Fst`."""
    epsilons: I32
    """[V] how many of a state's arcs have label 0: they come first."""


@dataclass(frozen=True, eq=False)
class Fst:
    """A weighted finite-state transducer. V states, E arcs; label 0 is epsilon.

    The arcs that leave state s are `offsets[s]:offsets[s + 1]` of the arrays of arcs. A machine never
    changes: its arrays are read-only (those passed in are copied if they are not), so machines can share
    them, and every operation makes a new machine.

    Raises:
        InputError: if the arrays are not a machine, naming the arc or state: offsets that do not fit, a
            negative label, a state that does not exist, a weight that is NaN or -inf, no start state.
    """

    offsets: I64
    """[V + 1] where the arcs of each state begin; offsets[0] = 0, offsets[V] = E."""
    ilabel: I32
    """[E] input labels."""
    olabel: I32
    """[E] output labels."""
    nextstate: I32
    """[E] the states that the arcs enter."""
    weight: Weights
    """[E] of the semiring's dtype."""
    final: Weights
    """[V] final weights; the semiring's zero where a state is not final."""
    start: int
    """The start state; -1 for the machine without states, which accepts nothing."""
    semiring: Semiring
    isymbols: SymbolTable | None = None
    """Names of the input labels."""
    osymbols: SymbolTable | None = None
    """Names of the output labels."""

    # --- making ------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        real = self.semiring.dtype
        dtypes = (np.int64, np.int32, np.int32, np.int32, real, real)
        for name, dtype in zip(_FIELDS, dtypes, strict=False):
            object.__setattr__(self, name, _own(name, getattr(self, name), dtype))
        self.checked()

    @classmethod
    def trusted(cls, *fields: Any) -> Fst:
        """A machine of arrays that an operation made: they are valid, and nobody else will write to them.

        The fields of the constructor in its order; nothing is copied, converted or checked.
        """
        machine = object.__new__(cls)
        for field, value in zip_longest(_FIELDS, fields):
            object.__setattr__(machine, field, locked(value))
        return machine

    @classmethod
    def build(
        cls,
        arcs: Iterable[Sequence[Any]],
        finals: dict[int, float] | Iterable[int],
        *,
        start: int = 0,
        states: int | None = None,
        semiring: str | Semiring = "tropical",
        isymbols: SymbolTable | None = None,
        osymbols: SymbolTable | None = None,
    ) -> Fst:
        """A machine from arcs (source, ilabel, olabel, weight, nextstate) in any order.

        Args:
            arcs: arcs; those of one state keep their order.
            finals: final weights by state, or the final states, whose weight is then one.
            start: the start state.
            states: the number of states; one more than the highest named, if not given.
            semiring: name or semiring.
            isymbols: names of the input labels.
            osymbols: names of the output labels.

        Raises:
            InputError: if a label or state is negative, a weight is not a number, ... (see `Fst`).
        """
        ring = semiring_of(semiring)
        listed = list(arcs)
        source, ilabel, olabel, weight, nextstate = _columns(listed)
        weights = finals if isinstance(finals, dict) else dict.fromkeys(finals, ring.one)
        highest = [int(column.max()) for column in (source, nextstate) if len(column)]
        count = max([start, *weights, *highest]) + 1 if states is None else states
        if count < 0:
            raise invalid("number of states", count, "0 or more")
        for what, named in (("source", source), ("final state", list(weights))):
            low, high = (min(named), max(named)) if len(named) else (0, -1)
            if low < 0 or high >= count:
                raise invalid(what, f"state {int(low if low < 0 else high)}", f"0 to {count - 1}")
        offsets, order = kernels.counting_order(source, count)
        final = np.full(count, ring.zero, ring.dtype)
        for state, last in weights.items():
            final[state] = last
        return cls(
            offsets,
            ilabel[order].astype(np.int32),
            olabel[order].astype(np.int32),
            nextstate[order].astype(np.int32),
            weight[order].astype(ring.dtype),
            final,
            start,
            ring,
            isymbols,
            osymbols,
        )

    @classmethod
    def empty(
        cls,
        semiring: str | Semiring = "tropical",
        isymbols: SymbolTable | None = None,
        osymbols: SymbolTable | None = None,
    ) -> Fst:
        """The machine without states, which accepts nothing."""
        ring = semiring_of(semiring)
        none = np.empty(0, np.int32)
        weights = np.empty(0, ring.dtype)
        return cls.trusted(
            np.zeros(1, np.int64),
            none,
            none,
            none,
            weights,
            weights,
            NO_STATE,
            ring,
            isymbols,
            osymbols,
        )

    @classmethod
    def from_text(
        cls,
        text: str,
        semiring: str | Semiring = "tropical",
        *,
        isymbols: SymbolTable | None = None,
        osymbols: SymbolTable | None = None,
        acceptor: bool = False,
    ) -> Fst:
        """A machine from OpenFST's text; see `formats.openfst_text.parse`."""
        from holdfast.automata.formats.openfst_text import parse

        return parse(text, semiring, isymbols=isymbols, osymbols=osymbols, acceptor=acceptor)

    @classmethod
    def read(cls, path: str | Path, semiring: str | Semiring = "tropical") -> Fst:
        """A machine from a file, binary or text as its first bytes tell; see `formats.files.read`.

        A binary file names its own semiring; `semiring` is that of a text.
        """
        from holdfast.automata.formats.files import read

        return read(path, semiring)

    def write(self, path: str | Path) -> None:
        """Write OpenFST's binary format, or text if the name ends in `.txt`; see `formats.files.write`."""
        from holdfast.automata.formats.files import write

        write(self, path)

    def to_text(self, acceptor: bool | None = None) -> str:
        """OpenFST's text, as `fstprint` writes it; see `formats.openfst_text.render`."""
        from holdfast.automata.formats.openfst_text import render

        return render(self, acceptor)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy make writable arrays: the copy locks them, and derives again what it derives.
        return Fst.trusted, tuple(getattr(self, name) for name in _FIELDS)

    def __copy__(self) -> Fst:
        return self

    def __deepcopy__(self, _: Any) -> Fst:
        return self  # nothing in it changes

    # --- looking -----------------------------------------------------------------------------------

    @property
    def num_states(self) -> int:
        """V."""
        return len(self.offsets) - 1

    @property
    def num_arcs(self) -> int:
        """E."""
        return len(self.ilabel)

    @property
    def finals(self) -> dict[int, float]:
        """State -> final weight, of the final states only."""
        where = np.flatnonzero(self.final != self.semiring.zero)
        return dict(zip(where.tolist(), self.final[where].tolist(), strict=True))

    @property
    def is_acceptor(self) -> bool:
        """Every arc has the same label on both sides."""
        return bool(np.array_equal(self.ilabel, self.olabel))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(getattr(self, name).nbytes for name in _FIELDS[:6])

    def arcs(self, state: int | None = None) -> Iterator[Arc]:
        """The arcs of one state, or all; for looking and for tests, not for speed."""
        states = range(self.num_states) if state is None else (state,)
        for source in states:
            own = slice(*self.offsets[source : source + 2])
            columns = (self.ilabel, self.olabel, self.weight, self.nextstate)
            for row in zip(*(column[own].tolist() for column in columns), strict=True):
                yield Arc(source, *row)

    @cached_property
    def source(self) -> I32:
        """[E] the state that each arc leaves."""
        sources: I32 = locked(kernels.sources_of_arcs(self.offsets, self.num_arcs))
        return sources

    @cached_property
    def by_ilabel(self) -> SortedView:
        """The arcs sorted by input label."""
        return self._sorted(self.ilabel, self.olabel)

    @cached_property
    def by_olabel(self) -> SortedView:
        """The arcs sorted by output label."""
        return self._sorted(self.olabel, self.ilabel)

    def _sorted(self, label: I32, other: I32) -> SortedView:
        # Memory traffic counts here: what is sorted already is not copied.
        columns = (label, other, self.nextstate, self.weight)
        if kernels.is_sorted(self.offsets, label):
            arc = np.arange(self.num_arcs)
        else:
            arc = kernels.order_by_label(self.offsets, label)
            columns = (label[arc], other[arc], self.nextstate[arc], self.weight[arc])
        epsilons = kernels.zeros_by_state(self.offsets, label)
        return SortedView(*map(locked, (*columns, arc, epsilons)))

    def _repr_svg_(self) -> str | None:
        """A picture in a notebook; nothing for machines too large for one."""
        from holdfast.automata.drawing.pictures import to_svg

        try:
            return to_svg(self)
        except LimitError:
            return None

    def __repr__(self) -> str:
        return f"Fst({self.num_states} states, {self.num_arcs} arcs, {self.semiring.name})"

    # --- changing ----------------------------------------------------------------------------------

    def with_(self, **changed: Any) -> Fst:
        """The same machine with some fields exchanged; see `Fst` for what is copied and refused."""
        if changed.keys() <= {"isymbols", "osymbols"}:
            return self.with_trusted(**changed)
        return replace(self, **changed)

    def with_trusted(self, **changed: Any) -> Fst:
        """The same with fields that an operation made; see `trusted`."""
        return self.trusted(*(changed.get(name, getattr(self, name)) for name in _FIELDS))

    def as_semiring(self, semiring: str | Semiring) -> Fst:
        """The same machine with its weights read in another semiring.

        Costs stay costs, and are -log of a probability; in the boolean semiring every weight that is not
        zero becomes one.
        """
        ring = semiring_of(semiring)
        if ring == self.semiring:
            return self
        return self.with_trusted(
            weight=converted(self.weight, self.semiring, ring),
            final=converted(self.final, self.semiring, ring),
            semiring=ring,
        )

    def checked(self) -> Fst:
        """This machine, if it is one; linear in states and arcs.

        Raises:
            InputError: see `Fst`.
        """
        count, arcs = self.num_states, self.num_arcs
        for name, found, wanted in (
            ("olabel", len(self.olabel), arcs),
            ("nextstate", len(self.nextstate), arcs),
            ("weight", len(self.weight), arcs),
            ("final", len(self.final), count),
            ("last offset", int(self.offsets[-1]) if count >= 0 else -1, arcs),
        ):
            if found != wanted:
                raise invalid(name, found, f"{wanted}: as many as there are", code=VALUE)
        if self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise invalid("offsets", "a descent or no 0", "0 and then no descent", code=VALUE)
        lowest, highest = (0, count - 1) if count else (NO_STATE, NO_STATE)
        if not lowest <= self.start <= highest:
            expected = f"0 to {highest}" if count else f"{NO_STATE}, as there are no states"
            raise invalid("start state", f"state {self.start}", expected, code=VALUE)
        for name, values, high in (
            ("ilabel", self.ilabel, np.inf),
            ("olabel", self.olabel, np.inf),
            ("nextstate", self.nextstate, count - 1),
        ):
            # The extremes first: they take no memory.
            if not arcs or (values.min() >= 0 and values.max() <= high):
                continue
            at = int(np.argmax((values < 0) | (values > high)))
            state = int(np.searchsorted(self.offsets, at, "right")) - 1
            raise invalid(
                name,
                int(values[at]),
                "0 or more" if high == np.inf else f"0 to {high}",
                place=f"arc {at} of state {state}",
                code=VALUE,
            )
        check_weights(self.weight, self.semiring, "arc")
        check_weights(self.final, self.semiring, "final weight of state")
        return self


_FIELDS = tuple(field.name for field in fields(Fst))


def locked(value: Any) -> Any:
    """A read-only view of an array, which shares its memory; anything else as it is."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def _own(name: str, values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A column of a machine as a locked array of its dtype that nobody else can write to."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.ndim != 1:
        raise invalid(name, f"shape {array.shape}", "one axis", code=VALUE)
    if array.dtype == dtype:
        # Others could write to it through their name for it, unless it is read-only already.
        own: npt.NDArray[Any] = locked(array.copy() if array.flags.writeable else array)
        return own
    with np.errstate(invalid="ignore", over="ignore"):
        made: npt.NDArray[Any] = locked(array.astype(dtype))
    if made.dtype.kind == "i" and not np.array_equal(made, array):
        at = int(np.argmax(made != array))
        raise invalid(
            name,
            array[at],
            f"a whole number of {made.dtype}",
            place=f"entry {at}",
            code=VALUE,
        )
    return made


def _is_arc(arc: Any) -> bool:
    try:
        return np.array(arc, np.float64).shape == (5,)
    except (TypeError, ValueError, OverflowError):
        return False


def _columns(arcs: list[Sequence[Any]]) -> list[npt.NDArray[Any]]:
    """Sources, labels and next states as int64 that int32 holds, weights as float64.

    Raises:
        InputError: naming the arc that is none.
    """
    try:
        table = np.array(arcs, np.float64).reshape(len(arcs), 5)
    except (TypeError, ValueError, OverflowError):
        at = next((at for at, arc in enumerate(arcs) if not _is_arc(arc)), 0)
        raise InputError(
            "an arc must be five numbers",
            code="invalid-value",
            place=f"arc {at} of those given",
            found=repr(arcs[at]),
            expected="(source, ilabel, olabel, weight, nextstate)",
            remedy="look symbols up first: SymbolTable.label",
        ) from None
    columns: list[npt.NDArray[Any]] = []
    for k, what in enumerate(("source", "ilabel", "olabel", "weight", "nextstate")):
        column = table[:, k]
        if what != "weight":
            wrong = (column != np.floor(column)) | (np.abs(column) > np.iinfo(np.int32).max)
            if wrong.any():
                at = int(np.argmax(wrong))
                raise invalid(
                    what,
                    arcs[at][k],
                    "a whole number from 0 to 2147483647",
                    place=f"arc {at} of those given",
                    code=VALUE,
                )
            column = column.astype(np.int64)
        columns.append(column)
    return columns
