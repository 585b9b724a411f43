"""Lossless transcoding: the same DCT coefficients in another order, by libjpeg-turbo.

`libturbojpeg` is called in this process (no interpreter lock is held meanwhile); what it does not take, or
where it is missing, `jpegtran` does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path

from holdfast.data.records.jpeg.parsing import Jpeg, parse, with_height
from holdfast.errors import StoreError

# Of turbojpeg.h: options of a transform, flags of a call, and the two grades of an error.
_PERFECT, _PROGRESSIVE, _COPY_NONE = 1, 32, 64
_STOP_ON_WARNING, _LIMIT_SCANS = 8192, 32768
_WARNING = 0

_REMEDY = "apt-get install libturbojpeg0 (or libjpeg-turbo-progs)"


class Operation(IntEnum):
    """What a transform does to the picture; the numbers are libturbojpeg's (TJXOP)."""

    NONE = 0
    FLIP_HORIZONTAL = 1
    FLIP_VERTICAL = 2
    TRANSPOSE = 3
    TRANSVERSE = 4
    ROTATE_90 = 5
    ROTATE_180 = 6
    ROTATE_270 = 7

    @classmethod
    def upright(cls, orientation: int) -> Operation:
        """The operation that bakes an EXIF orientation 1..8 into the picture."""
        return _UPRIGHT[orientation]


_UPRIGHT = {
    1: Operation.NONE,
    2: Operation.FLIP_HORIZONTAL,
    3: Operation.ROTATE_180,
    4: Operation.FLIP_VERTICAL,
    5: Operation.TRANSPOSE,
    6: Operation.ROTATE_90,
    7: Operation.TRANSVERSE,
    8: Operation.ROTATE_270,
}

_JPEGTRAN = {
    Operation.NONE: (),
    Operation.FLIP_HORIZONTAL: ("-flip", "horizontal"),
    Operation.FLIP_VERTICAL: ("-flip", "vertical"),
    Operation.TRANSPOSE: ("-transpose",),
    Operation.TRANSVERSE: ("-transverse",),
    Operation.ROTATE_90: ("-rotate", "90"),
    Operation.ROTATE_180: ("-rotate", "180"),
    Operation.ROTATE_270: ("-rotate", "270"),
}


class TranscodeError(ValueError):
    """An image that libjpeg-turbo cannot transcode.

    Args:
        reason: what it says.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class DamagedData(TranscodeError):
    """Entropy-coded data that libjpeg-turbo can read only by guessing: nothing lossless comes of it."""


class NotPerfect(TranscodeError):
    """An operation would drop or misplace blocks at an edge: the size is not a multiple of the MCU."""


def transcode(
    data: bytes,
    *,
    progressive: bool = True,
    operation: Operation = Operation.NONE,
    parsed: Jpeg | None = None,
) -> bytes:
    """The image with the same DCT coefficients, and without metadata.

    Args:
        data: a JPEG.
        progressive: as progressive scans, by libjpeg's default script, each with Huffman tables that suit
            it best; else as one baseline scan with the standard's tables.
        operation: what is done to the picture; only if that loses nothing.
        parsed: what `jpeg.parse` says about it, where that is known already.

    Raises:
        NotAJpeg, DamagedJpeg, LimitError: as `jpeg.parse`.
        DamagedData: if the entropy-coded data is damaged.
        NotPerfect: if the operation would lose something at an edge.
        TranscodeError: if the image is of a kind that libjpeg-turbo does not know.
        StoreError: if neither libturbojpeg nor jpegtran is installed.
    """
    if parsed is None:
        parsed = parse(data)
    if parsed.dnl is not None:
        data = with_height(data, parsed)
    library = _library()
    if library is not None:
        try:
            return _by_library(library, data, progressive, operation)
        except _UnknownSampling:
            if shutil.which("jpegtran") is None:
                raise
    return _by_jpegtran(data, progressive, operation)


@cache
def version() -> str:
    """The name and version of what transcodes."""
    library = _library()
    if library is not None:
        return _version_in(Path(_path_of(library))) or f"libturbojpeg ({library._name})"
    run = subprocess.run([_jpegtran(), "-version"], capture_output=True, text=True, check=False)
    return (run.stderr or run.stdout).partition(" (")[0].strip()


# --- libturbojpeg --------------------------------------------------------------------------------


class _UnknownSampling(TranscodeError):
    """Sampling factors that the TurboJPEG API has no name for (4:1:0); libjpeg itself takes them."""


class _Transform(ctypes.Structure):
    """`tjtransform` of turbojpeg.h."""

    _fields_ = (
        ("x", ctypes.c_int),
        ("y", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("operation", ctypes.c_int),
        ("options", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("filter", ctypes.c_void_p),
    )


@contextmanager
def _new_transformer(library: ctypes.CDLL) -> Iterator[int]:
    """A transformer for one image; it costs a microsecond.

    One that is used again keeps Huffman and quantisation tables: an image that lacks its own is then read
    with those of another, and baseline output is written with those of a progressive image before it.
    """
    handle: int | None = library.tjInitTransform()
    if not handle:
        raise MemoryError("libturbojpeg has no memory for a transformer")
    try:
        yield handle
    finally:
        library.tjDestroy(handle)


@cache
def _library() -> ctypes.CDLL | None:
    """The library, with the signatures of the calls made here; None where it is missing."""
    for name in (ctypes.util.find_library("turbojpeg"), "libturbojpeg.so.0", "libturbojpeg.dylib"):
        if name is None:
            continue
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        pointer, size = ctypes.c_void_p, ctypes.c_ulong
        library.tjInitTransform.restype = pointer
        library.tjDestroy.argtypes = (pointer,)
        library.tjFree.argtypes = (pointer,)
        library.tjFree.restype = None
        library.tjGetErrorStr2.argtypes = library.tjGetErrorCode.argtypes = (pointer,)
        library.tjGetErrorStr2.restype = ctypes.c_char_p
        library.tjTransform.argtypes = (
            pointer,
            ctypes.c_char_p,
            size,
            ctypes.c_int,
            ctypes.POINTER(pointer),
            ctypes.POINTER(size),
            ctypes.POINTER(_Transform),
            ctypes.c_int,
        )
        return library
    return None


def _by_library(
    library: ctypes.CDLL, data: bytes, progressive: bool, operation: Operation
) -> bytes:
    transform = _Transform(
        operation=operation,
        options=_COPY_NONE | _PERFECT * (operation != 0) | _PROGRESSIVE * progressive,
    )
    output, size = ctypes.c_void_p(), ctypes.c_ulong()
    with _new_transformer(library) as handle:
        try:
            failed = library.tjTransform(
                handle,
                data,
                len(data),
                1,
                ctypes.byref(output),
                ctypes.byref(size),
                ctypes.byref(transform),
                _STOP_ON_WARNING | _LIMIT_SCANS,
            )
            if failed:
                reason = library.tjGetErrorStr2(handle).decode("ascii", "replace")
                raise _error(reason, warning=library.tjGetErrorCode(handle) == _WARNING)
            return ctypes.string_at(output.value or 0, size.value)
        finally:
            library.tjFree(output)


def _error(reason: str, *, warning: bool) -> TranscodeError:
    if "is not perfect" in reason:
        return NotPerfect(reason)
    if "subsampling type" in reason:
        return _UnknownSampling(reason)
    return DamagedData(reason) if warning else TranscodeError(reason)


def _path_of(library: ctypes.CDLL) -> str:
    """The file that a library was loaded from, where the system tells (Linux), else its name."""
    maps = Path("/proc/self/maps")
    if maps.is_file():
        for line in maps.read_text().splitlines():
            path = line.partition("/")[2]
            if path.rpartition("/")[2].startswith("libturbojpeg."):
                return "/" + path
    return str(library._name)


def _version_in(file: Path) -> str | None:
    """The version that the library names itself by; its API has no call for that."""
    if not file.is_file():
        return None
    found = re.search(rb"libjpeg-turbo version (\d[\w.]*)", file.read_bytes())
    return None if found is None else f"libjpeg-turbo {found[1].decode()}"


# --- jpegtran ------------------------------------------------------------------------------------


def _jpegtran() -> str:
    tool = shutil.which("jpegtran")
    if tool is None:
        raise StoreError(
            "neither libturbojpeg nor jpegtran is installed; one of them transcodes the images\n"
            f"  remedy: {_REMEDY}"
        )
    return tool


def _by_jpegtran(data: bytes, progressive: bool, operation: Operation) -> bytes:
    command = [_jpegtran(), "-copy", "none"]
    if progressive:
        command += ["-optimize", "-progressive"]
    if operation:
        command += ["-perfect", *_JPEGTRAN[operation]]
    run = subprocess.run(command, input=data, capture_output=True, check=False)
    if run.returncode == 0:
        return run.stdout
    lines = run.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1] if lines else f"jpegtran ended with code {run.returncode}"
    raise _error(reason.removeprefix(f"{command[0]}: "), warning=run.returncode == 2)
