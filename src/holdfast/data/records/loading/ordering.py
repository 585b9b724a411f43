"""The order in which an epoch is seen, how it is dealt to ranks and workers, and what is left of it.

The order is a pure function of the seed, the epoch and how many images each record has: records are
permuted, then images are permuted inside windows of whole records. Ranks and workers cut it into
contiguous shards; they never change it. So a run that is resumed by other ranks or workers knows
which places of the order were seen, and deals the rest anew.

A *place* is a position in the order, 0 to N - 1; intervals are rows [start, stop) of an Int64 array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.data.records.arguments import check_choice, check_number
from holdfast.errors import InputError

Int64s: TypeAlias = npt.NDArray[np.int64]
Uneven: TypeAlias = Literal["keep", "pad", "drop"]

_WORD = (1 << 64) - 1
_RECORDS, _IMAGES = 1, 2  # what is permuted: each has separate random numbers


class Stretch(NamedTuple):
    """Images of one window, in order."""

    window: int
    images: Int64s
    """[n] numbers of images in the whole dataset."""


@dataclass(frozen=True)
class Order:
    """The order of one epoch; windows are permuted when they are asked for."""

    first: Int64s
    """[R + 1] number of each record's first image in the whole dataset; the last is N."""
    records: Int64s
    """[R] numbers of the records as they are permuted."""
    windows: Int64s
    """[W + 1] where in `records` each window begins."""
    edges: Int64s
    """[W + 1] the place at which each window begins; the last is N."""
    key: tuple[int, int]
    """Seed and epoch."""
    shuffle: bool

    def __len__(self) -> int:
        return int(self.edges[-1])

    def window(self, number: int) -> Int64s:
        """Numbers of the images of one window, in order."""
        records = self.records[self.windows[number] : self.windows[number + 1]]
        counts = self.first[records + 1] - self.first[records]
        before = np.cumsum(counts) - counts
        images: Int64s = np.repeat(self.first[records] - before, counts)
        images += np.arange(len(images))
        if self.shuffle:
            images = images[_permutation(len(images), *self.key, _IMAGES, number)]
        return images

    def stretches(self, intervals: Int64s) -> Iterator[Stretch]:
        """The images at some places, one stretch for each window that has any.

        Args:
            intervals: [m, 2] of places, ascending and disjoint.
        """
        number = -1
        stretches: list[Int64s] = []
        for start, stop in intervals.tolist():
            while start < stop:
                if not stretches or start >= self.edges[number + 1]:
                    if stretches:
                        yield Stretch(number, np.concatenate(stretches))
                    number = int(np.searchsorted(self.edges, start, side="right")) - 1
                    images, stretches = self.window(number), []
                begin = int(self.edges[number])
                stretches.append(images[start - begin : stop - begin])
                start += len(stretches[-1])
        if stretches:
            yield Stretch(number, np.concatenate(stretches))

    def numbers(self) -> Int64s:
        """[N] the whole order."""
        windows = [self.window(number) for number in range(len(self.windows) - 1)]
        return np.concatenate(windows) if windows else np.zeros(0, np.int64)


def epoch_order(
    counts: Sequence[int] | npt.NDArray[np.integer[Any]],
    *,
    seed: int = 0,
    epoch: int = 0,
    window: int = 1024,
    shuffle: bool = True,
) -> Order:
    """The order of one epoch.

    Args:
        counts: [R] images of each record, each at least 1.
        seed: any integer; its lowest 64 bits count.
        epoch: from 0.
        window: about how many images are permuted together. A window takes the records that begin
            within the next `window` places, so it has at least one record, and fewer than `window`
            images plus those of one record.
        shuffle: without it the images come as they are stored.

    Raises:
        InputError: if the window is smaller than one image.
    """
    check_number("window", window, 1)
    counts = np.asarray(counts, np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    key = (seed & _WORD, epoch & _WORD)
    records = np.arange(len(counts))
    if shuffle:
        records = records[_permutation(len(counts), *key, _RECORDS, 0)]
    starts = np.cumsum(counts[records]) - counts[records]  # [R] places at which records begin
    windows = np.flatnonzero(np.diff(starts // window, prepend=-1))
    return Order(
        first=first,
        records=records,
        windows=np.append(windows, len(counts)),
        edges=np.append(starts[windows], first[-1]),
        key=key,
        shuffle=shuffle,
    )


def _permutation(length: int, *key: int) -> Int64s:
    """A permutation out of the raw bits of PCG64, which NumPy keeps the same in all its versions."""
    bits = np.random.PCG64(np.random.SeedSequence(key)).random_raw(length)
    return np.argsort(bits, kind="stable")


@dataclass(frozen=True, slots=True)
class Deal:
    """How places are dealt: contiguous shards to ranks, whole batches of those to their workers.

    A rank's shard is a run of places; each of its workers takes a run of the shard's batches, and the
    batches are delivered in turns: worker 0, 1, .., 0, 1, ... Only the last one delivered may be smaller.

    Shards are contiguous so that few records are read twice: only a window that lies across the edge
    between two shards is read by both (each only the records it needs), which is at most one window
    for each of the ``ranks x workers - 1`` edges.

    Args:
        ranks: processes that train, each with its own loader.
        workers: processes that read for one rank, at least 1 (the rank's own process, if it has none).
        batch: images in a batch.
        uneven: what is done if the places cannot be shared out evenly. ``"keep"``: every place is seen
            once; ranks differ by at most one image, and have the same number of batches where that
            is possible (batches of at least two, and an image for each), for which a rank that has
            one image less splits its last batch. ``"pad"``: every rank has ceil(n / ranks) images;
            fewer than `ranks` places are seen twice, by two ranks. ``"drop"``: every rank has
            floor(n / ranks) images; fewer than `ranks` places are left out.
        drop_last: leave out a rank's last batch if it is smaller than the others.
    """

    ranks: int = 1
    workers: int = 1
    batch: int = 1
    uneven: Uneven = "keep"
    drop_last: bool = False

    def __post_init__(self) -> None:
        for name in ("ranks", "workers", "batch"):
            check_number(name, getattr(self, name), 1)
        check_choice("uneven", self.uneven, ("keep", "pad", "drop"))

    def shards(self, count: int) -> tuple[Int64s, Int64s, Int64s]:
        """What each rank has of `count` places.

        Returns:
            [ranks] first places, [ranks] numbers of images, [ranks] numbers of batches.
        """
        edges = np.arange(self.ranks + 1) * count // self.ranks
        sizes = np.diff(edges)
        if self.uneven == "pad":
            sizes[:] = -(-count // self.ranks)  # one more than its own is the next rank's first
        elif self.uneven == "drop":
            sizes[:] = count // self.ranks
        if self.drop_last:
            batches: Int64s = np.full(self.ranks, sizes.min() // self.batch)
            sizes = batches * self.batch
        else:
            batches = np.minimum(-(-sizes.max() // self.batch), sizes)
        return edges[:-1], sizes, batches

    def batches(self, count: int, rank: int) -> int:
        """How many batches a rank gets of `count` places."""
        return int(self.shards(count)[2][rank])

    def cuts(self, count: int, rank: int, worker: int, delivered: int = 0) -> Int64s:
        """Where the batches of one worker begin and end.

        Args:
            count: n, places that are dealt.
            rank: from 0.
            worker: from 0.
            delivered: how many batches of this rank were delivered before.

        Returns:
            [m + 1] places between 0 and n; batch i has the places from the i-th to the next.
        """
        starts, sizes, batches = (column[rank : rank + 1, None] for column in self.shards(count))
        first, have = self._share(batches, np.array([[worker]]))
        passed = np.minimum(_of_turn(delivered, worker, self.workers), have)
        numbers = np.arange(int((first + passed).item()), int((first + have).item()) + 1)
        made: Int64s = starts[0] + self._edge(numbers, sizes[0], batches[0])
        return made

    def seen(self, count: int, delivered: Sequence[int]) -> Int64s:
        """Which places were delivered.

        Args:
            count: n, places that were dealt.
            delivered: [ranks] batches that each rank delivered.

        Returns:
            [k, 2] intervals of places between 0 and n, ascending and disjoint.
        """
        starts, sizes, batches = (column[:, None] for column in self.shards(count))  # [ranks, 1]
        workers = np.arange(self.workers)[None, :]
        first, have = self._share(batches, workers)  # [ranks, workers]
        passed = np.minimum(
            _of_turn(np.asarray(delivered, np.int64)[:, None], workers, self.workers), have
        )
        begin = starts + self._edge(first, sizes, batches)
        end = starts + self._edge(first + passed, sizes, batches)
        return _union(np.stack([begin.ravel(), end.ravel()], 1))

    def _share(self, batches: Int64s, worker: Int64s) -> tuple[Int64s, Int64s]:
        """The first batch in the shard, and the number of batches, of a worker.

        The runs are laid so that the worker whose turn is last has the end of the shard.
        """
        each, more = batches // self.workers, batches % self.workers
        run = (worker - batches) % self.workers  # the worker's run, from the start of the shard
        longer = run - (self.workers - more)  # runs before it that have one more
        return run * each + np.maximum(longer, 0), each + (longer >= 0)

    def _edge(self, number: Int64s, size: Int64s, batches: Int64s) -> Int64s:
        """Where batch `number` of a shard begins: full batches, and one image for each that follows."""
        return np.minimum(number * self.batch, size - (batches - number))


def _of_turn(delivered: Any, worker: Any, workers: int) -> Any:
    """How many of the batches delivered in turns came from one worker."""
    return np.maximum((delivered - worker + workers - 1) // workers, 0)


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of an epoch that was run with one deal."""

    deal: Deal
    delivered: tuple[int, ...]
    """[ranks] batches that each rank delivered."""

    def to_dict(self) -> dict[str, Any]:
        """The leg as JSON."""
        return asdict(self.deal) | {"delivered": list(self.delivered)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Leg:
        """The leg that `to_dict` wrote.

        Raises:
            InputError: if it is none.
        """
        try:
            fields = dict(record)
            delivered = tuple(int(one) for one in fields.pop("delivered"))
            deal = Deal(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                "invalid state: a leg cannot be read",
                code="invalid-value",
                place="legs",
                found=repr(record),
            ) from error
        if len(delivered) != deal.ranks or min(delivered) < 0:
            raise InputError(
                "invalid state: a leg does not say what each rank delivered",
                code="invalid-value",
                place="legs",
                found=f"{list(delivered)} for {deal.ranks} ranks",
            )
        return cls(deal, delivered)


def remaining(count: int, legs: Sequence[Leg]) -> Int64s:
    """The places of an epoch that no leg has delivered.

    Args:
        count: N.
        legs: in the order in which they were run; each dealt what the ones before had left.

    Returns:
        [m, 2] intervals, ascending and disjoint; at most one more for each shard of each leg.
    """
    left = np.array([[0, count]] if count else np.zeros((0, 2)), np.int64)
    for leg in legs:
        left = _without(left, leg.deal.seen(length(left), leg.delivered))
    return left


def length(intervals: Int64s) -> int:
    """How many places lie in some intervals."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def within(intervals: Int64s, start: int, stop: int) -> Int64s:
    """The part of some intervals from their start-th place to before their stop-th."""
    sizes = intervals[:, 1] - intervals[:, 0]
    before = np.cumsum(sizes) - sizes
    begin = np.maximum(start - before, 0)
    end = np.minimum(stop - before, sizes)
    made: Int64s = (intervals[:, :1] + np.stack([begin, end], 1))[begin < end]
    return made


def _without(intervals: Int64s, taken: Int64s) -> Int64s:
    """Some intervals less the places that are counted out of them.

    Args:
        intervals: [m, 2]
        taken: [k, 2] counted along the intervals: 0 is the first place of the first interval.
    """
    sizes = intervals[:, 1] - intervals[:, 0]
    ends = np.cumsum(sizes)
    points = np.unique(np.concatenate([[0], ends, taken.ravel()]))
    begin, end = points[:-1], points[1:]  # each lies in one interval, and is taken or left whole
    last = np.searchsorted(taken[:, 0], begin, side="right") - 1
    free = (last < 0) | (begin >= taken[last, 1]) if len(taken) else np.ones(len(begin), bool)
    home = np.searchsorted(ends, begin, side="right")[free]
    shift = (intervals[:, 0] - (ends - sizes))[home]
    return np.stack([begin[free] + shift, end[free] + shift], 1)


def _union(intervals: Int64s) -> Int64s:
    """Disjoint, ascending, not empty intervals with the same places."""
    intervals = intervals[intervals[:, 0] < intervals[:, 1]]
    if not len(intervals):
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    opens = np.append(True, intervals[1:, 0] > reach[:-1])
    return np.stack([intervals[opens, 0], reach[np.append(opens[1:], True)]], 1)


def batches_of(intervals: Int64s, cuts: Int64s) -> Iterator[Int64s]:
    """The intervals of places of each batch, given where the batches are cut."""
    for start, stop in pairwise(cuts.tolist()):
        yield within(intervals, start, stop)
