"""A dataset that a Croissant description describes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self, get_args

import duckdb

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Metadata, RecordSet
from holdfast.data.croissant.document.reading import DescriptionSource, located, read_document
from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access
from holdfast.data.croissant.files.resources import Resources
from holdfast.data.croissant.loading.engine import Engine
from holdfast.data.croissant.loading.queries import LazyQuery
from holdfast.data.croissant.loading.records import LazyRecordSet, OnMisfit, Selection
from holdfast.data.croissant.planning.assembling import Assembler
from holdfast.data.croissant.planning.filters import Filters
from holdfast.data.croissant.planning.origins import Fields
from holdfast.data.croissant.scanning.failures import explain
from holdfast.errors import InputError


class Dataset:
    """Record sets of a description, as tables.

        dataset = Dataset("titanic/metadata.json")
        dataset.records("passengers", filters={"gender": "female"}, columns=["name", "age"]).to_arrow()
        dataset.sql("SELECT gender, avg(survived) FROM passengers GROUP BY gender").to_polars()

    Only the description is read at first. Usable in a `with` block; safe in several threads.

    Args:
        source: the description: a file, a folder with a ``metadata.json`` or ``croissant.json``, a URL,
            ``"-"`` for stdin, the JSON as a dict, or what `open_description` gives.
        mapping: id of a FileObject -> a local file or folder to be taken instead of its URL.
        encoding: of text files, such as ``"latin-1"``, or by id of a FileObject or FileSet; None for what
            the description declares, else UTF-8.
        cache: where fetched files are kept; None for the user's cache folder.
        memory_limit: of DuckDB, such as ``"4GiB"``; what does not fit is spilled to a temporary folder.
        threads: of DuckDB; None for one a core.
        offline: refuse to fetch; files in the cache are used.
        timeout: seconds to wait for a connection, and for more bytes of a response.
        public_only: refuse servers whose address is not public, also after redirects: for descriptions
            that strangers wrote. Proxies and ~/.netrc are then ignored.

    Raises:
        InputError: a description that cannot be read, or a mapping that names nothing.
    """

    def __init__(
        self,
        source: DescriptionSource,
        *,
        mapping: Mapping[str, str | Path] | None = None,
        encoding: str | Mapping[str, str] | None = None,
        cache: str | Path | None = None,
        memory_limit: str | None = None,
        threads: int | None = None,
        offline: bool = False,
        timeout: float = TIMEOUT_S,
        public_only: bool = False,
    ) -> None:
        access = Access(cache, offline, timeout, public_only)
        self.document = document = read_document(source, access)
        self.path: Any = document.path  # a Path, or text where there is none; readers only show it
        self._arguments: dict[str, Any] = {
            "mapping": mapping,
            "encoding": encoding,
            "cache": cache,
            "memory_limit": memory_limit,
            "threads": threads,
            "offline": offline,
            "timeout": timeout,
            "public_only": public_only,
        }
        self.metadata: Metadata = located(build(document), document.base)
        self.fields = Fields(self.metadata)
        self.resources = Resources(
            self.metadata, document.base, mapping=mapping, access=access, encoding=encoding
        )
        self._engine = Engine(memory_limit, threads)

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r}: {', '.join(self.record_sets) or 'no record sets'})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: another process opens the description again."""
        source = self.path if isinstance(self.path, Path) else self.document
        return _again, (source, self._arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files, connections and what was spilled."""
        self._engine.close()
        self.resources.close()

    @cached_property
    def record_sets(self) -> tuple[str, ...]:
        """The ids of the record sets."""
        return tuple(part.id for part in self.metadata.record_sets)

    def records(
        self,
        record_set: str | None = None,
        *,
        filters: Filters | None = None,
        columns: Sequence[str] | None = None,
        ordered: bool = True,
        on_misfit: OnMisfit = "error",
    ) -> LazyRecordSet:
        """The records of a record set; nothing is read yet.

        Args:
            record_set: its id or name; None where there is only one.
            filters: ``{"split": "train", "label": [1, 2]}``: fields, by id, key or short name, and the
                value or values they must have (None for missing; of a list field: a value it must
                contain); or a SQL expression over short names, such as ``"age > 30 AND name IS NOT NULL"``.
                A filter on what the path of a file says is decided before any file is fetched.
            columns: the fields wanted, by id, key or short name; None for all. Only they are read.
            ordered: in the order of the source. Joined records come faster without.
            on_misfit: what becomes of a value that does not fit its declared type: an error; null; or
                "keep": a column with such values is text, as the source has them, those that fit too. The
                data are read once more to know which columns; `LazyRecordSet.misfits` counts the values.

        Raises:
            InputError: no such record set, field, or a value that the field's type cannot take.
        """
        if record_set is None:
            if len(self.record_sets) != 1:
                raise InputError(
                    "the description has not just one record set",
                    code="missing-key",
                    path=self.path,
                    found=", ".join(self.record_sets) or "none",
                    remedy="name one",
                )
            record_set = self.record_sets[0]
        if isinstance(columns, str):
            columns = [columns]
        if on_misfit not in get_args(OnMisfit):
            raise InputError(
                "invalid on_misfit",
                code="invalid-value",
                found=repr(on_misfit),
                expected="error, null or keep",
            )
        selection = Selection(filters, columns, ordered, on_misfit=on_misfit)
        return LazyRecordSet(self, self.fields.record_set(record_set), selection)

    def sql(self, query: str) -> LazyQuery:
        """A query over record sets, each a table under its id, with columns under their short names.

        Only the record sets that the query names are read. Their rows have no defined order unless they
        come from one resource: use ORDER BY.

        Raises:
            InputError: invalid SQL, or an unknown table or column.
        """
        return self.query(query, {})

    def query(self, query: str, tables: Mapping[str, LazyRecordSet]) -> LazyQuery:
        """A query over record sets and the tables given; see `sql`."""
        return LazyQuery(self, query, tables)

    def small_records(self, records: RecordSet) -> list[dict[str, Any]]:
        """All records of a record set that is small, such as one of splits."""
        return list(LazyRecordSet(self, records, Selection()).rows())

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A new connection to the dataset's engine; the caller closes it."""
        return self._engine.connect()

    @contextmanager
    def opened(
        self, lenient: bool = False, text_fields: Collection[str] = (), filters: object = None
    ) -> Iterator[Assembler]:
        """Opens scans for one query; inside, an error of the engine becomes what it says about the data.

        Args:
            lenient: as `Assembler` has it.
            text_fields: as `Assembler` has it.
            filters: the filters, for errors that are theirs.
        """
        with self.connect() as connection:
            assembler = Assembler(connection, self.resources, self.metadata, lenient, text_fields)
            try:
                yield assembler
            except duckdb.Error as error:
                said = explain(connection, error, assembler.parts)
                raise (
                    _cannot_run(said, filters) if isinstance(said, duckdb.Error) else said
                ) from error
            finally:
                assembler.close()


def _cannot_run(error: duckdb.Error, asked: object) -> Exception:
    if isinstance(error, (duckdb.InternalException, duckdb.InterruptException)):
        return error  # a fault of the engine, or somebody's wish
    kind, _, text = str(error).partition(": ")
    first = next(iter(text.strip().splitlines()), str(error))
    place = None if asked is None else str(asked)
    if isinstance(error, (duckdb.InvalidInputException, duckdb.ConversionException)):
        return InputError(
            "a value of the query does not fit the type that it is used as",
            code="invalid-value",
            place=place,
            found=first,
            expected="a value of the field's type; a date is written '2024-12-31'",
        )
    problem, found = "the query cannot be run", f"{kind}: {first}"
    return InputError(problem, code="invalid-syntax", place=place, found=found)


def _again(source: DescriptionSource, arguments: dict[str, Any]) -> Dataset:
    return Dataset(source, **arguments)
