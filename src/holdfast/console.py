"""What the commands of every room share: options, durations, and how a result is printed.

A command takes the shared options by their types, calls the function of the same name, and hands the
result to `emit`:

    def mttf(store: Path, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
        emit(open_store(store).mttf(), as_json, table_of_mttf)

The options may stand before the room (``holdfast --json fleet mttf X``) or after the command.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import typer

from holdfast import progress
from holdfast.tables import DEFAULT_ENGINE

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


class Result(Protocol):
    """What a room's function returns."""

    def to_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The JSON that programs read, with stable keys."""


_Result = TypeVar("_Result", bound=Result)
_Value = TypeVar("_Value")


def _or_given_before(name: str, default: _Value) -> Callable[[typer.Context, _Value], _Value]:
    """A callback: an option left at its default takes what stands before the room's name."""

    def inherit(context: typer.Context, value: _Value) -> _Value:
        if value != default:
            return value
        given: _Value | None = context.find_root().params.get(name)
        return value if given is None else given

    return inherit


_quiet_before = _or_given_before("quiet", False)


def _silence(context: typer.Context, value: bool) -> bool:
    quiet = _quiet_before(context, value)
    progress.set_quiet(quiet)
    return quiet


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as JSON, for programs.",
        callback=_or_given_before("as_json", False),
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress and no remarks.", callback=_silence),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print the details behind the answer.",
        callback=_or_given_before("verbose", False),
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="URL",
        help="Where tables are computed: duckdb, spark://HOST:PORT, spark://local[N], any Ibis URL.",
        callback=_or_given_before("engine", DEFAULT_ENGINE),
    ),
]

_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[wdhms])\s*")


def duration(text: str | float) -> float:
    """Seconds in a duration such as ``60m``, ``7d``, ``90s``, ``1h30m`` or ``10`` (seconds).

    Use it as ``typer.Option(parser=duration, metavar="DURATION")``.

    Raises:
        typer.BadParameter: if the text is no duration, or units repeat or grow.
    """
    if isinstance(text, (int, float)):
        return float(text)
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", bare):
        return float(bare)
    total, position, last = 0.0, 0, math.inf
    while part := _PART.match(bare, position):
        size = _SECONDS[part[2]]
        if size >= last:
            break
        total, position, last = total + float(part[1]) * size, part.end(), size
    if not bare or position < len(bare):
        raise typer.BadParameter(
            f"{text!r} is no duration; write for example 60m, 7d, 90s or 1h30m "
            "(units w, d, h, m, s, ms, the largest first)"
        )
    return total


def duration_text(seconds: float) -> str:
    """A duration as `duration` reads it, ``"1h30m"``, ``"7.5s"``."""
    seconds = round(seconds, 6 if seconds < 1 else 3 if seconds < 60 else 0)
    if 0 < seconds < 1:
        return f"{1000 * seconds:.6g}ms"
    parts, rest = "", seconds
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        count, rest = divmod(rest, size)
        parts += f"{count:.0f}{unit}" if count else ""
    return parts + f"{rest:.6g}s" if rest or not parts else parts


def emit(result: _Result, as_json: bool, render: Callable[[_Result], RenderableType | str]) -> None:
    """Print a result on stdout: as JSON, or as what `render` makes of it."""
    if as_json:
        print(json.dumps(plain(result.to_dict()), indent=2, allow_nan=False))
        return
    from rich.console import Console

    # In a pipe there is no screen to fit: give tables the room they need.
    console = Console(width=None if sys.stdout.isatty() else 160)
    shown = render(result)
    # Lines of text stay whole: programs and editors look for the places that they name.
    console.print(shown, markup=False, highlight=False, soft_wrap=isinstance(shown, str))


def remark(text: str, quiet: bool = False) -> None:
    """Print a line for people on stderr, such as where a command wrote its file."""
    if not quiet:
        print(text, file=sys.stderr)


def table(
    columns: Mapping[str, Literal["left", "right"]],
    rows: Iterable[Sequence[object]],
    title: str = "",
    caption: str = "",
) -> Table:
    """A table for the terminal.

    Args:
        columns: header, with its unit, -> alignment; numbers stand right.
        rows: cells, formatted with `holdfast.numbers`; anything else prints as `str` gives it.
        title: the line above.
        caption: the line below.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=box.SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        caption=Text(caption) if caption else None,
        caption_justify="left",
        pad_edge=False,
    )
    for header, justify in columns.items():
        made.add_column(Text(header), justify=justify)
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities null, times ISO, Arrow tables as records."""
    if value is None or isinstance(value, (bool, int, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, Set):
        return sorted(plain(part) for part in value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, PurePath):
        return str(value)
    for convert in ("to_pylist", "as_py", "tolist", "to_dict", "item"):  # Arrow, NumPy, results
        if hasattr(value, convert):
            return plain(getattr(value, convert)())
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON cannot")
