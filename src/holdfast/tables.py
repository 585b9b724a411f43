"""Tables through Ibis: DuckDB in this process by default, Spark or another engine by URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from ibis.backends import BaseBackend

DEFAULT_ENGINE = "duckdb"


def connect(engine: str = DEFAULT_ENGINE) -> BaseBackend:
    """Open an engine.

    Args:
        engine: ``"duckdb"`` (embedded), ``"spark"`` or ``"spark://local[2]"`` or
            ``"spark://host:7077"`` (needs the extra ``spark``), or any URL that `ibis.connect` takes.

    Returns:
        An Ibis backend.

    Raises:
        InputError: if the URL names no engine that Ibis knows.
        MissingExtraError: if the engine's library is not installed.
    """
    if engine in (DEFAULT_ENGINE, "duckdb://"):
        return _duckdb()
    scheme = urlsplit(engine).scheme or engine
    if scheme in ("spark", "pyspark"):
        return _spark(engine)
    import ibis

    try:
        return ibis.connect(engine)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or scheme, scheme) from error
    except (ValueError, AttributeError) as error:
        raise InputError(
            f"no table engine answers to {engine!r}",
            found=str(error),
            expected="duckdb, spark://HOST:PORT, spark://local[N] or another Ibis URL",
            remedy="leave --engine out to use the embedded DuckDB",
        ) from error


def read_parquet(connection: BaseBackend, files: Sequence[Path], name: str) -> ir.Table:
    """One table over Parquet files of one schema, readable by the name `name` in the engine."""
    paths = [str(path) for path in files]
    return connection.read_parquet(paths if connection.name == "duckdb" else paths, table_name=name)


def _duckdb() -> BaseBackend:
    import ibis

    connection = ibis.duckdb.connect()
    # Answers do not depend on row order; giving it up saves memory on large scans.
    connection.raw_sql("SET preserve_insertion_order = false")
    connection.raw_sql("SET enable_progress_bar = false")
    return connection


def _spark(engine: str) -> BaseBackend:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    import ibis

    target = engine.partition("://")[2] or "local[*]"
    master = target if target.startswith("local") else f"spark://{target}"
    session = (
        SparkSession.builder.master(master)
        .appName("holdfast")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    return ibis.pyspark.connect(session)
