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

# Kind -> media type -> the endings that say so.
_TYPES: dict[Kind, dict[str, str]] = {
    Kind.TABLE: {
        "text/csv": ".csv",
        "text/tab-separated-values": ".tsv .tab",
        "application/x-parquet": ".parquet",
        "application/jsonlines": ".jsonl .ndjson",
        "application/json": ".json .geojson",
        "application/vnd.apache.arrow.file": ".arrow .feather",
    },
    Kind.TEXT: {
        "text/plain": ".txt",
    },
    Kind.IMAGE: {
        "image/jpeg": ".jpg .jpeg",
        "image/png": ".png",
        "image/gif": ".gif",
        "image/bmp": ".bmp",
        "image/webp": ".webp",
        "image/tiff": ".tif .tiff",
        "image/x-portable-pixmap": ".ppm",
        "image/x-portable-graymap": ".pgm",
    },
    Kind.AUDIO: {
        "audio/wav": ".wav",
        "audio/mpeg": ".mp3",
        "audio/flac": ".flac",
        "audio/ogg": ".ogg .opus",
        "audio/mp4": ".m4a",
    },
    Kind.VIDEO: {
        "video/mp4": ".mp4",
        "video/x-msvideo": ".avi",
        "video/quicktime": ".mov",
        "video/x-matroska": ".mkv",
        "video/webm": ".webm",
    },
    Kind.ARCHIVE: {
        "application/zip": ".zip",
        "application/x-tar": ".tar .tgz",
    },
    Kind.OTHER: {
        "application/gzip": ".gz",
        "application/x-bzip2": ".bz2",
        "application/x-xz": ".xz",
        "application/zstd": ".zst",
        "application/x-7z-compressed": ".7z",
        "text/markdown": ".md",
        "text/x-rst": ".rst",
        "text/html": ".html .htm",
        "application/xml": ".xml",
        "application/yaml": ".yaml .yml .cff",
        "application/pdf": ".pdf",
        "text/x-python": ".py",
        "application/octet-stream": ".npy",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
        "application/vnd.ms-excel": ".xls",
        "application/vnd.sqlite3": ".sqlite",
        "application/x-hdf5": ".h5 .hdf5",
        "application/dicom": ".dcm",
    },
}
_ENDINGS = {
    ending: (kind, media)
    for kind, types in _TYPES.items()
    for media, endings in types.items()
    for ending in endings.split()
}
_COMPRESSED_TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json")
# Text files about the data, which are not data themselves.
_ABOUT = ("readme", "license", "licence", "copying", "notice", "citation", "changelog", "changes",
          "requirements", "authors", "contributing", "datasheet")  # fmt: skip

# What the `datasets` library writes beside its data.
_INFOS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")


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
    suffix = ending(name).lower()
    if suffix == ".tar.gz":
        return Kind.ARCHIVE, "application/x-tar"
    if suffix.endswith(".gz") and suffix[:-3] in _COMPRESSED_TABLES:
        return _ENDINGS[suffix[:-3]]
    if not suffix and name.lower() in _ABOUT:
        return Kind.OTHER, "text/plain"
    if name.lower() in _INFOS:
        return Kind.OTHER, "application/json"
    kind, encoding = _ENDINGS.get(suffix, (Kind.OTHER, "application/octet-stream"))
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
        charset: encoding of its text, where that is not UTF-8 or what a byte order mark says.
    """

    archive: str
    path: str
    size: int = field(default=0, compare=False)
    charset: str = field(default="", compare=False)

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
    def media_type(self) -> str:
        """Its media type; a compressed table's is the table's."""
        return kind_of(self.name)[1]

    @property
    def encoding(self) -> str:
        """Its encodingFormat: the media type, with the charset."""
        return f"{self.media_type}; charset={self.charset}" if self.charset else self.media_type

    def __str__(self) -> str:
        return f"{self.archive}!{self.path}" if self.archive else self.path
