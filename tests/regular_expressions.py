"""Every regular expression of `src`, and the texts on which it might backtrack.

The texts are made from each expression's own parse tree: what leads to a repeat, what the repeat takes many
times over, and an end that does not match. Run as a program, with a limit of its CPU time and perhaps with
other expressions, it prints those that need more than a quarter of a second for 25,000 characters, as JSON.
"""

from __future__ import annotations

import ast
import json
import re
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
SHORT, LONG = 1_000, 25_000  # characters
SHORT_S, LONG_S = 0.0003, 0.25  # CPU time; a quadratic search grows 625fold between them
_CALLS = ("compile", "match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")
_ENDS = ("\0", "\n0", "")
_LIKELY = "0a _-.,:;/=+\"'()[]{}<>|\\A#%\t\n"
_SHOWN = 23  # characters of an argument
_LITERALS = 12  # of an expression
_MANY = 16  # a repeat that takes no more is not pumped

_parser: Any = import_module("re._parser")


# What the source does not tell: (file, the argument's beginning) -> the variable that holds it.
BUILT = {
    ("data/croissant/describing/splits.py", r'f"(?i)(?<![^\\W\\d_])({'): "_IN_NAME",
    ("data/croissant/describing/text_columns.py", "look"): "_LOOKS",
    ("runs/diagnosis/prefixes.py", r"b'\\{|' + b'|'.join((re"): "_WRAPPED",
    ("runs/diagnosis/templates.py", "words"): "_SEVERE",
    ("speech/speak/normalization.py", r'f"\n    (?P<address> ht'): "_PATTERN",
}
# ... -> why it needs no look here.
OTHERS = {
    (
        "carbon/formats.py",
        "layout.generation",
    ): "ours, in its TOML; of columns that match as a whole",
    ("carbon/formats.py", "layout.zone_in_name"): "ours, in its TOML: one class, at the beginning",
    ("carbon/formats.py", "split"): "ours, in its TOML; of columns that match as a whole",
    ("carbon/formats.py", "pattern"): "ours, in its TOML; matched from the beginning to the end",
    ("data/croissant/describing/splits.py", "regex"): "words between two repeats without them",
    ("data/croissant/files/hashing.py", "f'[0-9a-fA-F]{{{2 * siz"): "one class",
    (
        "data/croissant/files/patterns.py",
        "'|'.join(map(fnmatch.tr",
    ): "globs: a star is an atomic group",
    ("data/croissant/rules/forms.py", "f'[0-9A-Fa-f]{{{digits}"): "one class",
    ("data/croissant/rules/forms.py", "value"): "a stranger's: compiled, never run",
    ("data/croissant/scanning/transforms.py", "pattern"): "a stranger's: compiled here, run by RE2",
    ("fleet/formats/sacct_text.py", "b'(?m)^%b$' % re.escape"): "an escaped text",
    ("fleet/live/judge.py", "pattern"): "ours: words, without repeats",
    ("fleet/taxonomy.py", "getattr(rule, 'pattern'"): "ours are in its TOML, others the user's own",
    ("fleet/taxonomy.py", "rule.pattern"): "ours are in its TOML, others the user's own",
    ("sparse/layers.py", "f'{re.escape(start)}(we"): "an escaped text, then classes",
    ("lm/query/canonical/patterns.py", "f'(?:{text})+'"): "one class",
    ("lm/query/regex/characters.py", "expression"): "one class",
    ("lm/safety/grading.py", "'|'.join(refusals[key])"): "ours, in its TOML",
    ("lm/tokenizers/byte_level.py", "splitter"): "of the user's own model",
    (
        "profile/ops/recording.py",
        r"f'({suffixes})(\\d?d|Ce",
    ): "words, then two characters or one word",
    ("runs/diagnosis/prefixes.py", "each"): "ours: classes with limits, matched at the beginning",
    (
        "runs/diagnosis/shapes.py",
        "PREFIX.pattern.encode()",
    ): "that of the prefix, which is looked at",
}


@dataclass(frozen=True)
class Expression:
    """One regular expression of the source."""

    place: str  # file under `src/holdfast`, and the line or key
    text: str
    flags: int
    calls: frozenset[str]  # how it is applied


# --- Collecting ----------------------------------------------------------------------------------


def expressions() -> tuple[list[Expression], set[tuple[str, str]]]:
    """All of them, and those that neither the source nor `BUILT` tells: (file, the argument as written)."""
    found: list[Expression] = []
    unknown: set[tuple[str, str]] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        file, text = path.relative_to(SOURCE).as_posix(), path.read_text()
        if "import re" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        names = _constants(nodes)
        calls = list(_calls(nodes))
        named = {name for _, name in calls}
        methods = _methods(nodes)
        for call, name in calls:
            try:
                pattern = _value(call.args[0], names)
            except ValueError:
                unknown.add((file, ast.unparse(call.args[0])[:_SHOWN]))
                continue
            applied = {call.func.attr} - {"compile"} or _applied(methods, name, named)
            flags = _flags(call)
            if isinstance(pattern, bytes):
                pattern = pattern.decode("latin-1")
            found.append(Expression(f"{file}:{call.lineno}", pattern, flags, frozenset(applied)))
    for (file, argument), variable in BUILT.items():
        module = import_module("holdfast." + file.removesuffix(".py").replace("/", "."))
        for text, flags in _nested(getattr(module, variable)):
            found.append(Expression(f"{file} {variable}", text, flags, frozenset({"search"})))
        unknown.discard((file, argument))
    for path in sorted(SOURCE.rglob("*.toml")):
        file = path.relative_to(SOURCE).as_posix()
        for key, text in _patterns(tomllib.loads(path.read_text())):
            found.append(Expression(f"{file}: {key}", text, re.I, frozenset({"search"})))
    return found, unknown


def _calls(nodes: list[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """Calls of `re`, each with the name that its result gets."""
    names = {
        id(node.value): node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("re", "regex")
            and node.func.attr in _CALLS
        ):
            yield node, names.get(id(node), "")


def _constants(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _value(node: ast.expr, names: dict[str, ast.expr]) -> str | bytes:
    """A text put together from constants.

    Raises:
        ValueError: if it is not.
    """
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return text
        case ast.Name(id=name) if name in names:
            return _value(names[name], {k: v for k, v in names.items() if k != name})
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, names) + _value(right, names)  # type: ignore[operator]
        case ast.JoinedStr(values=values):
            return "".join(str(_value(each, names)) for each in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, names)
    raise ValueError(ast.unparse(node))


def _flags(call: ast.Call) -> int:
    given = [*call.args[1:], *(each.value for each in call.keywords if each.arg == "flags")]
    names = {
        node.attr for each in given for node in ast.walk(each) if isinstance(node, ast.Attribute)
    }
    flags = 0
    for name in names:
        flags |= getattr(re, name, 0) if isinstance(getattr(re, name, 0), re.RegexFlag) else 0
    return int(flags)


def _methods(nodes: list[ast.AST]) -> list[ast.Attribute]:
    """Where something of the file may apply an expression."""
    return [
        node
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in {*_CALLS} - {"compile", "sub", "split"}
    ]


def _applied(methods: list[ast.Attribute], name: str, named: set[str]) -> set[str]:
    """The methods that are called of an expression; of one without a name, those of no named one."""
    chosen = {
        node.attr
        for node in methods
        if (
            getattr(node.value, "id", "") == name
            if name
            else getattr(node.value, "id", "") not in {*named, "re"}
        )
    }
    return chosen or {"search", "fullmatch"}


def _nested(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, re.Pattern):
        text = value.pattern
        yield text if isinstance(text, str) else text.decode("latin-1"), value.flags & ~re.UNICODE
    elif isinstance(value, str):
        yield value, 0
    elif isinstance(value, (dict, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _nested(each)


def _patterns(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _patterns(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from _patterns(value, key)
    elif isinstance(data, str) and key in ("pattern", "patterns", "frame", "unless"):
        yield key, data


# --- Texts on which an expression might backtrack --------------------------------------------------


def attacks(text: str, flags: int) -> Iterator[tuple[str, str, str]]:
    """How texts begin, what is in them many times, and how they end."""
    tree = list(_parser.parse(text, flags))
    seen: set[tuple[str, str]] = set()
    likely = "".join(dict.fromkeys([*_LIKELY, *sorted(set(_literals(tree)))[:_LITERALS]]))
    for prefix, body in _repeats(tree, ""):
        # What the repeat takes once, of several kinds.
        for unit in {_sample(body, likely, place)[:200] for place in range(len(likely))}:
            if unit and (prefix, unit) not in seen:
                seen.add((prefix, unit))
                for end in _ENDS:
                    yield prefix, unit, end


def _repeats(items: list[Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    """Each repeat, with a text that leads to it."""
    for operator, argument in items:
        name = str(operator)
        for inner in _inside(name, argument):
            yield from _repeats(list(inner), prefix)
        if name.endswith("_REPEAT") and argument[1] > _MANY:
            yield prefix, list(argument[2])
            yield "", list(argument[2])
        prefix += _sample([(operator, argument)])


def _inside(name: str, argument: Any) -> list[Any]:
    if name.endswith("_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return []


def _literals(items: list[Any]) -> Iterator[str]:
    for operator, argument in items:
        if str(operator) == "LITERAL":
            yield chr(argument)
        for inner in _inside(str(operator), argument):
            yield from _literals(list(inner))


def _sample(items: list[Any], likely: str = _LIKELY, place: int = 0) -> str:
    """A text that the items match; `place`: which of the likely characters comes first."""
    first = likely[place:] + likely[:place]
    text = ""
    for operator, argument in items:
        name = str(operator)
        if name == "LITERAL":
            text += chr(argument)
        elif name == "NOT_LITERAL":
            text += next(each for each in first if ord(each) != argument)
        elif name == "ANY":
            text += first[0] if first[0] != "\n" else first[1]
        elif name == "IN":
            text += _member(argument, first)
        elif name == "BRANCH":
            text += _sample(list(argument[1][place % len(argument[1])]), likely, place)
        elif name.endswith("_REPEAT"):
            least, most, inner = argument
            text += _sample(list(inner), likely, place) * max(least, min(most, place % 2))
        elif name not in ("ASSERT", "ASSERT_NOT"):
            text += "".join(
                _sample(list(inner), likely, place) for inner in _inside(name, argument)
            )
    return text


def _member(argument: Any, likely: str) -> str:
    """A character of a class, the first likely one if it has any."""
    one = re.compile("x")
    every = likely + "".join(map(chr, range(32, 127))) + "é\u2588"
    tests: list[Callable[[str], bool]] = []
    negated = False
    for operator, value in argument:
        name = str(operator)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            tests.append(lambda c, v=value: ord(c) == v)
            every += chr(value)
        elif name == "RANGE":
            tests.append(lambda c, v=value: v[0] <= ord(c) <= v[1])
            every += chr(value[0])
        elif name == "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).rsplit("_", 1)[1]]
            letter = letter.upper() if "_NOT_" in str(value) else letter
            one = re.compile(rf"\{letter}")
            tests.append(lambda c, p=one: p.match(c) is not None)
    return next((c for c in every if any(test(c) for test in tests) != negated), "")


# --- Running -------------------------------------------------------------------------------------


class _TooLongError(Exception):
    pass


def _too_long(*_: object) -> None:
    raise _TooLongError


def is_slow(run: Callable[[str], object], text: str, limit_s: float) -> bool:
    """Whether it takes more CPU time than that; `re` looks for signals while it matches."""
    begin_s = time.process_time()
    with suppress(_TooLongError):
        signal.setitimer(signal.ITIMER_PROF, 1.2 * LONG_S)  # its clock is a coarse one
        run(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - begin_s > limit_s


def slow_on(expression: Expression) -> str | None:
    """A text on which the expression is slow, or none."""
    compiled = re.compile(expression.text, expression.flags & ~re.ASCII)
    names = {"sub": "search", "subn": "search", "findall": "search", "finditer": "search"}
    calls = {names.get(call, call).replace("split", "search") for call in expression.calls}
    for call in sorted(calls):
        run = getattr(compiled, call)
        for start, unit, end in attacks(expression.text, expression.flags):
            short = start + unit * (SHORT // len(unit)) + end
            if is_slow(run, short, SHORT_S):
                long = start + unit * (LONG // len(unit)) + end
                if is_slow(run, long, LONG_S):
                    return f"{call}: {long[:60]!r} ... {long[-5:]!r}"
    return None


def main() -> None:
    """Print the slow ones."""
    limit_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    signal.signal(signal.SIGPROF, _too_long)
    both = frozenset({"search", "fullmatch"})
    given = [Expression("argument", text, 0, both) for text in sys.argv[2:]]
    slow = {}
    for each in given or expressions()[0]:
        if (text := slow_on(each)) is not None:
            slow[f"{each.place} {each.text}"] = text
    print(json.dumps(slow, indent=1))


if __name__ == "__main__":
    main()
