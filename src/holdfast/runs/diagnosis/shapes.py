"""One pass over a log file: its lines -> events, and the shapes of all other lines.

All patterns are searched for in each line at once. Lines that are the same but for numbers, addresses,
blanks and punctuation are one *shape*: shapes are counted, so that what no rule knows can be told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.runs.diagnosis.events import Event, Finds, Occurrences
from holdfast.runs.diagnosis.origins import PREFIX, Moment, moment_of, rank_of_line, without_prefix
from holdfast.runs.diagnosis.reading import Block, LogFile, blocks
from holdfast.runs.diagnosis.rules import RuleSet, groups_of, searcher
from holdfast.runs.diagnosis.tracebacks import (
    FRAME,
    IGNORED,
    START,
    SUMMARY,
    Collector,
    Traceback,
    TracebackCollector,
    collector,
    is_code,
    starts,
)

TEXT = 2000
"""Bytes of a line that rules see."""
MOST_SHAPES = 50_000
"""Shapes remembered; lines of further ones are matched and counted, but no templates come of them."""
MOST_KINDS = 20_000
"""Kinds of events remembered of a file; further ranks and variants count together."""
EXAMPLE = 300
"""Bytes kept of a shape's first line."""
LOOK_BACK = 64
"""Lines before an event in which its time or its traceback is looked for."""
_FAILURES = 1000
MOST_PROGRESS = 64
"""Lines of progress that are kept of a block."""
PROGRESS = (
    r"\b(?:global[_ ]?step|step|iter|iteration|batch|update|epoch)\b\W{0,12}(\d[\d,]{0,12})"
    r"|\b(\d{1,9})/\d{1,9} \["
)
SUCCESS = (
    r"\b(?:training|pretraining|fine-?tuning|run|job)\b.{0,30}"
    r"\b(?:completed?|finished|done|succeeded|successful)\b"
    r"|\b(?:finished|completed) (?:the )?training\b|^\W{0,3}(?:all )?done\b"
    r"|\bexit(?:ed with)?(?: code)?:? 0\b"
)
_PROGRESS = re.compile(PROGRESS, re.IGNORECASE)
_NO_SUCCESS = re.compile(r"\b(?:not|fail|error|abort|unfinished|exception|kill)", re.IGNORECASE)
_LONG_AGO = -(1 << 40)
"""A place before every line that is looked back at."""
_RANK = re.compile(PREFIX.pattern.encode())
_DROPPED = (
    b"0123456789abcdefABCDEF"  # numbers, addresses, hashes
    b" \t\v\f\r\0.,:;+-%|/<>=#~^*'\"()[]{}"
    b"\xe2\x96\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"  # the blocks of which progress bars are made
)


@dataclass
class Shape:
    """Lines that differ only in numbers, addresses, blanks and punctuation."""

    count: int
    file: int
    """Index of the file that has the first one."""
    first: int
    """Its line number, from 0."""
    example: bytes
    """Its start."""
    quoted: bool
    """Whether it belongs to a traceback: its head, a frame, or source code."""
    files: set[int]
    """Indexes of the files that have one."""
    known: bool = False
    """Whether a rule matched one."""


@dataclass
class FileScan:
    """What one file holds."""

    index: int
    """Place of the file among all."""
    log: LogFile
    shapes: dict[bytes, Shape] = field(default_factory=dict)
    """Emptied once they are merged with those of the other files."""
    finds: Finds = field(default_factory=Finds)
    feeds: int = 0
    """Line feeds: the number of lines as an editor counts."""
    lines: int = 0
    """Lines, those between carriage returns counted singly."""
    bytes_read: int = 0
    cut: int = 0
    """Lines longer than what is kept of a line."""
    unshaped: int = 0
    """Lines beyond the remembered shapes."""
    broken: str = ""
    """Why the file breaks off; empty: it does not."""


class Scanner:
    """The state of a pass over one file."""

    def __init__(self, rules: RuleSet, index: int, log: LogFile) -> None:
        self.rules = rules
        self.scan = FileScan(index, log)
        self.open: list[Collector] = []
        self.whole: list[Collector] = []
        """Messages that are whole; kept until those that began before them are, too."""
        self.before: list[bytes] = []  # the last lines of the block before
        self.timed: tuple[int, int, Moment | None] = (_LONG_AGO, _LONG_AGO, None)
        """The last line whose time was asked for, the line that says it, and the time."""
        self.traceback_rule = rules.traceback_rule()
        self.patterns = rules.patterns
        landmarks = (START, SUMMARY, PROGRESS, SUCCESS)
        self.search = searcher((*(pattern for _, pattern in self.patterns), *landmarks))
        self.head, self.summary, self.step, self.success = range(
            len(self.patterns), len(self.patterns) + len(landmarks)
        )

    def take(self, block: Block) -> None:
        """Count a block's lines, and look at those in which some pattern is found."""
        scan, search = self.scan, self.search
        keys = b"\n".join(block.lines).translate(None, _DROPPED).lower().split(b"\n")
        self._feed(block, 0, self.open)
        self._count(keys, block)
        progress, steps = scan.finds.progress, list[int]()
        earlier = len(progress)
        for place, line in enumerate(block.lines):
            hits = search(_body(line))
            if hits == [self.step]:
                steps.append(place)
            elif hits and self._look(block, place, hits) and keys[place] in scan.shapes:
                scan.shapes[keys[place]].known = True
        for place in steps[:: 1 + len(steps) // MOST_PROGRESS]:  # some of each block are enough
            self._progressed(block, place)
        progress[earlier:] = sorted(progress[earlier:])
        scan.feeds += block.feeds
        scan.lines += len(block.lines)
        scan.bytes_read += block.size_bytes
        scan.cut += block.cut
        self.before = [*self.before, *block.lines[-LOOK_BACK:]][-LOOK_BACK:]
        self._keep_whole()

    def finish(self) -> FileScan:
        """End the messages that are open."""
        for each in self.open:
            each.close()
        self.whole += self.open
        self.open = []
        self._keep_whole()
        return self.scan

    def _count(self, keys: list[bytes], block: Block) -> None:
        """Count the lines of each shape; shapes that are new are remembered."""
        shapes, file = self.scan.shapes, self.scan.index
        for place, key in enumerate(keys[: len(block.lines)]):
            if (shape := shapes.get(key)) is not None:
                shape.count += 1
            elif len(shapes) >= MOST_SHAPES:
                self.scan.unshaped += 1
            else:
                line, text = block.lines[place], _text(block.lines[place])
                quoted = starts(text) is not None or self._is_quoted(block, place, text)
                number = block.numbers[place]
                shapes[key] = Shape(1, file, number, line[:EXAMPLE], quoted, {file})

    def _is_quoted(self, block: Block, place: int, text: str) -> bool:
        """Whether a line is a frame of a traceback, or source code under one."""
        if FRAME.match(without_prefix(text)):
            return True
        return "    " in text[:40] and is_code([*self._back(block, place), text])

    def _look(self, block: Block, place: int, hits: list[int]) -> bool:
        """Take what a line says; whether a rule knows it."""
        raw, line = block.lines[place], block.numbers[place]
        text = _text(raw)
        heads = self.head in hits or self.summary in hits
        if heads and (begun := collector(text, line, self._back(block, place))):
            begun.moment = self._moment(block, place, text)
            self.open.append(begun)
            self._feed(block, place + 1, [begun])
        if self.step in hits or self.success in hits:
            self._progressed(block, place, self.success in hits)
        first = min(hits)
        if first >= len(self.patterns) or self._is_quoted(block, place, text):
            return False
        number, pattern = self.patterns[first]
        groups = groups_of(pattern, _body(raw))
        named = groups.get("rank", "")
        rank = int(named) if named.isdecimal() else rank_of_line(text)
        event = Event(
            number,
            self.scan.index,
            line,
            rank,
            self._moment(block, place, text),
            text.strip(),
            tuple(groups.items()),
            groups.get("xid", ""),
        )
        self._kept(number, rank, event.variant).add(event)
        return True

    def _progressed(self, block: Block, place: int, success: bool = False) -> None:
        """Keep where the program went on, or ended well."""
        text = _text(block.lines[place])
        numbers = tuple(number for each in _PROGRESS.findall(text) for number in each if number)
        ended = success and not _NO_SUCCESS.search(without_prefix(text))
        if (numbers or ended) and not self._is_quoted(block, place, text):
            self.scan.finds.progress.append((block.numbers[place], numbers))

    def _kept(self, rule: int, rank: int | None, variant: str) -> Occurrences[Event]:
        events = self.scan.finds.events
        kind = (rule, rank, variant)
        if kind not in events and len(events) >= MOST_KINDS:
            kind = (rule, None, "")
        return events.setdefault(kind, Occurrences())

    # --- Messages of several lines

    def _feed(self, block: Block, place: int, collectors: list[Collector]) -> None:
        """Give lines to collectors until each has what it needs; those that have leave `open`."""
        for each in list(collectors):
            own_start = each.own_start
            for here in range(place, len(block.lines)):
                line = block.lines[here]
                if line.startswith(own_start):
                    each.feed(_text(line), block.numbers[here])
                else:  # of another rank: not worth decoding
                    each.pass_over()
                if each.done:
                    self.open.remove(each)
                    self.whole.append(each)
                    break

    def _keep_whole(self) -> None:
        """Keep whole messages in the order in which they began, whenever they ended."""
        oldest = min((each.start for each in self.open), default=None)
        self.whole.sort(key=lambda each: each.start)
        while self.whole and (oldest is None or self.whole[0].start < oldest):
            self._collected(self.whole.pop(0))

    def _collected(self, done: Collector) -> None:
        if not isinstance(done, TracebackCollector):
            if done.result is not None and len(self.scan.finds.failures) < _FAILURES:
                self.scan.finds.failures.append(done.result)
            return
        if (found := done.result) is None:
            return
        by_frame = self.rules.match_frames(found.final_line, found.frames)
        by_text = self.rules.match(found.final_line.encode("utf-8", "replace"))
        nothing: tuple[int, dict[str, str]] = (self.traceback_rule, {})
        # The line of an exception that no other rule knows was counted when it was read.
        known = by_frame or by_text or nothing
        if (by_frame or not by_text) and found.chained != IGNORED:
            self._raised(known[0], known[1], found)
        tracebacks = self.scan.finds.tracebacks
        kind = (known[0], found.rank, found.exception)
        if kind in tracebacks or len(tracebacks) < MOST_KINDS:
            tracebacks.setdefault(kind, Occurrences()).add(found)

    def _raised(self, rule: int, groups: dict[str, str], traceback: Traceback) -> None:
        """An event at the exception's line, for rules that know it by its traceback."""
        self._kept(rule, traceback.rank, traceback.exception).add(
            Event(
                rule,
                self.scan.index,
                traceback.line,
                traceback.rank,
                traceback.moment,
                traceback.final_line,
                tuple(groups.items()),
                traceback.exception,
            )
        )

    # --- What stands before a line

    def _back(self, block: Block, place: int) -> list[str]:
        """The starts of the lines before a place, the nearest last."""
        lines = block.lines[max(0, place - LOOK_BACK) : place]
        if place < LOOK_BACK:
            lines = [*self.before[max(0, len(self.before) - LOOK_BACK + place) :], *lines]
        return [line[:_START].decode("utf-8", "replace") for line in lines]

    def _moment(self, block: Block, place: int, text: str) -> Moment | None:
        """When a line was written: the time in it, else in the nearest line before that has one."""
        here = self.scan.lines + place
        asked, source, moment = self.timed
        times = block.times
        if own := moment_of(
            times[place].decode("ascii", "replace") if times and times[place] else text
        ):
            source, moment = here, own
        else:
            unknown = self._back(block, place) if here - asked > 1 else []
            unknown = unknown[max(0, len(unknown) - (here - asked) + 1) :]
            for distance, before in enumerate(reversed(unknown), 1):
                if found := moment_of(before):
                    source, moment = here - distance, found
                    break
        if here - source > LOOK_BACK:
            moment = None
        self.timed = (here, source, moment)
        return moment


_START = 400
"""Bytes of a line before an event that are looked at."""


def _text(line: bytes) -> str:
    return line[:TEXT].decode("utf-8", "replace")


def _body(line: bytes) -> bytes:
    """What rules see of a line: its start, without the rank that a launcher put before it."""
    found = _RANK.match(line)
    return line[found.end() if found else 0 : TEXT]


def scan_file(rules: RuleSet, chunk: int, task: tuple[int, LogFile]) -> FileScan:
    """Pass over a file.

    Args:
        rules: what to look for.
        chunk: bytes read at once; it changes nothing in the result.
        task: place of the file among all, and the file.
    """
    scanner = Scanner(rules, *task)
    reasons: list[str] = []
    for block in blocks(task[1], chunk=chunk, broken=reasons.append):
        scanner.take(block)
    scan = scanner.finish()
    scan.broken = reasons[0] if reasons else ""
    return scan
