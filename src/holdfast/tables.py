"""SQL on tables: DuckDB in this process by default, Spark by URL.

Queries are written once, in DuckDB's dialect and in the subset of it that sqlglot translates to Spark.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from holdfast.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_ENGINE = "duckdb"
SMALL_BYTES = 1 << 20  # of Parquet

_SPARK = {
    # As in DuckDB, what cannot be computed is null, not the end of the query.
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


class Engine(ABC):
    """What answers queries. Names are those of views and tables of this connection alone."""

    @abstractmethod
    def parquet(self, name: str, files: Sequence[Path], schema: pa.Schema) -> None:
        """Name the rows of Parquet files of one schema; without files the table is empty."""

    @abstractmethod
    def load(self, name: str, table: pa.Table) -> None:
        """Name a table in memory."""

    @abstractmethod
    def view(self, name: str, query: str) -> None:
        """Name a query."""

    @abstractmethod
    def keep(self, name: str, query: str, *, as_written: bool = False) -> None:
        """Run a query and name its rows.

        Args:
            name: of the rows.
            query: what gives them.
            as_written: its joins hold the table on their right in memory and read the other past it,
                where no estimate tells that the left one is far larger.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the engine holds. Connections to Spark share it: closing one stops all."""

    @abstractmethod
    def _table(self, query: str) -> pa.Table: ...

    def arrow(self, query: str) -> pa.Table:
        """The rows of a query. Sums of whole numbers are int64, other decimals float64."""
        import pyarrow as pa

        table = self._table(query)
        for place, field in enumerate(table.schema):
            if pa.types.is_decimal(field.type):
                kind = pa.float64() if field.type.scale else pa.int64()
                table = table.set_column(place, field.name, table.column(place).cast(kind))
        return table


class _WithoutPandas:
    """Finds modules as if pandas were not installed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, a third of a second, at the first list that it converts.

    For commands whose lists hold no values of pandas; `to_pandas` still works.
    """
    if "pandas" not in sys.modules:
        import pyarrow

        sys.meta_path.insert(0, _WithoutPandas)  # type: ignore[arg-type]
        try:
            pyarrow.array([0])
        finally:
            sys.meta_path.remove(_WithoutPandas)  # type: ignore[arg-type]


def literal(value: str | int | float | bool | Sequence[Any] | None) -> str:
    """A value as SQL; a float is a DOUBLE and a sequence (not empty) the list of IN."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return f"CAST({value!r} AS DOUBLE)"
    return f"({', '.join(literal(each) for each in value)})"


def connect(engine: str = DEFAULT_ENGINE) -> Engine:
    """Open an engine.

    Args:
        engine: one of

            - ``"duckdb"``: embedded in this process;
            - ``"spark"`` or ``"spark://local[2]"``: Spark in this process, on all cores or two; it
              needs the extra ``spark`` and Java 17 or later, and listens on the loopback only;
            - ``"spark://host:7077"``: a Spark cluster, which must see the store under the same path.

            Settings of Spark follow as a query: ``"spark://local[8]?spark.driver.memory=16g"``.

    Raises:
        InputError: if the URL names no engine, or the engine does not start.
        MissingExtraError: if the extra ``spark`` is needed and not installed.
    """
    if engine in (DEFAULT_ENGINE, "duckdb://"):
        return _DuckDB()
    if engine.partition("://")[0] in ("spark", "pyspark"):
        return _Spark(engine)
    raise InputError(
        f"unknown table engine: {engine!r}",
        code="unknown-name",
        found=engine,
        expected="duckdb, spark, spark://local[N] or spark://HOST:PORT",
        remedy="leave --engine out to use the embedded DuckDB",
    )


class _DuckDB(Engine):
    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect()
        # Answers do not depend on row order; giving it up saves memory on large scans.
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute("SET enable_progress_bar = false")

    def parquet(self, name: str, files: Sequence[Path], schema: pa.Schema) -> None:
        if files:
            paths = ", ".join(literal(str(file)) for file in files)
            # Small files are read once: to open them for every query takes longer than the query.
            name_rows = (
                self.keep if sum(f.stat().st_size for f in files) < SMALL_BYTES else self.view
            )
            name_rows(name, f"SELECT * FROM read_parquet([{paths}])")
        else:
            self.load(name, schema.empty_table())

    def load(self, name: str, table: pa.Table) -> None:
        self._connection.register(name, table)

    def view(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")

    def keep(self, name: str, query: str, *, as_written: bool = False) -> None:
        made = f"CREATE OR REPLACE TABLE {name} AS {query}"
        if not as_written:
            self._connection.execute(made)
            return
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            self._connection.execute(made)
        finally:
            self._connection.execute("RESET disabled_optimizers")

    def close(self) -> None:
        self._connection.close()

    def _table(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()


class _Spark(Engine):
    def __init__(self, engine: str) -> None:
        try:
            import pyspark.sql  # noqa: F401
        except ModuleNotFoundError as error:
            raise MissingExtraError("pyspark", "spark") from error
        target, _, query = engine.partition("://")[2].partition("?")
        local = target.startswith("local") or not target
        given = dict(parse_qsl(query))
        settings = {**_SPARK, **_SPARK_AT_START, **(_SPARK_LOCAL if local else {}), **given}
        master = (target or "local[*]") if local else f"spark://{target}"
        # A new session: two stores opened at once both have a table `attempts`.
        self._session = _running_spark(master, settings).newSession()
        for key, value in {**_SPARK, **given}.items():
            if self._session.conf.isModifiable(key):
                self._session.conf.set(key, value)

    def parquet(self, name: str, files: Sequence[Path], schema: pa.Schema) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = from_arrow_schema(schema)
        # With the schema given Spark opens no file to learn it.
        rows = self._session.read.schema(columns)
        paths = [str(file) for file in files]
        frame = rows.parquet(*paths) if paths else self._session.createDataFrame([], columns)
        frame.createOrReplaceTempView(name)

    def load(self, name: str, table: pa.Table) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = from_arrow_schema(table.schema)
        rows = [tuple(row.values()) for row in table.to_pylist()]
        self._session.createDataFrame(rows, columns).createOrReplaceTempView(name)

    def view(self, name: str, query: str) -> None:
        self._run(query).createOrReplaceTempView(name)

    def keep(self, name: str, query: str, *, as_written: bool = False) -> None:
        # Spark's own cache keeps the plan too, and plans built on plans take ever longer to read.
        self._run(query).localCheckpoint().createOrReplaceTempView(name)

    def close(self) -> None:
        self._session.stop()

    def _table(self, query: str) -> pa.Table:
        return self._run(query).toArrow()

    def _run(self, query: str) -> Any:
        return self._session.sql(spark_sql(query))


def spark_sql(query: str) -> str:
    """A query of DuckDB's dialect in Spark's."""
    import sqlglot
    from sqlglot import exp

    def translated(node: Any) -> Any:
        if isinstance(node, exp.PercentileCont):
            return exp.func("percentile", node.this, node.expression)
        # Spark reads 1.5 as a decimal and would go on with a few digits.
        real = isinstance(node, exp.Literal) and not node.is_string and not node.this.isdigit()
        return exp.cast(node, "double") if real and not isinstance(node.parent, exp.Cast) else node

    return str(sqlglot.parse_one(query, read="duckdb").transform(translated).sql(dialect="spark"))


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
