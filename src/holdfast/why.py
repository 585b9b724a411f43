"""`holdfast why PATH`: which room reads a file or folder, its headline, and the command to run next.

`KINDS` lists what can be recognized, the most particular first. A kind is recognized by content, never by
a name alone; its headline is what the room itself answers.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import SCHEMA, Answer, ColumnFormat, Section, Table, Unknown
from holdfast.command import room
from holdfast.errors import HoldfastError, InputError
from holdfast.fleet.formats import recognise as recognize_log
from holdfast.numbers import counted, percent, size
from holdfast.opening import first_bytes, is_compressed, open_source, unreadable
from holdfast.rooms import lacking

app = room("why", "Say what a file or folder is, its headline, and the command to run next.")

MOST_FILES = 500
"""Files of a folder that are looked at: enough to know what it holds."""
MOST_BYTES = 64_000_000
"""Larger files are recognized, and left to the command that has a progress bar."""
MOST_NAMED = 5
"""Files in an error, of those without anything to recognize."""
HEAD = 65_536
FST_MAGIC = b"\xd6\xfd\xb2\x7e"


@dataclass(frozen=True)
class Kind:
    """Something that a room reads."""

    what: str
    test: Callable[[Path, bytes], bool]
    """Called with the path and the first bytes of the (decompressed) file; with ``b""`` for a folder."""
    headline: Callable[[Path], str]
    """The room's own answer in one sentence."""
    command: str
    """Next command to run, starting with the room's name; ``{}`` stands for the path."""
    read: Literal["alone", "by folder", "all"] = "alone"
    """Files that the command takes together: one, those of a folder, or all below the path."""

    @property
    def room(self) -> str:
        """The room that reads it."""
        return self.command.partition(" ")[0]


@dataclass(frozen=True)
class Match:
    """A kind of input found at a path."""

    kind: Kind
    path: Path
    files: int = 1
    """Number of files of this kind."""


@dataclass(frozen=True)
class Gap(Unknown):
    """Something that could not be told."""

    code: str = ""
    """``missing-extra``, ``limit-exceeded``, ``empty-input``, ``damaged``, ``unreadable``, or a room's."""


@dataclass(frozen=True)
class Why(Answer):
    """What a path holds, and what to do with it."""

    path: Path
    matches: tuple[Match, ...]
    headlines: tuple[str | None, ...]
    """Parallel to `matches`; None where the room could not answer, or was not asked."""
    gaps: tuple[Gap, ...]
    """Why not, and what was not looked at."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"What is {self.path}?"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast why``."""
        rows = [
            {"what": f.kind.what, "room": f.kind.room, "path": str(f.path), "files": f.files}
            | {"headline": headline, "next": command(f)}
            for f, headline in zip(self.matches, self.headlines, strict=True)
        ]
        return {"path": str(self.path), "found": rows, "unknown": list(map(asdict, self.gaps))}

    def sections(self) -> Sequence[Section]:
        """One row per kind of data."""
        columns = {
            "what": ColumnFormat("Data"),
            "files": ColumnFormat("Files"),
            "headline": ColumnFormat("Headline"),
            "next": ColumnFormat("Next command"),
        }
        first, headline = self.matches[0], self.headlines[0]
        many = counted(first.files, "file") + " of " if first.files > 1 else ""
        sentence = f"{self.path}: {many}{first.kind.what}."
        sentence += f" {headline}" if headline else ""
        table = pa.Table.from_pylist(self.to_dict()["found"])
        return [Section("data", "What is it?", sentence, tables=[Table(table, columns)])]

    def unknowns(self) -> Sequence[Unknown]:
        """Headlines that could not be computed, and files that were not looked at."""
        return self.gaps


@app.default
def why(path: Path, /) -> Why:
    """Say what a file or folder is, its headline, and the command to run next.

    Args:
        path: A file or folder: a scheduler log, health events, a store, events or dumps of a training
            run, traces, checkpoints, a federated run, a Croissant description, records, a transducer, a
            model, images, tables (CSV, Parquet, JSON Lines).
    """
    try:
        there = path.is_file() or path.is_dir()
    except OSError as error:  # a folder above it is closed to us
        raise unreadable(path, error) from error
    if not there:
        raise InputError("no such file or folder", code="not-found", path=path)
    search = _Search(path)
    matches = search.matches()
    if not matches:
        raise search.nothing()
    headlines: list[str | None] = []
    for entry in matches:
        try:
            _check_size(entry.path)
            headlines.append(" ".join(entry.kind.headline(entry.path).split()))
        except Exception as error:  # one room's failure is not the others'
            headlines.append(None)
            search.gaps.append(_gap(entry.kind, error))
    return Why(path, tuple(matches), tuple(headlines), tuple(dict.fromkeys(search.gaps)))


def command(match: Match) -> str:
    """The next command line for what stands at a path."""
    place = str(match.path)
    if match.kind.room == "lm":
        place = ("ngram:" if match.path.is_file() else "hf:") + place
    elif place.startswith("-"):  # no option
        place = f"./{place}"
    return f"holdfast {match.kind.command.format(shlex.quote(place))}"


def _gap(kind: Kind, error: Exception) -> Gap:
    """Why a room could not look at something."""
    if isinstance(error, ImportError):
        error = lacking(error, kind.command.split()) or error
    if isinstance(error, HoldfastError):
        code, text, remedy = error.code, str(error), getattr(error, "remedy", None)
    else:
        code, text, remedy = "failed", f"{type(error).__name__}: {error}", "Please report it."
    text = " ".join(text.partition("\n  remedy:")[0].split()).rstrip(".")
    return Gap(f"{kind.what}: {text}.", remedy or "", code=code)


def _check_size(path: Path) -> None:
    total, files = 0, [path] if path.is_file() else filter(Path.is_file, path.rglob("*"))
    for number, file in enumerate(files):
        total += file.stat().st_size
        if is_compressed(file):
            with open_source(file) as source:
                while total <= MOST_BYTES and (piece := source.read(HEAD)):
                    total += len(piece)
        if total > MOST_BYTES or number >= MOST_FILES:
            found = f"more than {size(MOST_BYTES)} or {MOST_FILES} files"
            raise InputError("too large for a headline", code="limit-exceeded", found=found)


class _Search:
    """What a path is; of a folder that is nothing itself, what the files in it are.

    Attributes:
        gaps: what was not looked at, and why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gaps: list[Gap] = []
        self._others = 0
        """Files of no known kind."""

    def matches(self) -> list[Match]:
        """What was found."""
        kinds: dict[tuple[str, Path], Match] = {}
        for number, (entry, kind) in enumerate(self._walk()):
            if number >= MOST_FILES:
                text = f"Only the first {MOST_FILES} files and folders were looked at."
                self.gaps.append(Gap(text, "Name a folder below this one.", code="limit-exceeded"))
                break
            if kind is None:
                continue
            folder = entry if entry == self.path else entry.parent
            place = {"alone": entry, "by folder": folder, "all": self.path}[kind.read]
            seen = kinds.get((kind.what, place))
            files = 1 if seen is None else seen.files + 1
            kinds[kind.what, place] = Match(kind, place, files)
        found = list(kinds.values())
        # Beside a log, a plain table is a part of it.
        return [match for match in found if match.kind not in PLAIN] or found

    def nothing(self) -> InputError:
        """Why nothing was found."""
        codes = {gap.code for gap in self.gaps} or {"" if self._others else "empty-input"}
        alone = len(codes) == 1 and (not self._others or "limit-exceeded" in codes)
        code = codes.pop() if alone else "unknown-format"
        return InputError(
            "cannot tell what this is" if alone else "nothing here that holdfast reads",
            code=code,
            path=self.path,
            found=" ".join(gap.text for gap in self.gaps[:MOST_NAMED]),
            expected="; ".join(kind.what for kind in KINDS),
            remedy="name the room's command yourself; `holdfast --help` lists the rooms",
        )

    def _walk(self) -> Iterator[tuple[Path, Kind | None]]:
        """Files and folders, and what they are; not below what is recognized as a whole."""
        waiting = [self.path]
        while waiting:
            path = waiting.pop()
            inside: list[Path] = []
            kind = None
            try:
                if path.is_dir():
                    kind = self._kind(path, b"")
                    if kind is None and (path == self.path or not path.is_symlink()):
                        inside = sorted(path.iterdir(), reverse=True)
                elif path.is_file():  # a pipe would wait for its writer
                    head = first_bytes(path)[:HEAD]
                    if head.strip():
                        kind = self._kind(path, head)
                        self._others += kind is None
                    else:
                        self.gaps.append(Gap(f"{path}: the file is empty.", code="empty-input"))
            except Exception as error:  # a library that decompresses raises what it likes
                cause = error.__cause__ or error
                code = "unreadable" if getattr(cause, "errno", None) else "damaged"
                self.gaps.append(Gap(f"{path}: {cause}.", code=code))
            yield path, kind
            waiting += [each for each in inside if not each.name.startswith(".")]

    def _kind(self, path: Path, head: bytes) -> Kind | None:
        for kind in KINDS:
            try:
                if kind.test(path, head):
                    return kind
            except ImportError as error:
                self.gaps.append(_gap(kind, error))
            except Exception:  # what a test stumbles over is not of its kind
                continue
        return None


# What is what.


def _is_json_with(*words: bytes) -> Callable[[Path, bytes], bool]:
    return lambda _, head: head.lstrip()[:1] == b"{" and all(word in head for word in words)


def _is_store(path: Path, _: bytes) -> bool:
    return path.is_dir() and "sources" in json.loads((path / "store.json").read_text())


def _is_croissant(path: Path, head: bytes) -> bool:
    return _is_json_with(b'"@context"')(path, head) and any(
        word in head for word in (b"mlcommons.org/croissant", b'"recordSet"', b'"cr:recordSet"')
    )


def _is_records(path: Path, head: bytes) -> bool:
    return head.startswith(b"\x89PCR") or (path.is_dir() and (path / "manifest.parquet").exists())


def _is_signal(_: Path, head: bytes) -> bool:
    from holdfast.carbon.formats import recognize

    return bool(recognize(head))


def _is_cluster_log(path: Path, head: bytes) -> bool:
    return bool(head) and recognize_log(path) is not None


def _is_fst_text(_: Path, head: bytes) -> bool:
    lines = [line.split() for line in head.split(b"\n")[:-1][:20]]
    return len(lines) > 1 and all(
        0 < len(words) <= 5 and all(word.isdigit() for word in words[: 1 + (len(words) > 2)])
        for words in lines
    )


def _is_events(path: Path, head: bytes) -> bool:
    return bool(re.fullmatch(r"rank-\d+-.*\.jsonl", path.name)) and head[:1] == b"{"


def _is_dump(_: Path, head: bytes) -> bool:
    return head[:1] in (b"{", b"\x80") and b"pg_config" in head and b"entries" in head


def _is_steps(_: Path, head: bytes) -> bool:
    columns = re.split(rb"[,\t|;]", head.split(b"\n")[0].strip().lower())
    return {b"rank", b"step"} <= set(columns)


def _is_checkpoints(path: Path, _: bytes) -> bool:
    from holdfast.runs.checkpointing.folder import look

    if not path.is_dir() or not any(path.glob("step*")):
        return False
    folder = look(path)
    return bool(folder.checkpoints or folder.unfinished)


def _is_federated(path: Path, _: bytes) -> bool:
    state = path / "state.safetensors"
    if not state.is_file():  # rooms and libraries are imported where something can be theirs
        return False
    from holdfast.federated.state import read_noted

    return "plan" in read_noted(state)


def _is_model(path: Path, head: bytes) -> bool:
    if head.lstrip().startswith(b"\\data\\"):
        return True
    return path.is_dir() and "model_type" in json.loads((path / "config.json").read_text())


def _is_training_log(_: Path, head: bytes) -> bool:
    signs = (
        b"Traceback (most recent call last)",
        b"torch.distributed",
        b"NCCL ",
        b"CUDA out of memory",
    )
    return any(sign in head for sign in (*signs, b"CUDA error"))


def _of_fleet(path: Path) -> str:
    from holdfast.fleet import ingest, report

    with TemporaryDirectory(prefix="holdfast-") as store:
        if not (path / "store.json").exists():
            ingest([path], store)
            path = Path(store)
        finding = report(path).findings()[0]
    return " ".join((finding.lead, finding.text))


def _of_croissant(path: Path) -> str:
    from holdfast.data.croissant import validate

    result = validate(path).to_dict()
    errors, warnings = (counted(len(result[name]), name[:-1]) for name in ("errors", "warnings"))
    return f"{errors} and {warnings}."


def _of_records(path: Path) -> str:
    from holdfast.data.records import info

    result = info(str(path))
    return f"{counted(result.images, 'image')} in {counted(result.records, 'record')}."


def _of_fst(path: Path) -> str:
    from holdfast.automata import Fst, describe

    result = describe(Fst.read(path)).to_dict()
    return f"{counted(result['states'], 'state')} and {counted(result['arcs'], 'arc')}."


def _of_fst_text(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    labels = {word for line in lines for word in line.split()[2:4]}
    symbols = (
        ""
        if all(label.isdigit() for label in labels)
        else "; labels need --isymbols and --osymbols"
    )
    return f"{counted(len(lines) - (not lines[-1]), 'line')}{symbols}."


def _of_events(path: Path) -> str:
    from holdfast.runs import report

    return str(report(path).to_dict()["findings"][0])


def _of_runs(function: str) -> Callable[[Path], str]:
    """The sentence that a function of the runs answers with."""

    def headline(path: Path) -> str:
        from holdfast import runs

        return str(getattr(runs, function)(path).to_dict()["sentence"])

    return headline


def _of_signal(path: Path) -> str:
    from holdfast.carbon import read_signal

    return "; ".join(text for _, text in read_signal(path).inputs()) + "."


def _of_checkpoints(path: Path) -> str:
    from holdfast.runs.checkpointing.folder import look

    return f"{counted(len(look(path).checkpoints), 'checkpoint')}."


def _of_federated(path: Path) -> str:
    from holdfast.federated.state import read_noted

    noted = read_noted(path / "state.safetensors")
    rounds = counted(len(noted["history"]), "round")
    unused = counted(len(noted["failures"]), "update")
    measured = [row["accuracy"] for row in noted["history"] if row["accuracy"]]
    if not measured:
        return f"{rounds}, {unused} not used; no test data."
    mean = sum(measured[-1].values()) / len(measured[-1])
    devices = counted(len(measured[-1]), "device")
    return f"{rounds}, {unused} not used; mean accuracy {percent(mean)} on {devices}."


def _of_model(path: Path) -> str:
    if path.is_file():
        return "An n-gram model."
    return f"A {json.loads((path / 'config.json').read_text())['model_type']} model."


def _is_image(_: Path, head: bytes) -> bool:
    from holdfast.data.records.sources.example import MAGIC_BYTES, image_kind

    return image_kind(head[:MAGIC_BYTES]) is not None


def _is_table(path: Path, head: bytes) -> bool:
    from holdfast.data.croissant.describing.places import Kind as FileKind
    from holdfast.data.croissant.describing.places import kind_of

    kind, media_type = kind_of(path.name)
    if kind is not FileKind.TABLE or path.is_dir():
        return False
    if media_type in ("text/csv", "text/tab-separated-values"):
        lines = head.decode("utf-8", "replace").splitlines()[:20]
        widths = [{len(row) for row in csv.reader(lines, delimiter=sep) if row} for sep in ",;\t|"]
        return len(lines) > 1 and any(len(each) == 1 and each != {1} for each in widths)
    begins = {"application/jsonlines": b"{", "application/json": b"["}.get(media_type)
    return head.lstrip()[:1] == begins or head.startswith((b"PAR1", b"ARROW1"))


def _of_images(path: Path) -> str:
    from holdfast.data.records import open_source

    return f"{counted(len(open_source(path)), 'image')}."


def _of_tables(path: Path) -> str:
    from holdfast.data.croissant import describe

    described = describe(path, checksums=False, sample_rows=1000)
    if not (records := described.metadata.get("recordSet", [])):
        reasons = [note.text for note in described.notes if note.about and note.kind == "unknown"]
        raise InputError("no table can be read", code="invalid-format", found="; ".join(reasons))
    fields = sum(len(each["field"]) for each in records)
    return f"{counted(len(records), 'record set')} with {counted(fields, 'field')}."


def _of_answer(path: Path) -> str:
    try:
        return str(json.loads(path.read_text())["headline"])
    except (ValueError, KeyError) as error:
        raise InputError(
            "not a whole answer", code="damaged", path=path, found=str(error)
        ) from error


PLAIN = (
    Kind("images", _is_image, _of_images, "data records write {} -o records", "all"),
    Kind("tables", _is_table, _of_tables, "data croissant describe {}", "all"),
)
KINDS = (
    Kind("a saved answer", _is_json_with(f'"{SCHEMA}"'.encode()), _of_answer, "diff {} OTHER"),
    Kind("a store of a fleet", _is_store, _of_fleet, "fleet report {} --html report.html"),
    Kind("a Croissant description", _is_croissant, _of_croissant, "data croissant validate {}"),
    Kind("progressive records", _is_records, _of_records, "data records info {}"),
    Kind("a model", _is_model, _of_model, "lm query search --model {} --regex PATTERN"),
    Kind("a transducer", lambda _, head: head.startswith(FST_MAGIC), _of_fst, "fst info {}"),
    Kind("flight records", _is_dump, _of_runs("hang"), "runs hang {}", "by folder"),
    Kind(
        "traces",
        _is_json_with(b'"traceEvents"'),
        _of_runs("stragglers"),
        "runs stragglers {}",
        "by folder",
    ),
    Kind("step times", _is_steps, _of_runs("stragglers"), "runs stragglers {}"),
    Kind("events of a run", _is_events, _of_events, "runs report {} --html run.html", "by folder"),
    Kind("checkpoints", _is_checkpoints, _of_checkpoints, "runs checkpoints {}"),
    Kind("a federated run", _is_federated, _of_federated, "federated run CONFIG.toml --resume"),
    Kind("a grid signal", _is_signal, _of_signal, "carbon plan --load LOAD --signal {}"),
    Kind("logs of a cluster", _is_cluster_log, _of_fleet, "fleet ingest {} -o store", "all"),
    Kind("a transducer as text", _is_fst_text, _of_fst_text, "fst compile {} -o machine.fst"),
    Kind(
        "logs of a training run", _is_training_log, _of_runs("diagnose"), "runs diagnose {}", "all"
    ),
    *PLAIN,
)
