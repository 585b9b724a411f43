"""One event as one line of JSON: the types of fields, checked when a line is read.

A loss or a gradient norm that is not finite, which JSON cannot represent, is the string ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, MsgspecError, Struct, json
from msgspec.structs import asdict

from holdfast.lines import LONGEST_LINE_BYTES
from holdfast.runs.recording.collectives import MESSAGES
from holdfast.runs.recording.events import FORMAT_VERSION, SPANS, Process

Kind = Literal[
    "start",
    "ready",
    "step",
    "data_wait",
    "checkpoint",
    "evaluation",
    "pause",
    "begin",
    "published",
    "alive",
    "end",
]
KINDS: tuple[str, ...] = get_args(Kind)
"""Every kind of event, in the order of `EVENTS`' dictionary."""
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_Amount = Annotated[float, Meta(ge=0)]
_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Loss = float | Literal["NaN", "Infinity", "-Infinity"] | None


class Event(Struct, gc=False):
    """The fields of a line, see `events`; None: it has none. Those of a start are in `_Start`."""

    event: Kind
    t: _Amount
    seconds: _Amount | None = None
    inner_s: _Amount | None = None
    tokens: _Amount | None = None
    samples: _Amount | None = None
    sync_s: _Amount | None = None
    background_s: _Amount | None = None
    loss: _Loss = None
    weight_norm: float | None = None
    grad_norm: _Loss = None
    step: _Whole | None = None
    bytes: _Whole | None = None
    resumed_from: _Whole | None = None
    lost: _Whole | None = None
    what: str | None = None
    reason: str | None = None
    how: str | None = None
    detail: str | None = None
    thread: str | None = None
    waits: dict[str, _Amount] | None = None

    @property
    def own_s(self) -> float:
        """Of a span, the time outside nested ones."""
        return max(0.0, (self.seconds or 0.0) - (self.inner_s or 0.0))

    @property
    def collective_s(self) -> float | None:
        """Of ``sync_s``, the part in collectives; None: not told apart."""
        if self.waits is None:
            return None
        return sum(seconds for kind, seconds in self.waits.items() if kind not in MESSAGES)

    def __post_init__(self) -> None:
        """Numbers for the texts that stand for them."""
        if self.seconds is None and self.event in SPANS:
            raise ValueError("a span without seconds")
        if type(self.loss) is str:
            self.loss = NOT_FINITE[self.loss]
        if type(self.grad_norm) is str:
            self.grad_norm = NOT_FINITE[self.grad_norm]


class _Start(Struct):
    event: Literal["start"]
    version: int
    run_id: str
    rank: Annotated[int, Meta(ge=0)]
    world_size: Annotated[int, Meta(ge=1, lt=2**31)]
    node: str
    pid: int
    boot_id: str
    launch: str
    opened_s: float
    monotonic_s: float
    lived_s: float
    gpus: float
    submitted_s: float | None = None
    labels: dict[str, str] | None = None


_events, _starts = json.Decoder(Event), json.Decoder(_Start)


def not_finite_as_text(number: float) -> str:
    """How JSON holds a number that is not finite."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def bounded_text(value: object) -> str:
    """Text of at most 500 characters that every reader can decode."""
    return str(value)[:500].encode("utf-8", "replace").decode("utf-8")


def decode(line: bytes) -> Event:
    """The event of a line that is not the first of its file; unknown fields are passed over.

    Raises:
        ValueError: with the reason, in words, why the line cannot be used.
    """
    event: Event = _decoded(_events, line)
    if event.event == "start":
        raise ValueError("a second start in one file")
    return event


def process_of(line: bytes, file: Path) -> Process:
    """The process whose file begins with this line.

    Raises:
        ValueError: with the reason, if it is not a start event of this version of the format.
    """
    start: _Start = _decoded(_starts, line)
    if start.version != FORMAT_VERSION:
        written = f"written in version {start.version} of the format"
        raise ValueError(f"{written}; this reads {FORMAT_VERSION}")
    if start.rank >= start.world_size:
        raise ValueError("the rank is not one of the ranks")
    told = asdict(start)
    del told["event"], told["version"]
    told |= {"lived_s": max(0.0, start.lived_s), "labels": start.labels or {}}
    return Process(file=file, **told)


def _decoded(decoder: json.Decoder[Any], line: bytes) -> Any:
    if len(line) >= LONGEST_LINE_BYTES:  # a reader keeps no more of a line
        raise ValueError("longer than a line can be")
    try:
        return decoder.decode(line)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except (MsgspecError, UnicodeDecodeError) as error:
        # "Expected `float` >= 0.0 - at `$.t`"
        problem, _, place = str(error).replace("`", "").partition(" - at $.")
        raise ValueError(f"{place}: {problem}" if place else problem) from None
