"""Every byte of one record, looked at: which region, piece or image is not what the sums say it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from holdfast.answer import Section, Table
from holdfast.data.records.format.layout import (
    HEADER_SIZE,
    MAX_FOOTER,
    Contents,
    Index,
    LayoutError,
    OtherVersion,
    decode_contents,
    decode_footer,
    encode_footer,
)
from holdfast.data.records.jpeg import parsing, scans
from holdfast.data.records.reading.stores import MissingFile, Store
from holdfast.errors import HoldfastError, InputError
from holdfast.remote import Buffer

CHUNK = 1 << 23
"""Bytes that are read and summed at a time, unless one piece alone has more."""

WHOLE = 1 << 26
"""Files of at most so many bytes are read at once and kept while they are looked at."""

Compare = Callable[[str, Contents, Sequence[int], Sequence[bytes]], Iterator[tuple[int, str]]]
"""(record, contents, rows, their images at full fidelity) -> (row, what is wrong with it)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    record: str | None
    """The record's file, from the dataset's folder; None: the dataset as a whole."""
    image: str | None
    """The image's id; None: no single image, or none that can be named."""
    group: int | None
    """1..G; None: the metadata, the footer, or an image as a whole."""
    reason: str


def damage(id: str, sentence: str, findings: Sequence[Finding], caption: str = "") -> Section:
    """What is wrong, a row each."""
    rows = [asdict(one) | {"record": one.record or "the dataset"} for one in findings]
    table = Table(pa.Table.from_pylist(rows), caption=caption, empty="No damage.")
    return Section(id, "What is wrong, and where?", sentence, tables=[table])


@dataclass(slots=True)
class Inspected:
    """What was found in one record."""

    path: str
    size: int = 0
    """Bytes of the file."""
    footer: Index | None = None
    """What its own footer says; None if that is damaged."""
    index: Index | None = None
    """By what it was read: its footer, else the manifest."""
    contents: Contents | None = None
    """None if the metadata block is damaged."""
    regions: list[tuple[int, int]] = field(default_factory=list)
    """[G + 1] [start, end) of each region: by the index, else by the metadata block."""
    findings: list[Finding] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """[start, end) of bytes that are wrong or missing, as far as that can be said; rising."""

    def say(self, reason: str, image: str | None = None, group: int | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(self.path, image, group, reason))


def inspect(
    store: Store | bytes | bytearray,
    path: str,
    expected: Index | None = None,
    *,
    on_bytes: Callable[[int], None] | None = None,
    compare: Compare | None = None,
) -> Inspected:
    """Read a record from the first byte to the last.

    Args:
        store: where it lies; or the record itself.
        path: its file.
        expected: what the manifest says about it.
        on_bytes: called with the number of bytes that were summed since the last call.
        compare: what its images must hold to besides.

    Raises:
        StoreError: if the store fails; a missing or short file is a finding.
        InputError: if another version of the format wrote it.
    """
    inspected = Inspected(path)
    try:
        file = _File(store, path)
    except MissingFile:
        inspected.say("the file is missing")
        return inspected
    inspected.size = file.size
    _look_at_footer(file, expected, inspected)
    _look_at_metadata(file, inspected)
    good = _look_at_groups(file, inspected, on_bytes or (lambda _: None))
    if inspected.contents is not None:
        _look_at_images(file, inspected, inspected.contents, good, compare)
    return inspected


def undecidable(path: str, error: OtherVersion) -> InputError:
    """The refusal of what another version of the format wrote: it is neither whole nor damaged here."""
    return InputError(
        "this was written in another version of the format",
        code="unsupported",
        path=path,
        found=error.reason,
        remedy="use the release of holdfast that wrote it",
    )


# --- Reading -------------------------------------------------------------------------------------


class _File:
    """A record's bytes: kept whole if they are few, read by ranges if they are many."""

    def __init__(self, store: Store | bytes | bytearray, path: str) -> None:
        self._path = path
        self._store = store if isinstance(store, Store) else None
        self._whole: memoryview | None = None
        if not isinstance(store, Store):
            self._whole = memoryview(store)
            self.size = len(store)
            return
        self.size = store.size(path)
        if self.size <= WHOLE:
            self._whole = memoryview(store.read_all(path))
            self.size = len(self._whole)

    def read(self, start: int, end: int) -> Buffer:
        """The bytes [start, end), or as many of them as there are."""
        start, end = min(start, self.size), min(end, self.size)
        if self._whole is not None:
            return self._whole[start:end]
        assert self._store is not None
        return self._store.read(self._path, start, end)


# --- Footer and metadata -------------------------------------------------------------------------


def _look_at_footer(file: _File, expected: Index | None, inspected: Inspected) -> None:
    start = max(0, file.size - MAX_FOOTER)
    try:
        inspected.footer = decode_footer(bytes(file.read(start, file.size)), file.size)
    except LayoutError as error:
        if expected is not None and expected.size != file.size:
            inspected.say(
                f"the file has {file.size:,} bytes where the manifest says {expected.size:,}"
            )
        else:
            inspected.say(f"footer: {error.reason}")
            if expected is not None:
                inspected.damaged.append((expected.ends[-1], expected.size))
    inspected.index = inspected.footer or expected
    if expected is not None and inspected.footer is not None:
        difference = _difference(inspected.footer, expected)
        if difference:
            inspected.say(
                f"its footer does not say what the manifest says: {difference}; "
                "it is another record, or of another generation"
            )


def _difference(footer: Index, expected: Index) -> str | None:
    """What two indexes of one record disagree on; NaN is equal to NaN."""
    if encode_footer(footer) == encode_footer(expected):
        return None
    for name in ("groups", "images", "size", "ends", "sums"):
        one, other = getattr(footer, name), getattr(expected, name)
        if one != other:
            return f"{name} {one} against {other}"
    return "MS-SSIM"


def _look_at_metadata(file: _File, inspected: Inspected) -> None:
    if inspected.index is not None:
        end = inspected.index.ends[0]
    else:  # whether this is a header, `decode_contents` says
        end = HEADER_SIZE + int.from_bytes(file.read(0, HEADER_SIZE)[16:24], "little")
    try:
        inspected.contents = decode_contents(file.read(0, end), inspected.index)
    except OtherVersion as error:
        raise undecidable(inspected.path, error) from error
    except LayoutError as error:
        if error.region:
            inspected.say(error.reason, group=error.region)
        else:
            inspected.say(f"metadata: {error.reason}")
            inspected.damaged += [(0, end)] if inspected.index is not None else []
    if inspected.index is not None:
        ends = inspected.index.ends
    elif inspected.contents is not None:
        ends = tuple(accumulate(inspected.contents.starts[-1].tolist(), initial=end))
    else:
        return
    inspected.regions = list(pairwise((0, *ends)))


# --- Groups --------------------------------------------------------------------------------------


def _look_at_groups(
    file: _File, inspected: Inspected, on_bytes: Callable[[int], None]
) -> npt.NDArray[np.bool_]:
    """[N] which images have nothing but good pieces."""
    good = np.ones(0 if inspected.contents is None else len(inspected.contents.lengths), bool)
    summed = 0
    for group, (start, end) in enumerate(inspected.regions[1:], 1):
        if inspected.contents is None:
            digest, bad = _sum_bytes(file, start, end, on_bytes), list[int]()
        else:
            digest, bad = _sum_pieces(file, inspected.contents, group, start, on_bytes)
        good[bad] = False
        summed += min(end, file.size) - min(start, file.size)
        if end > file.size:
            inspected.say(
                f"the file ends {end - file.size:,} bytes before the group does", group=group
            )
            inspected.damaged.append((max(start, min(file.size, end)), end))
        elif bad:
            _name_pieces(inspected, group, start, bad)
        elif inspected.index is not None and digest != inspected.index.sums[group]:
            blame = "" if inspected.contents is None else ", and no piece is to blame"
            inspected.say(f"the group's xxh3 does not match{blame}", group=group)
            inspected.damaged.append((start, end))
    on_bytes(file.size - summed)
    return good


def _sum_bytes(file: _File, start: int, end: int, on_bytes: Callable[[int], None]) -> int:
    """The xxh3 of a group whose pieces are not known."""
    digest = xxhash.xxh3_64()
    for at in range(start, end, CHUNK):
        data = file.read(at, min(at + CHUNK, end))
        digest.update(data)
        on_bytes(len(data))
    return digest.intdigest()


def _sum_pieces(
    file: _File, contents: Contents, group: int, start: int, on_bytes: Callable[[int], None]
) -> tuple[int, list[int]]:
    """The xxh3 of a group, and the rows whose piece is damaged or cut."""
    digest = xxhash.xxh3_64()
    bad = []
    starts = contents.starts[:, group - 1]
    sums = contents.piece_sums[:, group - 1].tolist()
    for first, last in _runs(starts):
        places = starts[first : last + 1].tolist()
        data = memoryview(file.read(start + places[0], start + places[-1]))
        digest.update(data)
        on_bytes(len(data))
        for row, (begin, end) in enumerate(pairwise(places), first):
            piece = data[begin - places[0] : end - places[0]]
            if len(piece) < end - begin or google_crc32c.value(bytes(piece)) != sums[row]:
                bad.append(row)
    return digest.intdigest(), bad


def _name_pieces(inspected: Inspected, group: int, start: int, rows: list[int]) -> None:
    contents = inspected.contents
    assert contents is not None
    for row in rows:
        inspected.say("the piece's crc32c does not match", contents.ids[row], group)
        begin, end = contents.starts[row : row + 2, group - 1].tolist()
        inspected.damaged.append((start + begin, start + end))


def _runs(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of at most CHUNK bytes together, or a single one.

    Args:
        starts: [N + 1] where the bytes of each row begin.
    """
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + CHUNK, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


# --- Images --------------------------------------------------------------------------------------


def _look_at_images(
    file: _File,
    inspected: Inspected,
    contents: Contents,
    good: npt.NDArray[np.bool_],
    compare: Compare | None,
) -> None:
    """Compare the images whose pieces are intact with the metadata, and with the source."""
    groups = scans_end(contents)
    if groups is None:
        inspected.say("metadata: its settings do not say which scans its groups end with")
        return
    for first, last in _runs(contents.starts.sum(axis=1)):
        rows = [row for row in range(first, last) if good[row]]
        pieces = _pieces(file, inspected, contents, first, last)
        images = []
        for row in rows:
            own = [group[row - first] for group in pieces]
            reason, image = _judge(contents, row, own, groups)
            images.append(image)
            if reason is not None:
                inspected.say(reason, contents.ids[row])
        if compare is not None:
            for row, reason in compare(inspected.path, contents, rows, images):
                inspected.say(reason, contents.ids[row])


def scans_end(contents: Contents) -> tuple[int, ...] | None:
    """[G] the last scan of each group, as the record's settings say; None if they do not."""
    ends = contents.settings.get("scans_end", "").split(",")
    if len(ends) != contents.lengths.shape[1] or not all(end.isdecimal() for end in ends):
        return None
    return tuple(int(end) for end in ends)


def _pieces(
    file: _File, inspected: Inspected, contents: Contents, first: int, last: int
) -> list[list[Buffer]]:
    """[G][last - first] the pieces of some images."""
    result = []
    for group, (start, _) in enumerate(inspected.regions[1:]):
        places = contents.starts[first : last + 1, group].tolist()
        data = file.read(start + places[0], start + places[-1])
        result.append([data[a - places[0] : b - places[0]] for a, b in pairwise(places)])
    return result


def _judge(
    contents: Contents, row: int, pieces: Sequence[Buffer], groups: tuple[int, ...]
) -> tuple[str | None, bytes]:
    """(what is wrong with an image whose bytes are right, the image)."""
    if contents.opaque[row]:
        if any(pieces[1:]) or not pieces[0]:
            return "it is stored opaque, and not in group 1 alone", bytes(pieces[0])
        return None, bytes(pieces[0])
    image = scans.image(pieces)
    try:
        head = parsing.parse(image)
        cut = scans.pieces(image, head, groups)
    except (parsing.NotAJpeg, parsing.DamagedJpeg, scans.UnknownScript, HoldfastError) as error:
        return f"its pieces are not an image: {error}", image
    stated = tuple(
        contents.table[f"pcr.{name}"][row].as_py() for name in ("width", "height", "orientation")
    )
    if stated != (head.width, head.height, head.orientation):
        is_one = f"{head.width} x {head.height}, orientation {head.orientation}"
        return f"it is {is_one}, which the metadata do not say", image
    if [len(piece) for piece in cut] != [len(piece) for piece in pieces]:
        return "its pieces do not end where scans do", image
    return None, image
