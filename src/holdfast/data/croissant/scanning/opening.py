"""What every kind of file is opened with: local copies, compression, the columns about the file itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.data.croissant.archives.inflating import compression_of
from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.scanning.columns import MEMBER, Column, Key, texts
from holdfast.data.croissant.scanning.encodings import HEAD, check_utf8, encoding_of, utf8_blocks
from holdfast.data.croissant.scanning.local_paths import engine_path
from holdfast.errors import InputError
from holdfast.tables import literal

if TYPE_CHECKING:
    import duckdb

_UNPACKED_FIRST = (".bz2", ".xz")
_LFS = b"version https://git-lfs"
_MALFORMED = re.compile(
    r'in file "(.*?)",? (at byte \d+ )?in (?:(line)|record/(value)) (\d+): (.*)'
)
_NO_UTF8 = re.compile("(?i)invalid (?:unicode|utf-?8)|not utf-8")
_COMPARED = 1000
"""Names that are compared with one that is not there; more would take seconds."""
_numbers = count()


@dataclass
class Opening:
    """Files to be opened as one relation.

    Attributes:
        connection: DuckDB; tables made for the scan live in it.
        resources: gives local copies.
        resource: the id of the FileObject or FileSet, for messages.
        members: its files.
        keys: what is to be extracted.
        types: DuckDB types of columns, where it is known what they become.
        lists: of `keys` those that become one list in each record.
        partly: parts of the files will be read; not all, as for their checksums.
        text: the files are text: `paths` are then of UTF-8, where need be of copies.
    """

    connection: duckdb.DuckDBPyConnection
    resources: Resources
    resource: str
    members: list[Member]
    keys: Sequence[Key]
    types: Mapping[Key, str] = field(default_factory=dict)
    lists: Collection[Key] = ()
    partly: bool = False
    text: bool = False

    @cached_property
    def paths(self) -> list[Path]:
        """Local copies of the members, in their order; those that no reader here unpacks, unpacked."""
        self.resources.fetch(self.members, partly=self.partly)
        paths = self.resources.paths(self.members, partly=self.partly)
        paths = [
            self.resources.inflated(path, member.fullpath)
            if member.fullpath.lower().endswith(_UNPACKED_FIRST)
            else path
            for path, member in zip(paths, self.members, strict=True)
        ]
        return list(map(self._in_utf8, paths, self.members)) if self.text else paths

    def _in_utf8(self, path: Path, member: Member) -> Path:
        packed = compression(path, member)
        with unpacked(path, packed) as file:
            head = file.read(HEAD)
        declared = self.resources.encoding(self.resource)
        encoding, skip = encoding_of(head, declared, member)
        if encoding == "utf-8" and not skip:  # which the engines check
            return path

        def blocks() -> Iterator[bytes]:
            with unpacked(path, packed) as file:
                yield from utf8_blocks(file, encoding, skip, member)

        return self.resources.copied((path, encoding), member.filename, blocks())

    def named(self, kind: str) -> list[str]:
        """What is wanted of one kind ("column", "jsonPath", "fileProperty"), each once."""
        return list(dict.fromkeys(name for of, name in self.keys if of == kind))

    @property
    def numbered(self) -> bool:
        """Whether lines are to be counted."""
        return ("fileProperty", "lineNumbers") in self.keys

    def missing(self, name: str, names: Sequence[str], member: Member, path: Path) -> InputError:
        """A column that a file does not have."""
        near = get_close_matches(name, names[:_COMPARED], n=1) or [
            found for found in names if found.lower() == name.lower()
        ]
        shown = ", ".join(map(repr, names[:30])) + (", ..." if len(names) > 30 else "")
        return InputError(
            f"{member.fullpath} has no column {name!r}",
            code="missing-column",
            path=path if path.name == member.filename else None,
            place=f"column {name!r}",
            found=shown or "no columns",
            expected=f"a column {name!r}",
            remedy=f"did you mean {near[0]!r}?"
            if near
            else "name one of the columns found in extract.column",
        )


def file_columns(members: Sequence[Member], index: str) -> dict[Key, Column]:
    """The columns about the file that a row comes from.

    Args:
        members: the files.
        index: an expression of the file's place among them, from 0.
    """
    place = f"CAST({index} AS BIGINT)"

    def one_of(values: list[str]) -> str:
        return (
            literal(values[0])
            if len(set(values)) == 1
            else f"list_extract({texts(values)}, {place} + 1)"
        )

    return {
        ("fileProperty", "fullpath"): Column(
            one_of([part.fullpath for part in members]), "VARCHAR"
        ),
        ("fileProperty", "filename"): Column(
            one_of([part.filename for part in members]), "VARCHAR"
        ),
        MEMBER: Column("CAST(0 AS BIGINT)" if len(members) == 1 else place, "BIGINT"),
    }


def compression(path: Path, member: Member) -> str:
    """How a file is compressed, by its first bytes: "none", "gzip" or "zstd".

    Raises:
        InputError: another compression, or a pointer of git LFS in place of the file.
    """
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(_LFS):
        raise InputError(
            f"{member.fullpath} is not there: git LFS keeps it elsewhere",
            code="not-found",
            path=path,
            found="a pointer of git LFS",
            expected="the file itself",
            remedy="run `git lfs pull` in the repository",
        )
    name = "zip" if head.startswith(b"PK\x03\x04") else compression_of(head) or "none"
    if name in ("bzip2", "xz", "zip"):
        raise InputError(
            f"{member.fullpath} cannot be read as it is packed",
            code="unsupported",
            path=path,
            found=name,
            expected="plain text, gzip or zstd; or a name that ends in .bz2 or .xz",
            remedy="describe the file as contained in an archive, or pack it with gzip",
        )
    return name


@contextmanager
def unpacked(path: Path, packed: str) -> Iterator[IO[bytes]]:
    """A file's bytes, one after the other, out of gzip or zstd."""
    import pyarrow as pa

    if packed == "none":
        with path.open("rb") as file:
            yield file
    else:
        try:
            with pa.input_stream(str(path), compression=packed) as stream:
                yield stream
        except OSError as error:
            raise InputError(
                f"the {packed} file is damaged or cut off",
                code="damaged",
                path=path,
                found=str(error),
                remedy="fetch the file again",
            ) from error


@contextmanager
def read_as(what: str, opening: Opening) -> Iterator[None]:
    """Turns what DuckDB and Arrow say about a file that cannot be opened into an `InputError`."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        wrong = invalid_text(str(error), opening.paths, opening.members)
        if wrong is not None:
            raise wrong from error
        local = {
            str(engine_path(path)): part.fullpath
            for path, part in zip(opening.paths, opening.members, strict=True)
        }
        first = str(error).strip().splitlines()[0]
        path, place, reason = malformed(str(error)) or ("", None, first)
        raise InputError(
            f"the files of resource {opening.resource!r} cannot be read as {what}",
            code="unreadable",
            path=local.get(path, opening.members[0].fullpath),
            place=place,
            found=reason,
            remedy="see whether encodingFormat names what the files hold",
        ) from error


def malformed(message: str) -> tuple[str, str, str] | None:
    """File, place and reason, where DuckDB says that it cannot read JSON."""
    if bad := _MALFORMED.search(message):
        path, byte, line, value, number, reason = bad.groups()
        # Where a byte is named, DuckDB has counted the line (or value) that it could not parse already.
        return path, f"{line or value} {int(number) - (byte is not None)}", reason.strip()
    return None


def invalid_text(
    message: str, paths: Sequence[Path], members: Sequence[Member]
) -> InputError | None:
    """The first byte that is not of UTF-8, where an engine complains of one."""
    for path, member in zip(paths, members, strict=False) if _NO_UTF8.search(message) else ():
        try:
            with unpacked(path, compression(path, member)) as file:
                check_utf8(file, member)
        except InputError as error:
            return error
    return None


def fresh(what: str) -> str:
    """A name for a table or view that no other has."""
    return f"croissant_{what}_{next(_numbers)}"


def keep(opening: Opening, name: str, batches: Any) -> None:
    """Puts a stream of Arrow batches into a temporary table, which spills to disk where memory ends."""
    import duckdb
    import pyarrow as pa

    refused: list[InputError] = []

    def watched() -> Iterator[Any]:
        try:
            yield from batches
        except InputError as error:  # DuckDB would wrap it in another message
            refused.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(batches.schema, watched())
    opening.connection.register(f"{name}_source", reader)
    try:
        opening.connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_source")
    except duckdb.Error:
        if refused:
            raise refused[0] from None
        raise
    finally:
        opening.connection.unregister(f"{name}_source")
