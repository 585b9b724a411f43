"""Commands from functions: the signature is the options, the docstring the help, the result the output.

    app = room("sparse", "Sparse networks that are really faster.")

    @app.command
    def pack(model: Path, /, *, output: Output, layout: Literal["auto", "csr"] = "auto") -> Packed:
        '''Pack a pruned model ... (Google style: ``Args:`` holds the help of each option)'''

Parameters before ``/`` are arguments, those after ``*`` options. A function returns an `Answer`, which is
printed, as JSON with ``--json``, and as a page with ``--html``; every command has these options without
declaring them. A function that lies in another module is registered as ``app.command("module:function",
name=..., help=...)`` and imported when it runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnusedCliTokensError,
    validators,
)

from holdfast import progress
from holdfast.answer import Answer
from holdfast.durations import duration_text, parse_duration
from holdfast.errors import InputError
from holdfast.plain import plain

USAGE = 2
_LONE_DASH = "/dev/stdin"
"""What the parser is given for ``-``, which it would take for an option."""


def _seconds(_: Any, tokens: Sequence[Any]) -> float:
    return parse_duration(tokens[0].value)


def _integers(_: Any, tokens: Sequence[Any]) -> list[int]:
    parts = tokens[0].value.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        place, found = tokens[0].keyword, tokens[0].value
        expected = "1024 or 1024,4096"
        problem = "not whole numbers of 1 or more"
        raise InputError(problem, code="invalid-value", place=place, found=found, expected=expected)
    return list(dict.fromkeys(map(int, parts)))


def _listed(default: int | Sequence[int] | None) -> str | None:
    return str(default).strip("()").replace(" ", "") if default else None


def _stream(_: Any, tokens: Sequence[Any]) -> str:
    text: str = tokens[0].value
    return "-" if text == _LONE_DASH else text


def _duration_default(value: float | None) -> str | None:
    return None if value is None else duration_text(value)


def _days(_: Any, tokens: Sequence[Any]) -> float:
    text = tokens[0].value
    try:
        return float(text)
    except ValueError:
        return parse_duration(text) / 86_400.0


def option(
    *names: str,
    at_least: float | None = None,
    at_most: float | None = None,
    **settings: Any,
) -> Parameter:
    """What an option is called, and what stands for its value: the second part of ``Annotated``.

    Args:
        names: such as ``"--output", "-o"``; by default that of the parameter.
        at_least: the smallest number allowed.
        at_most: the largest number allowed.
        settings: ``metavar``, what stands for the value in help; ``env_var``, which gives the default;
            ``help``, for an option that several commands share; ``negative``, the name that turns it off;
            ``converter``, what reads the value.
    """
    parameters: dict[str, Any] = {
        key: value for key, value in settings.items() if value is not None
    }
    if names:
        parameters["name"] = names
    if at_least is not None or at_most is not None:
        parameters["validator"] = validators.Number(gte=at_least, lte=at_most)
    return Parameter(**parameters)


# What options of every room are and how they are read.
Duration = Annotated[
    float,
    Parameter(
        converter=_seconds,
        metavar="DURATION",
        show_default=_duration_default,
        allow_leading_hyphen=True,  # -5m is a wrong duration, not an unknown option
    ),
]
"""Seconds, written as 10m, 7d or 1h30m."""
Days = Annotated[float, Parameter(converter=_days, metavar="DAYS")]
"""Days, or a duration such as 12h."""
Share = Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1), metavar="SHARE")]
"""Between 0 and 1."""
Count = Annotated[int, Parameter(validator=validators.Number(gte=0), metavar="N")]
"""A number of things, 0 or more."""
Integers = Parameter(
    converter=_integers, n_tokens=1, metavar="N,...", show_default=_listed, negative=""
)
"""Decorates a sequence of integers: different whole numbers of 1 or more, separated by commas."""
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1), metavar="N")]
"""A number of things, 1 or more."""
Stream = Annotated[str, Parameter(converter=_stream, metavar="FILE")]
"""A file, or ``-`` for standard input or output."""
Output = Annotated[Path, Parameter(name=["--output", "-o"], metavar="PATH")]
"""Where the result is written."""
Options = Parameter(name="*")
"""Decorates a dataclass whose fields are options: ``@Options @dataclass class Window: ...``."""


@dataclass(frozen=True)
class Facts(Answer):
    """What ``--json`` prints of a command that writes its result itself to a file or a stream."""

    facts: Any
    exit_code: int = 0

    def to_dict(self) -> Any:
        """The facts."""
        return plain(self.facts)

    def rendered(self, _: bool) -> list[str]:
        """Nothing: the command has written it."""
        return []


_COMMON = Group("Options of every command", sort_key=100)
_FLAG = {"negative": "", "show_default": False}


@Parameter(name="*", group=_COMMON)
@dataclass(frozen=True)
class Common:
    """What every command takes."""

    as_json: Annotated[bool, Parameter(name="--json", **_FLAG)] = False
    """Print the result as JSON, for programs."""
    html: Annotated[Path | None, Parameter(name="--html", metavar="FILE")] = None
    """Write the result as a page."""
    save: Annotated[Path | None, Parameter(name="--save", metavar="FILE")] = None
    """Write the whole answer as JSON, to compare with `holdfast diff`."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], **_FLAG)] = False
    """No progress and no remarks."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], **_FLAG)] = False
    """Print the details behind the answer."""


@dataclass(frozen=True)
class _Streamed(Common):
    """What a command takes that prints by itself: it has no answer to save."""

    html: Annotated[None, Parameter(parse=False)] = None
    save: Annotated[None, Parameter(parse=False)] = None


def room(name: str, about: str, **settings: Any) -> App:
    """A group of commands, ``holdfast NAME ...``; register functions with ``@app.command``."""
    settings.setdefault("version_flags", [])
    return App(
        name=name,
        help=about,
        help_format="plaintext",
        help_flags=["--help", "-h"],
        default_parameter=Parameter(negative="", show_default=_default),
        **settings,
    )


def _default(value: Any) -> Any:
    """How help shows a default; None, off and empty say nothing, 0 does."""
    return None if value is None or value is False or value in ("", ()) else str(value)


_COMMON_DEFAULTS = _current = Common()


def common() -> Common:
    """The options of every command, as the one that runs was given them: for one that prints by itself."""
    return _current


def run(app: App, tokens: Sequence[str], prefix: str = "holdfast") -> int:
    """Run one command line and print its result.

    Args:
        app: of `room`; or the program itself, whose name is the prefix.
        tokens: what follows the room's name, the options of every command anywhere among them.
        prefix: the word before the room's name, as help shows it.

    Returns:
        The exit code: 0 done, 1 the answer is a failure, 2 bad usage. A command that prints by itself
        returns it, or None.

    Raises:
        HoldfastError: bad input.
    """
    # What follows -- is a command of somebody else, or names that look like options: no option of ours.
    place = [*tokens, "--"].index("--")
    root, path = app, [*tokens[:place]]
    if app.name != (prefix,):
        root, path = room(prefix, ""), [*app.name, *path]
        root.command(app)
    root.suppress_keyboard_interrupt = False  # the command line reports it
    root.meta.suppress_keyboard_interrupt = False

    def launch(
        *rest: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        common: Common = _COMMON_DEFAULTS,
    ) -> Any:
        global _current
        _current = common
        progress.set_quiet(common.quiet)
        if common.html is not None:
            from holdfast.report import warm_up

            warm_up()  # the drawing engine starts beside the computation
        rest += tuple(tokens[place:])
        _, apps, unused = root.parse_commands(rest, include_parent_meta=False)
        for group in apps[1:]:
            # Help lists commands in the order of the file, not of the alphabet.
            for order, name in enumerate(group):
                group[name].sort_key = order
        result = root(rest, exit_on_error=False, print_error=False, result_action="return_value")
        # A room without a command prints its help, and the exit status is nonzero.
        return result if unused or len(apps) == 1 or apps[-1].default_command else USAGE

    line = [_LONE_DASH if word == "-" else word for word in path]
    command = root
    for word in line:
        if word in command and not word.startswith("-"):
            command = command[word]
    if getattr(command.default_command, "__annotations__", {}).get("return") == "None":
        launch.__annotations__["common"] = _Streamed
        launch.__kwdefaults__ = {"common": _Streamed()}
    root.meta.default(launch)
    try:
        answer = root.meta(
            line,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        _complain(_explained(error), "--json" in tokens)
        return USAGE
    if isinstance(answer, Answer):
        return emit(answer, _current)
    return answer or 0


def emit(answer: Answer, common: Common) -> int:
    """Print a result as the options ask, write what they name, and give the exit code."""
    from holdfast.files import write_whole

    written = {**answer.written(), "answer": common.save, "report": common.html}
    data = answer.to_dict()
    if common.save is not None:
        document = json.dumps(answer.document(), indent=1, allow_nan=False)
        write_whole(common.save, document.encode() + b"\n")
    if common.html is not None:
        from holdfast import report

        report.write(answer.page(), common.html)
        if isinstance(data, dict) and "html" in data:
            data["html"] = common.html
    if common.as_json:
        doubts = [f"{each.text} {each.remedy}".rstrip() for each in answer.unknowns() if each.doubt]
        if isinstance(data, dict):
            data = {"doubts": doubts, **data} if doubts else data
        else:  # a list has no place for them
            for doubt in doubts:
                progress.remark(f"doubtful: {doubt}")
        print(json.dumps(plain(data), indent=2, allow_nan=False))
    else:
        from holdfast.report import terminal

        terminal.show(answer, common.verbose)
        for what, path in written.items():
            if path is not None:
                progress.remark(f"{what}: {path}")
    return answer.exit_code


def _explained(error: CycloptsError) -> str:
    """The parser's message, where it has words that only a programmer knows in other words."""
    if isinstance(error, UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or ())
        return f"too many arguments: {unused}"
    if isinstance(error, MissingArgumentError) and error.argument and error.keyword is None:
        # A keyword means that the option is there and its value is not.
        return f"missing {error.argument.name}; --help shows what this command takes"
    return str(error)


def _complain(message: str, as_json: bool) -> None:
    if as_json:
        facts = {"kind": "UsageError", "code": "usage", "message": message}
        print(json.dumps({"error": facts}, indent=2), file=sys.stderr)
    else:
        print(f"error: {message}", file=sys.stderr)
