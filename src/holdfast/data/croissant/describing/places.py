"""Where the files of a dataset stand, and what they are by their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath


class Kind(StrEnum):
    """What a file holds, as far as a description goes."""

    TABLE = "table"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    TEXT = "text"
    ARCHIVE = "archive"
    OTHER = "other"


MEDIA = {Kind.IMAGE: "sc:ImageObject", Kind.AUDIO: "sc:AudioObject", Kind.VIDEO: "sc:VideoObject"}

# Ending -> kind and media types; what is compressed as a whole states the compression second.
_ENDINGS: dict[str, tuple[Kind, str]] = {
    ".csv": (Kind.TABLE, "text/csv"),
    ".tsv": (Kind.TABLE, "text/tab-separated-values"),
    ".tab": (Kind.TABLE, "text/tab-separated-values"),
    ".parquet": (Kind.TABLE, "application/x-parquet"),
    ".jsonl": (Kind.TABLE, "application/jsonlines"),
    ".ndjson": (Kind.TABLE, "application/jsonlines"),
    ".json": (Kind.TABLE, "application/json"),
    ".arrow": (Kind.TABLE, "application/vnd.apache.arrow.file"),
    ".feather": (Kind.TABLE, "application/vnd.apache.arrow.file"),
    ".arff": (Kind.TABLE, "text/x-arff"),
    ".txt": (Kind.TEXT, "text/plain"),
    ".jpg": (Kind.IMAGE, "image/jpeg"),
    ".jpeg": (Kind.IMAGE, "image/jpeg"),
    ".png": (Kind.IMAGE, "image/png"),
    ".gif": (Kind.IMAGE, "image/gif"),
    ".bmp": (Kind.IMAGE, "image/bmp"),
    ".webp": (Kind.IMAGE, "image/webp"),
    ".tif": (Kind.IMAGE, "image/tiff"),
    ".tiff": (Kind.IMAGE, "image/tiff"),
    ".ppm": (Kind.IMAGE, "image/x-portable-pixmap"),
    ".pgm": (Kind.IMAGE, "image/x-portable-graymap"),
    ".wav": (Kind.AUDIO, "audio/wav"),
    ".mp3": (Kind.AUDIO, "audio/mpeg"),
    ".flac": (Kind.AUDIO, "audio/flac"),
    ".ogg": (Kind.AUDIO, "audio/ogg"),
    ".opus": (Kind.AUDIO, "audio/ogg"),
    ".m4a": (Kind.AUDIO, "audio/mp4"),
    ".mp4": (Kind.VIDEO, "video/mp4"),
    ".avi": (Kind.VIDEO, "video/x-msvideo"),
    ".mov": (Kind.VIDEO, "video/quicktime"),
    ".mkv": (Kind.VIDEO, "video/x-matroska"),
    ".webm": (Kind.VIDEO, "video/webm"),
    ".zip": (Kind.ARCHIVE, "application/zip"),
    ".tar": (Kind.ARCHIVE, "application/x-tar"),
    ".tgz": (Kind.ARCHIVE, "application/x-tar"),
    ".gz": (Kind.OTHER, "application/gzip"),
    ".bz2": (Kind.OTHER, "application/x-bzip2"),
    ".xz": (Kind.OTHER, "application/x-xz"),
    ".zst": (Kind.OTHER, "application/zstd"),
    ".7z": (Kind.OTHER, "application/x-7z-compressed"),
    ".md": (Kind.OTHER, "text/markdown"),
    ".rst": (Kind.OTHER, "text/x-rst"),
    ".html": (Kind.OTHER, "text/html"),
    ".htm": (Kind.OTHER, "text/html"),
    ".xml": (Kind.OTHER, "application/xml"),
    ".yaml": (Kind.OTHER, "application/yaml"),
    ".yml": (Kind.OTHER, "application/yaml"),
    ".cff": (Kind.OTHER, "application/yaml"),
    ".pdf": (Kind.OTHER, "application/pdf"),
    ".py": (Kind.OTHER, "text/x-python"),
    ".npy": (Kind.OTHER, "application/octet-stream"),
    ".xlsx": (Kind.OTHER, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ".xls": (Kind.OTHER, "application/vnd.ms-excel"),
    ".sqlite": (Kind.OTHER, "application/vnd.sqlite3"),
    ".h5": (Kind.OTHER, "application/x-hdf5"),
    ".hdf5": (Kind.OTHER, "application/x-hdf5"),
    ".dcm": (Kind.OTHER, "application/dicom"),
}
_COMPRESSED_TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json")
# Text files about the data, which are no data themselves.
_ABOUT = ("readme", "license", "licence", "copying", "notice", "citation", "changelog", "changes",
          "requirements", "authors", "contributing", "datasheet")  # fmt: skip


def ending(name: str) -> str:
    """The ending that says what a file is, as written: ``.CSV``, ``.tar.gz``; "" where there is none."""
    stem, dot, last = name.rpartition(".")
    if not dot or not stem:
        return ""
    if last.lower() in ("gz", "bz2", "xz", "zst"):
        inner, dot, before = stem.rpartition(".")
        if (
            dot
            and inner
            and (before.lower() == "tar" or f".{before.lower()}" in _COMPRESSED_TABLES)
        ):
            return f".{before}.{last}"
    return f".{last}"


def kind_of(name: str) -> tuple[Kind, str]:
    """A file's kind and media type, by its name.

    Compressed tables are tables: their media type is the table's, and `ending` tells the compression.
    """
    found = ending(name).lower()
    if found == ".tar.gz":
        return Kind.ARCHIVE, "application/x-tar"
    if found.endswith(".gz") and found[:-3] in _COMPRESSED_TABLES:
        return _ENDINGS[found[:-3]]
    if not found and name.lower() in _ABOUT:
        return Kind.OTHER, "text/plain"
    kind, encoding = _ENDINGS.get(found, (Kind.OTHER, "application/octet-stream"))
    if kind is Kind.TEXT and name.lower().split(".")[0].startswith(_ABOUT):
        return Kind.OTHER, encoding
    return kind, encoding


@dataclass(frozen=True, order=True)
class Place:
    """One file.

    Attributes:
        archive: the path of the archive that it is in, from the dataset's folder; "" where it is in none.
        path: its path from the archive's root, or from the dataset's folder, with ``/``.
        size: bytes, unpacked.
    """

    archive: str
    path: str
    size: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """Its name without the ending."""
        return self.name.removesuffix(self.ending)

    @property
    def ending(self) -> str:
        """Its ending as written, such as ``.csv.gz``."""
        return ending(self.name)

    @property
    def kind(self) -> Kind:
        """What its name says it holds."""
        return kind_of(self.name)[0]

    @property
    def encoding(self) -> str:
        """Its media type; a compressed table's is the table's."""
        return kind_of(self.name)[1]

    def __str__(self) -> str:
        return f"{self.archive}!{self.path}" if self.archive else self.path
