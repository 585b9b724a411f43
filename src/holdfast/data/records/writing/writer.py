"""Writes a source of images as a dataset of progressive compressed records.

    list the source -> for each record: read, transcode (in threads), encode, put in place -> manifest

Existing output is reused: a record whose images still match the source is kept. So a writer that was
killed resumes where it stopped, and the dataset is the same, byte for byte.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Value, measured
from holdfast.data.records.arguments import check_number
from holdfast.data.records.describing import Group, fidelities, figures_of, groups_of, unchanged
from holdfast.data.records.format import layout
from holdfast.data.records.format.layout import Image, Index
from holdfast.data.records.format.manifest import Manifest
from holdfast.data.records.jpeg import scans, turbojpeg
from holdfast.data.records.jpeg.decoding import DECODER
from holdfast.data.records.reading.stores import local_folder
from holdfast.data.records.sources import Source, open_source
from holdfast.data.records.sources.example import named_as_image
from holdfast.data.records.writing.batches import Done, chunks, means, reused, transcode
from holdfast.data.records.writing.generations import (
    Generation,
    Stored,
    check_target,
    generation_name,
    live_manifest,
    only_writer,
    publish,
    record_path,
    same,
    sweep,
)
from holdfast.data.records.writing.planning import Plan, Rejected, SourceChanged
from holdfast.data.records.writing.settings import MetadataPolicy, OrientationPolicy, Settings
from holdfast.errors import InputError
from holdfast.numbers import counted, size
from holdfast.plain import plain

MOST_RECORDS = 3
"""Records in memory at once: one that is put in place, others that are transcoded meanwhile."""
MOST_BYTES = 256 << 20
"""Bytes of source images in memory at once, if they are of more than one record."""


_NAMED = 10
"""Files passed over that a result names."""


@dataclass(frozen=True)
class Written(Answer):
    """Result of a write."""

    path: str
    """The dataset's folder."""
    images: int
    records: int
    bytes_in: int
    """Size of the source's images that are in the dataset."""
    stripped_bytes: int
    """The same without their metadata segments."""
    bytes_out: int
    """Size of records and manifest."""
    opaque: int
    """Images stored whole because they could not be transcoded losslessly."""
    reasons: Mapping[str, int]
    """Reason -> number of opaque images."""
    not_upright: int
    """Images that still have an orientation to be applied to their pixels."""
    rejected: int
    """Images that were rejected: `rejected.jsonl` beside the manifest lists them."""
    ignored: int
    """Number of other entries of the source, which are not images."""
    passed_over: tuple[str, ...]
    """The first of those, and why."""
    reused: int
    """Existing records that were kept."""
    groups: tuple[Group, ...]
    """[G] size and quality of each fidelity."""

    def written(self) -> Mapping[str, Path]:
        """The dataset."""
        return {"dataset": Path(self.path)}

    def values(self) -> Sequence[Value]:
        """Its size, that of each fidelity, and what could not be converted."""
        own = measured(
            self,
            images="",
            records="",
            bytes_in="bytes",
            bytes_out="bytes, lower",
            opaque="images, lower",
            rejected="files, lower",
        )
        return [*own, *figures_of(self.groups)]

    def findings(self) -> Sequence[Finding]:
        """What was written, and what was not."""
        made = f"{counted(self.images, 'image')} in {counted(self.records, 'record')}"
        sizes = f"{size(self.bytes_in)} -> {size(self.bytes_out)} at full fidelity"
        found = [Finding(f"{made}: {sizes}.", "fidelities"), *unchanged(self.reasons)]
        if self.rejected:
            found.append(Finding(f"{counted(self.rejected, 'file')} rejected: see rejected.jsonl."))
        if self.ignored:
            named = ", ".join(self.passed_over[:3]) + (", ..." if self.ignored > 3 else "")
            found.append(Finding(named, lead=f"{counted(self.ignored, 'file')} ignored:"))
        if self.reused:
            found.append(Finding(f"{counted(self.reused, 'record')} were intact already."))
        return found

    def sections(self) -> Sequence[Section]:
        """What each fidelity costs and shows."""
        return [fidelities(self.groups, self.images)]


def write(
    source: Source | str | Path | Iterable[Mapping[str, object]],
    out: str | Path,
    *,
    record_size: int = 64,
    groups: Sequence[int] = scans.DEFAULT_GROUPS,
    orientation: OrientationPolicy = "keep",
    metadata: MetadataPolicy = "orientation",
    quality_images: int = 32,
    max_rejected: float = 0.01,
    threads: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write a dataset; readers find the old one or the new one at every moment.

    Args:
        source: images, or what `open_source` takes; never touched.
        out: a new or empty folder, or a dataset, which is replaced when the new one is whole.
        record_size: images a record.
        groups: [G] the last scan, of the ten of a colour image, of each group; the last is 10.
        orientation: "keep" leaves an EXIF orientation for the reader to apply; "bake" turns the
            picture upright where that loses nothing, and keeps the tag elsewhere.
        metadata: "orientation" strips all metadata but that (positions of the GPS among them); "all"
            keeps EXIF, ICC profiles and comments.
        quality_images: how many images, spread over the source, are measured for the quality of each group.
        max_rejected: the share of images, rounded up to whole ones, that may be set aside as empty or
            unreadable.
        threads: transcode at once; one for each processor by default.
        on_progress: called with the source's bytes that are done, and those in all.

    Raises:
        InputError: if the source or the folder cannot be used, or too many images are set aside.
        StoreError: if the folder cannot be written, another process is writing it, or no transcoder
            is installed.
    """
    settings = Settings(record_size, tuple(groups), orientation, metadata, quality_images)
    check_number("max_rejected", max_rejected, 0, 1)
    check_number("threads", threads, 1)
    folder = local_folder(out)
    check_target(folder)
    if isinstance(source, (str, Path)):
        check_apart(source, folder)
    images = source if isinstance(source, Source) else open_source(source)
    programs = {"transcoder": turbojpeg.version()}
    if quality_images:
        programs["decoder"] = DECODER
    plan = Plan.of(images, settings, programs)
    refused = [Rejected(*one) for one in images.ignored if named_as_image(one[0])]
    work = _Work(
        plan=plan,
        measured=plan.measured(),
        threads=threads or _processors(),
        refused=refused,
        most_rejected=math.ceil(max_rejected * (plan.images + len(refused))),
        on_progress=on_progress or (lambda done, total: None),
    )
    with only_writer(folder):
        sweep(folder)
        records = _records(folder, work)
        manifest = _manifest(plan, records)
        size = publish(folder, manifest, b"".join(one.to_line() for one in records.rejected))
    return Written(
        path=str(out),
        images=manifest.images,
        records=len(manifest.records),
        bytes_in=records.bytes_in,
        stripped_bytes=records.stripped_bytes,
        bytes_out=size + sum(record.size for record in manifest.records),
        opaque=records.reasons.total(),
        reasons=dict(records.reasons),
        not_upright=records.not_upright,
        rejected=len(records.rejected),
        ignored=len(images.ignored) - len(refused),
        passed_over=tuple(
            f"{name} ({why})" for name, why in images.ignored if not named_as_image(name)
        )[:_NAMED],
        reused=records.reused,
        groups=groups_of(manifest),
    )


# --- The steps -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What is to be written, and how."""

    plan: Plan
    measured: frozenset[int]
    """Numbers of the images whose quality is measured."""
    threads: int
    refused: Sequence[Rejected]
    """What is named as an image, but the source could not take for one."""
    most_rejected: int
    on_progress: Callable[[int, int], None]


@dataclass
class _Records:
    """The records that are in place, and what they sum up to."""

    paths: list[str] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    stripped_bytes: int = 0
    not_upright: int = 0
    reused: int = 0

    def add(self, path: str, index: Index, images: Sequence[Image]) -> None:
        """Count a record."""
        self.paths.append(path)
        self.indexes.append(index)
        for image in images:
            self.bytes_in += image.source_size
            self.stripped_bytes += image.stripped_size
            self.not_upright += image.orientation != 1
            if image.reason is not None:
                self.reasons[image.reason.partition(":")[0]] += 1


@dataclass(frozen=True)
class _Batch:
    """The images of one record on their way."""

    number: int
    source_bytes: int
    tasks: Sequence[Future[list[Done]]]
    """What comes of the images, in order."""
    stored: Stored | None = None
    """The record in place, if its images are those of the source now; then `reused` stands for tasks."""
    reused: Sequence[Image | Rejected] = ()


class _InTheWay(Exception):
    """A record that readers may be reading would have to change."""


def _records(folder: Path, work: _Work) -> _Records:
    """Put all records in place, beside those that the manifest names now unless they are the same."""
    live = live_manifest(folder)
    named = dict(zip(live.paths, live.records, strict=True)) if live is not None else {}
    turns = [Generation(folder, generation_name(work.plan.number(turn)), named) for turn in (0, 1)]
    # A source may change without a change of ids and sizes. Then its plan's folder is the one that the
    # manifest names, and the records go into a second one; next time, back into the first.
    for generation in sorted(turns, key=lambda one: not one.live):
        try:
            return _fill(generation, work)
        except _InTheWay:
            continue
    raise AssertionError("one of two generations is not named by the manifest")


def _fill(generation: Generation, work: _Work) -> _Records:
    """Put all records of a generation in place, a few at a time."""
    generation.make()
    done = _Records(rejected=list(work.refused))
    waiting: deque[_Batch] = deque()
    finished_bytes = 0
    total = int(work.plan.sizes.sum())

    def finish() -> None:
        nonlocal finished_bytes
        batch = waiting.popleft()
        _finish(batch, generation, work, done)
        finished_bytes += batch.source_bytes
        work.on_progress(finished_bytes, total)

    pool = ThreadPoolExecutor(work.threads, thread_name_prefix="transcode")
    try:
        for number, numbers in enumerate(work.plan.records()):
            size = int(work.plan.sizes[numbers.start : numbers.stop].sum())
            while waiting and (
                len(waiting) == MOST_RECORDS
                or size + sum(batch.source_bytes for batch in waiting) > MOST_BYTES
            ):
                finish()
            waiting.append(_begin(number, numbers, size, generation, work, pool))
        while waiting:
            finish()
    finally:
        pool.shutdown(cancel_futures=True)
    return done


def _begin(
    number: int,
    numbers: range,
    size: int,
    generation: Generation,
    work: _Work,
    pool: ThreadPoolExecutor,
) -> _Batch:
    """Read the images of a record, and let them be transcoded if they are not in place already."""
    try:
        examples = list(work.plan.read(numbers))
    except SourceChanged as error:
        raise InputError(
            "the source has changed since it was listed",
            code="source-changed",
            place=str(error),
            remedy="leave it as it is while it is written, and run the same command again",
        ) from None
    stored = generation.stored(number)
    if stored is not None and (images := reused(stored, examples, work.plan)) is not None:
        return _Batch(number, size, [], stored, images)
    tasks = [
        pool.submit(transcode, chunk, work.plan.settings)
        for chunk in chunks(examples, [image in work.measured for image in numbers])
    ]
    return _Batch(number, size, tasks)


def _finish(batch: _Batch, generation: Generation, work: _Work, done: _Records) -> None:
    """Wait for the images of a record, and put it in place if it is not there."""
    if batch.stored is not None:
        results = batch.reused
        msssim, measured = batch.stored.index.msssim, batch.stored.index.measured
    else:
        outcomes = [one for task in batch.tasks for one in task.result()]
        results = [one.image for one in outcomes]
        msssim, measured = means([one.msssim for one in outcomes if one.msssim is not None])
    images = [one for one in results if isinstance(one, Image)]
    done.rejected += [one for one in results if isinstance(one, Rejected)]
    _check_rejected(done.rejected, work)
    index = None
    if images:
        parts, index = layout.encode(
            images,
            work.plan.source.schema,
            groups=len(work.plan.settings.scans_end),
            settings=work.plan.texts,
            msssim=msssim or None,
            measured=measured,
        )
    if not generation.fits(batch.number, index):
        raise _InTheWay
    if index is None:
        return
    if batch.stored is not None and same(index, batch.stored.index):
        done.reused += 1
    else:
        generation.put(batch.number, parts)
    done.add(record_path(generation.name, batch.number), index, images)


def _manifest(plan: Plan, records: _Records) -> Manifest:
    """The manifest of records that are in place: it says nothing that another run would not."""
    if not records.paths:
        raise InputError(
            "no image of the source can be stored",
            code="no-data",
            found=_examples_of(records.rejected),
            expected="images",
        )
    fields = [pa.field("id", pa.string(), nullable=False), *plan.source.schema]
    return Manifest(
        paths=tuple(records.paths),
        records=tuple(records.indexes),
        scans_end=plan.settings.scans_end,
        schema=pa.schema(fields),
        notes={
            "settings": plain(plan.settings),
            "transcoder": plan.texts["transcoder"],
            "decoder": plan.texts.get("decoder"),
            "images": sum(index.images for index in records.indexes),
            "opaque": records.reasons.total(),
            "reasons": dict(records.reasons),
            "not_upright": records.not_upright,
            "rejected": len(records.rejected),
            "source_bytes": records.bytes_in,
            "stripped_bytes": records.stripped_bytes,
        },
    )


# --- Checks --------------------------------------------------------------------------------------


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # what a container or a scheduler leaves to this process
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_apart(source: str | Path, out: str | Path) -> None:
    """Refuse a dataset within its own source: the next listing of the source would meet its records.

    Raises:
        InputError: if it would be one.
    """
    inside, around = Path(out).resolve(), Path(source).resolve()
    if around.is_dir() and inside.is_relative_to(around):
        raise InputError(
            "the output lies inside the source",
            code="conflict",
            path=out,
            found=f"source {source}",
            remedy="write the dataset to a folder outside of the source",
        )


def _check_rejected(rejected: Sequence[Rejected], work: _Work) -> None:
    if len(rejected) > work.most_rejected:
        images = work.plan.images + len(work.refused)
        raise InputError(
            "too many images of the source cannot be used",
            code="too-many-rejects",
            found=_examples_of(rejected),
            expected=f"at most {work.most_rejected:,} of {images:,} images",
            remedy="fix or remove them, or raise --max-rejected (in Python, max_rejected=)",
        )


def _examples_of(rejected: Sequence[Rejected]) -> str:
    named = "; ".join(f"{one.id} ({one.reason})" for one in rejected[:3])
    return f"{named}; ..." if len(rejected) > 3 else named
