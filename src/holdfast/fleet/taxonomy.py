"""What a sign of trouble means: check names and XIDs -> symptoms -> possible domains.

The knowledge is data (`taxonomy.toml`, beside this module), so that an operator can correct it
without touching code. Its source is the failure taxonomy of Kokolis et al., arXiv 2410.21680v2; the
sets of causes of NVIDIA's XIDs follow NVIDIA's Xid documentation.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import pyarrow as pa

from holdfast.errors import InputError

DOMAINS = ("user", "system", "hardware")
SEVERITIES = ("HIGH", "LOW")
UNKNOWN = "unknown check"
GPU_EXCEPTION = "gpu_exception"

CLASSIFICATION = pa.schema(
    [
        pa.field("check", pa.string()),
        pa.field("xid", pa.int32()),
        pa.field("symptom", pa.string()),  # id in the taxonomy
        pa.field("label", pa.string()),  # the symptom's name for people
        pa.field("severity", pa.string()),  # HIGH or LOW, where the log does not say
        pa.field("domains", pa.list_(pa.string())),
        pa.field("permanent", pa.bool_()),  # null: either
    ]
)
"""Columns of `Taxonomy.classify`: one row per (check, xid) asked for."""

_XID_IN_NAME = re.compile(r"\bxid\W*(\d{1,4})\b")
_SEPARATORS = re.compile(r"[\s_\-]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Symptom:
    """One kind of trouble, as far as a check can tell it."""

    id: str
    """Short name, for example ``ib_link``."""
    label: str
    """Name for people, for example "InfiniBand link"."""
    domains: tuple[str, ...]
    """Who may be at fault: a subset of `DOMAINS`."""
    permanent: bool | None
    """True: stays until repaired; False: passes or ends with a reset; None: either."""


@dataclass(frozen=True)
class CheckRule:
    """Check names that match `pattern` show `symptom`."""

    pattern: re.Pattern[str]
    symptom: str
    severity: Literal["HIGH", "LOW"]


@dataclass(frozen=True)
class Xid:
    """One NVIDIA XID with its own set of causes."""

    number: int
    name: str
    symptom: str
    severity: Literal["HIGH", "LOW"]
    domains: tuple[str, ...]


@dataclass(frozen=True)
class Taxonomy:
    """Symptoms, the checks that show them, and XIDs."""

    symptoms: Mapping[str, Symptom]
    checks: tuple[CheckRule, ...]
    """In order: the first rule that matches counts."""
    xids: Mapping[int, Xid]

    def symptom(self, check: str, xid: int | None = None) -> str:
        """The id of the symptom that a check shows; ``"unknown check"`` when no rule knows it.

        Args:
            check: the check's own name, a node's reason in Slurm, or a failure log's cause.
            xid: the XID that the event carries; it is more telling than the check's name.
        """
        return self._judge(check, xid)[0]

    def severity(self, check: str, xid: int | None = None) -> str:
        """``"HIGH"`` or ``"LOW"``: how the fleet reacts when the log does not say."""
        return self._judge(check, xid)[1]

    def domains(self, symptom: str) -> tuple[str, ...]:
        """Who may be at fault for a symptom.

        Raises:
            KeyError: if the taxonomy has no such symptom.
        """
        return self.symptoms[symptom].domains

    def label(self, symptom: str) -> str:
        """The symptom's name for people."""
        return self.symptoms[symptom].label

    def classify(self, checks: Sequence[str], xids: Sequence[int | None] | None = None) -> pa.Table:
        """Classify many checks at once, to be joined to events on (check, xid).

        Args:
            checks: distinct check names, shape ``[n]``.
            xids: the XID of each, shape ``[n]``; None: none has one.

        Returns:
            A table in `CLASSIFICATION`, one row per check in the order given.
        """
        rows = []
        for check, xid in zip(checks, xids or [None] * len(checks), strict=True):
            name, severity, domains = self._judge(check, xid)
            symptom = self.symptoms[name]
            rows.append(
                {
                    "check": check,
                    "xid": xid,
                    "symptom": name,
                    "label": symptom.label,
                    "severity": severity,
                    "domains": list(domains),
                    "permanent": symptom.permanent,
                }
            )
        return pa.Table.from_pylist(rows, schema=CLASSIFICATION)

    def _judge(self, check: str, xid: int | None) -> tuple[str, str, tuple[str, ...]]:
        name = _SEPARATORS.sub(" ", check.strip().lower())
        if xid is None and (found := _XID_IN_NAME.search(name)):
            xid = int(found[1])
        if xid is not None:
            if known := self.xids.get(xid):
                return known.symptom, known.severity, known.domains
            return GPU_EXCEPTION, "LOW", self.symptoms[GPU_EXCEPTION].domains
        own = name.replace(" ", "_")
        for rule in self.checks:
            if rule.symptom == own or rule.pattern.search(name):
                return rule.symptom, rule.severity, self.symptoms[rule.symptom].domains
        words = _CAMEL_CASE.sub(" ", check)
        if words != check:  # such as GpuMemWatch, a condition of Kubernetes
            return self._judge(words, None)
        symptom = own if own in self.symptoms else UNKNOWN
        return symptom, "LOW", self.symptoms[symptom].domains


def load(path: Path | None = None) -> Taxonomy:
    """The taxonomy that ships with holdfast, or a user's file laid over it.

    Args:
        path: a TOML file in the layout of `taxonomy.toml`; None: the shipped one alone.

    Raises:
        InputError: if the file is missing, is not TOML, or says something that it may not.
    """
    if path is None:
        return _shipped()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the taxonomy cannot be read",
            code="unreadable",
            path=path,
            found=str(error),
            expected="a TOML file in UTF-8",
            remedy="leave --taxonomy out to use the one that ships with holdfast",
        ) from error
    return _parse(text, path)


@cache
def _shipped() -> Taxonomy:
    text = resources.files("holdfast.fleet").joinpath("taxonomy.toml").read_text(encoding="utf-8")
    return _parse(text, None)


def _parse(text: str, path: Path | None) -> Taxonomy:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            "invalid TOML", code="invalid-syntax", path=path, found=str(error)
        ) from error
    reader = _Reader(path)
    top = reader.table(data, "", ("version", "extends", "symptoms", "checks", "xids"))
    if (version := top.get("version", 1)) != 1:
        raise reader.wrong("version", version, "1")
    base = _shipped() if path and reader.flag(top, "extends", "", default=True) else None

    symptoms = dict(base.symptoms) if base else {}
    symptoms.update((symptom.id, symptom) for symptom in reader.symptoms(top.get("symptoms", {})))
    for needed in (UNKNOWN, GPU_EXCEPTION):
        if needed not in symptoms:
            raise reader.wrong(f"symptoms.{needed}", "nothing", "a symptom of this name")
    rules = reader.table(top.get("checks", {}), "checks", ("rules",)).get("rules", [])
    checks = tuple(reader.checks(rules, symptoms))
    xids = dict(base.xids) if base else {}
    xids.update((xid.number, xid) for xid in reader.xids(top.get("xids", {}), symptoms))
    return Taxonomy(symptoms, checks + (base.checks if base else ()), xids)


class _Reader:
    """Checks a parsed TOML document piece by piece; every complaint names file and key."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def wrong(self, key: str, found: object, expected: str) -> InputError:
        return InputError(
            "invalid taxonomy",
            code="invalid-value",
            path=self.path,
            place=key,
            found=repr(found),
            expected=expected,
        )

    def table(self, value: object, key: str, allowed: tuple[str, ...] | None) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.wrong(key, value, "a table")
        for name in value:
            if allowed is not None and name not in allowed:
                place = f"{key}.{name}" if key else name
                raise self.wrong(place, name, "one of the keys " + ", ".join(allowed))
        return value

    def text(self, table: dict[str, object], name: str, key: str) -> str:
        value = table.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(f"{key}.{name}", value, "a text")
        return value

    def flag(self, table: dict[str, object], name: str, key: str, *, default: bool) -> bool:
        value = table.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(f"{key}.{name}" if key else name, value, "true or false")
        return value

    def domains(self, table: dict[str, object], key: str) -> tuple[str, ...]:
        value = table.get("domains")
        if not isinstance(value, list) or not value or any(each not in DOMAINS for each in value):
            raise self.wrong(f"{key}.domains", value, "one or more of " + ", ".join(DOMAINS))
        return tuple(value)

    def severity(self, table: dict[str, object], key: str) -> Literal["HIGH", "LOW"]:
        match table.get("severity"):
            case "HIGH":
                return "HIGH"
            case "LOW":
                return "LOW"
            case other:
                raise self.wrong(f"{key}.severity", other, " or ".join(SEVERITIES))

    def known(self, table: dict[str, object], key: str, symptoms: Mapping[str, Symptom]) -> str:
        name = self.text(table, "symptom", key)
        if name not in symptoms:
            raise self.wrong(f"{key}.symptom", name, "one of " + ", ".join(sorted(symptoms)))
        return name

    def symptoms(self, value: object) -> Iterator[Symptom]:
        for name, entry in self.table(value, "symptoms", None).items():
            key = f"symptoms.{name}"
            table = self.table(entry, key, ("label", "domains", "permanent"))
            permanent = (
                self.flag(table, "permanent", key, default=False) if "permanent" in table else None
            )
            yield Symptom(name, self.text(table, "label", key), self.domains(table, key), permanent)

    def checks(self, value: object, symptoms: Mapping[str, Symptom]) -> Iterator[CheckRule]:
        if not isinstance(value, list):
            raise self.wrong("checks.rules", value, "a list of tables")
        for number, entry in enumerate(value):
            key = f"checks.rules[{number}]"
            table = self.table(entry, key, ("pattern", "symptom", "severity"))
            pattern = self.text(table, "pattern", key)
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise self.wrong(
                    f"{key}.pattern", pattern, f"a regular expression ({error})"
                ) from error
            yield CheckRule(compiled, self.known(table, key, symptoms), self.severity(table, key))

    def xids(self, value: object, symptoms: Mapping[str, Symptom]) -> Iterator[Xid]:
        for name, entry in self.table(value, "xids", None).items():
            key = f"xids.{name}"
            if not name.isdecimal():
                raise self.wrong(key, name, "an XID number")
            table = self.table(entry, key, ("name", "symptom", "severity", "domains"))
            yield Xid(
                int(name),
                self.text(table, "name", key),
                self.known(table, key, symptoms),
                self.severity(table, key),
                self.domains(table, key),
            )
