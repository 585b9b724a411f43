"""Batches for training: torch's DataLoader with an exact state in mid-epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

from holdfast.data.records.loading.dataset import Dataset
from holdfast.data.records.loading.ordering import Deal
from holdfast.data.records.loading.resuming import Cursor
from holdfast.data.records.loading.traffic import Traffic
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
    from torch.utils.data import DataLoader, default_collate
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


class Collate:
    """Items -> batch; None where damage has left no item.

    Args:
        collate: what makes a batch of at least one item.
    """

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, items: list[Any]) -> Any:
        """The batch.

        Raises:
            MissingValue: a column is null in an item, which torch cannot stack.
            MixedSizes: if torch cannot stack the images.
        """
        try:
            return self._collate(items) if items else None
        except (RuntimeError, TypeError):
            _check_values(items)
            _check_sizes(items)
            raise


class MixedSizes(InputError):
    """Images of different sizes in one batch."""

    kind = "mixed-sizes"

    def __init__(self, problem: str, **details: Any) -> None:
        # A torch worker's error is built anew from its text and traceback: the code must not get lost
        # there, nor the text between the lines of the traceback.
        problem = problem.rpartition(f"{type(self).__name__}: ")[2]
        super().__init__(problem, **{"code": self.kind, **details})


class MissingValue(MixedSizes):
    """A column that is null in an item of a batch."""

    kind = "missing-value"


def _check_values(items: list[Any]) -> None:
    for number, item in enumerate(items):
        for name, value in item.items() if isinstance(item, Mapping) else ():
            if value is None:
                raise MissingValue(
                    "a missing value cannot be stacked into a batch",
                    place=f"column {name}",
                    found=f"null in {_name(item, number)}",
                    remedy="Dataset(..., columns=[...]) without it; or collate_fn=list to keep a list",
                )


def _check_sizes(items: list[Any]) -> None:
    shapes = {
        number: tuple(image.shape)
        for number, item in enumerate(items)
        for image in [_image_of(item)]
        if image is not None
    }
    for number, shape in shapes.items():
        if shape != shapes[next(iter(shapes))]:
            pair = (next(iter(shapes)), number)
            raise MixedSizes(
                "images of different sizes cannot be stacked into a batch",
                place="image",
                found=" and ".join(f"{_name(items[one], one)} {list(shapes[one])}" for one in pair),
                expected="images of one size [3, H, W]",
                remedy="Dataset(..., crop=224) or resize=(H, W); or collate_fn=list to keep a list",
            )


def _image_of(item: Any) -> torch.Tensor | None:
    """The image of an item, or of what a transform made of it."""
    if isinstance(item, Mapping):
        item = item.get("image")
    parts = item if isinstance(item, (tuple, list)) else [item]
    return next((part for part in parts if isinstance(part, torch.Tensor)), None)


def _name(item: Any, number: int) -> str:
    return str(item["id"]) if isinstance(item, Mapping) and "id" in item else f"number {number}"


class Loader(DataLoader):  # type: ignore[misc]
    """Batches of a dataset, in an order that is known however many workers there are.

    Each epoch is dealt to ranks and workers in whole batches; only a rank's last one may be smaller (its
    last two, with ``uneven="keep"``, where that keeps ranks at the same number of batches). The state
    counts batches that were delivered, not those that workers have ready. An iteration that reaches its
    end moves on to the next epoch by itself.

    A batch from which damaged images were left out is smaller; one of which none is left is passed over.

    Args:
        dataset: what is read; its settings (`set_fidelity` ...) hold for the loader too.
        batch_size: images in a batch of this rank.
        num_workers: processes that read; 0 reads on threads of this process. For object stores and web
            servers they are started by ``"forkserver"``, so a script guards its main part as
            `multiprocessing` asks, and transforms can be pickled.
        drop_last: leave out a last batch that is smaller; ranks then have equally many batches.
        collate_fn: items -> batch; None for torch's, which stacks images of one size.
        options: of `DataLoader`: `pin_memory`, `prefetch_factor`, `persistent_workers` ...

    Raises:
        InputError: if an option would take the order away from the dataset.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        num_workers: int = 0,
        *,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        for name in ("sampler", "batch_sampler", "shuffle"):
            if options.pop(name, None):
                raise InputError(
                    "the dataset sets the order itself",
                    code="unsupported",
                    place=name,
                    remedy="Dataset(..., shuffle=, seed=), or DataLoader(dataset.indexed(), sampler=)",
                )
        if num_workers and not dataset.records.store.fork_safe:
            options.setdefault("multiprocessing_context", "forkserver")
        self._cursor = Cursor()
        view = dataset.in_batches(batch_size, drop_last)
        super().__init__(
            view,
            batch_size=None,  # the dataset gives whole batches
            num_workers=num_workers,
            collate_fn=Collate(collate_fn or default_collate),
            **options,
        )

    def deal(self) -> Deal:
        """How an epoch is dealt."""
        deal: Deal = self.dataset.deal(max(1, self.num_workers))
        return deal

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return self.deal().batches(self.dataset.images, self.dataset.place[0])

    def __iter__(self) -> Iterator[Any]:
        """The batches that are left of the epoch."""
        self._cursor.begin(self.dataset.epoch, self.deal())
        resumed = bool(self._cursor.legs)
        began = perf_counter()
        batches, consuming = super().__iter__(), 0.0
        while True:
            begin = perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                break
            except Exception as error:
                if not self.num_workers:
                    raise
                # Its text has the worker's traceback. That of this process would keep the workers until
                # the garbage is collected, and then hold it up for seconds.
                self._iterator = batches = None
                error.__traceback__ = None
                raise error  # noqa: TRY201
            now = perf_counter()
            self.dataset.count(Traffic(waited_s=now - begin, consuming_s=now - began - consuming))
            consuming = now - began
            self._cursor.steps += 1
            if batch is not None:
                yield batch
        self._cursor.finish()
        self.dataset.begin_at(self._cursor.epoch, ())
        if resumed:
            # Workers that persist know the legs of the epoch that they resumed; new ones will not.
            self._iterator = None

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch."""
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this rank's consumer is, after the batch that was delivered last; JSON.

        Ranks are taken to be in step; `merge_states` makes one state of those of ranks that are not.
        """
        state: dict[str, Any] = self.dataset.encode_state(self._cursor)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a `Loader`'s state was taken, with any number of ranks, workers and batch size.

        With all of them as they were, the same batches follow. Otherwise what no rank has seen of the
        epoch is dealt anew, so that each image comes once. The state's seed and epoch are taken over.

        Raises:
            InputError: if the state is of another dataset, window or order.
        """
        epoch, legs = self.dataset.load_state_dict(state)
        self._cursor.load(epoch, legs)
        self._iterator = None
