"""Tables through Ibis: DuckDB in this process by default, Spark or another engine by URL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from holdfast.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend

DEFAULT_ENGINE = "duckdb"

_SPARK = {
    # Ibis means by x / 0 and by a failed cast what engines without ANSI checks answer: null.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_SPARK_AT_START = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SPARK_LOCAL = {
    # Nothing listens beyond this machine, and small tables are not cut into hundreds of parts.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
}


def connect(engine: str = DEFAULT_ENGINE) -> BaseBackend:
    """Open an engine.

    Args:
        engine: one of

            - ``"duckdb"``: embedded in this process;
            - ``"spark"`` or ``"spark://local[2]"``: Spark in this process, on all cores or two; it
              needs the extra ``spark`` and Java 17 or later, and listens on the loopback only;
            - ``"spark://host:7077"``: a Spark cluster, which must see the store under the same path;
            - any other URL that `ibis.connect` takes, with that engine's library installed.

            Settings of Spark follow as a query: ``"spark://local[8]?spark.driver.memory=16g"``.

    Returns:
        An Ibis backend. Connections to Spark share what runs, not their tables; `disconnect` of one
        stops it for all.

    Raises:
        InputError: if the URL names no engine that Ibis knows, or the engine does not start.
        MissingExtraError: if the extra ``spark`` is needed and not installed.
    """
    if engine in (DEFAULT_ENGINE, "duckdb://"):
        return _duckdb()
    if engine.partition("://")[0] in ("spark", "pyspark"):
        return _spark(engine)
    import ibis

    expected = "duckdb, spark, spark://local[N], spark://HOST:PORT or another Ibis URL"
    try:
        return ibis.connect(engine)
    except ImportError as error:
        raise InputError(
            f"the engine {engine!r} needs a library that is not installed",
            code="missing-extra",
            found=str(error).partition("\n")[0],
            remedy=f"pip install 'ibis-framework[{engine.partition('://')[0]}]'",
        ) from error
    except (ValueError, AttributeError) as error:
        raise InputError(
            f"unknown table engine: {engine!r}",
            code="unknown-name",
            found=str(error),
            expected=expected,
            remedy="leave --engine out to use the embedded DuckDB",
        ) from error


def read_parquet(
    connection: BaseBackend, files: Sequence[Path], name: str, schema: pa.Schema
) -> ir.Table:
    """One table over Parquet files, readable by the name `name` in the engine.

    Args:
        connection: of `connect`.
        files: of one schema; without any the table is empty.
        name: replaces a table of this name that was read before.
        schema: of the files.
    """
    paths = [str(path) for path in files]
    if connection.name == "pyspark":
        return _read_parquet_in_spark(connection, paths, name, schema)
    if not paths:
        import ibis

        return ibis.memtable(schema.empty_table())
    if connection.name == "duckdb":
        return connection.read_parquet(paths, table_name=name)
    parts = [
        connection.read_parquet(path, table_name=name if i == 0 else f"{name}_{i}")
        for i, path in enumerate(paths)
    ]
    return reduce(lambda all_parts, part: all_parts.union(part), parts)


def _duckdb() -> BaseBackend:
    import ibis

    connection = ibis.duckdb.connect()
    # Answers do not depend on row order; giving it up saves memory on large scans.
    connection.raw_sql("SET preserve_insertion_order = false")
    connection.raw_sql("SET enable_progress_bar = false")
    return connection


def _spark(engine: str) -> BaseBackend:
    try:
        import pyspark.sql  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    target, _, query = engine.partition("://")[2].partition("?")
    local = target.startswith("local") or not target
    given = dict(parse_qsl(query))
    settings = {**_SPARK, **_SPARK_AT_START, **(_SPARK_LOCAL if local else {}), **given}
    master = (target or "local[*]") if local else f"spark://{target}"
    # A session of its own: two stores opened at once both have a table `attempts`.
    session = _running_spark(master, settings).newSession()
    for key, value in {**_SPARK, **given}.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    backend = _spark_backend()
    backend.register_options()
    backend.do_connect(session)
    return backend


def _spark_backend() -> Any:
    from ibis.backends.pyspark import Backend
    from ibis.backends.sql.compilers.pyspark import PySparkCompiler

    class Compiler(PySparkCompiler):  # type: ignore[misc]  # Ibis carries no types
        __slots__ = ()

        def visit_NonNullLiteral(self, op: Any, *, value: Any, dtype: Any) -> Any:
            literal = super().visit_NonNullLiteral(op, value=value, dtype=dtype)
            # Spark reads 1.0 as a decimal and would go on with a few digits.
            return self.cast(literal, dtype) if dtype.is_floating() else literal

    class SparkBackend(Backend):  # type: ignore[misc]
        """Ibis's, with tables kept by value."""

        compiler = Compiler()

        def _create_cached_table(self, name: str, expr: ir.Table) -> ir.Table:
            self._run_pre_execute_hooks(expr)  # else Spark does not know the tables in memory
            # Spark's own cache keeps the plan too, and plans built on plans take ever longer to read.
            rows = self._session.sql(self.compile(expr)).localCheckpoint()
            rows.createTempView(name)
            return self.table(name)

        def _drop_cached_table(self, name: str) -> None:
            if self._session.sparkContext._jsc is not None:  # else Spark has stopped
                self._session.catalog.dropTempView(name)

    return SparkBackend()


def _running_spark(master: str, settings: dict[str, str]) -> Any:
    """A session of the Spark of this process, started if need be, without a word on the terminal."""
    import os
    import shutil
    from tempfile import TemporaryFile

    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is not None:
        return SparkSession(running)
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise InputError(
            "Spark needs Java, which was not found",
            code="missing-extra",
            found=f"JAVA_HOME={home}" if home else "no `java` on the PATH",
            expected="Java 17 or later",
            remedy="install it (Debian: apt install openjdk-17-jre-headless), or leave --engine out",
        )
    conf = SparkConf().setMaster(master).setAppName("holdfast").setAll(list(settings.items()))
    with TemporaryFile() as said:
        # What Java and Spark's launcher print is shown only if they fail.
        try:
            gateway = launch_gateway(conf, {"stdout": said, "stderr": said})
            # A cluster that does not answer lets the context start and then stops it.
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except (PySparkRuntimeError, Py4JError) as error:
            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
            said.seek(0)
            told = said.read().decode(errors="replace").splitlines()
            lines = [line for line in told if not line.startswith("\tat ")] or [str(error)]
            raise InputError(
                f"Spark does not start on {master}",
                code="unavailable",
                found="\n    ".join(lines[-8:]),
                expected="Java 17 or later, and a Spark that can be reached",
                remedy="leave --engine out to use the embedded DuckDB",
            ) from error


def _read_parquet_in_spark(
    connection: BaseBackend, paths: list[str], name: str, schema: pa.Schema
) -> ir.Table:
    from pyspark.sql.pandas.types import from_arrow_schema

    session = connection._session
    columns = from_arrow_schema(schema)
    # Ibis reads one path at a time; and with the schema given Spark opens no file to learn it.
    rows = session.read.schema(columns)
    frame = rows.parquet(*paths) if paths else session.createDataFrame([], columns)
    frame.createOrReplaceTempView(name)
    return connection.table(name)
