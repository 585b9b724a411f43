"""What a sign of trouble means: check names and XIDs -> symptoms -> possible domains.

The knowledge is data (`taxonomy.toml`, beside this module), so that an operator can correct it
without touching code. Its source is the failure taxonomy of Kokolis et al., arXiv 2410.21680v2; the
sets of causes of NVIDIA's XIDs follow NVIDIA's Xid documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa

from holdfast.config import invalid_value, read_config
from holdfast.errors import InputError
from holdfast.fleet.schema import TEXTS, schema

DOMAINS = ("user", "system", "hardware")
T = TypeVar("T")
UNKNOWN = "unknown check"
MAINTENANCE = "maintenance"
GPU_EXCEPTION = "gpu_exception"

# Columns of `Taxonomy.classify`: one row per (check, xid) asked for
CLASSIFICATION = schema(
    check="string",
    xid="int32",
    symptom="string",  # id in the taxonomy
    label="string",  # the symptom's name for people
    severity="string",  # HIGH or LOW, where the log does not say
    domains=TEXTS,
)

_XID_IN_NAME = re.compile(r"\bxid\W*(\d{1,4})\b")
_SEPARATORS = re.compile(r"[\s_\-]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


Domains = tuple[Literal["user", "system", "hardware"], ...]
Severity = Literal["HIGH", "LOW"]


@dataclass(frozen=True)
class Symptom:
    """One kind of trouble, as far as a check can tell it."""

    label: str  # Name for people, for example "InfiniBand link"
    domains: Domains  # Who may be at fault
    # True: stays until repaired; False: passes or ends with a reset; None: either
    permanent: bool | None = None


@dataclass(frozen=True)
class CheckRule:
    """Check names that match `pattern` show `symptom`."""

    pattern: str
    symptom: str
    severity: Severity


@dataclass(frozen=True)
class Xid:
    """One NVIDIA XID with its own set of causes."""

    name: str
    symptom: str
    severity: Severity
    domains: Domains


@dataclass(frozen=True)
class _Checks:
    rules: tuple[CheckRule, ...] = ()


@dataclass(frozen=True)
class _File:
    """The keys of `taxonomy.toml`; tables are read one by one, so that an error names theirs."""

    version: Literal[1] = 1
    extends: bool = True
    symptoms: dict[str, dict[str, Any]] = field(default_factory=dict)
    checks: _Checks = field(default_factory=_Checks)
    xids: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Taxonomy:
    """Symptoms, the checks that show them, and XIDs."""

    symptoms: Mapping[str, Symptom]
    checks: tuple[CheckRule, ...]  # In order: the first rule that matches counts
    xids: Mapping[int, Xid]

    def symptom(self, check: str, xid: int | None = None) -> str:
        """The id of the symptom that a check shows; ``"unknown check"`` when no rule knows it.

        Args:
            check: the check's own name, a node's reason in Slurm, or a failure log's cause.
            xid: the XID that the event carries; it is more telling than the check's name.
        """
        return self._judge(check, xid)[0]

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
                    "domains": domains,
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
            # (a rule of a user's own may spell the name as the check does)
            said = re.search(rule.pattern, name) or re.search(rule.pattern, check.lower())
            if rule.symptom == own or said:
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
    return _shipped() if path is None else _read(path, None)


@cache
def _shipped() -> Taxonomy:
    return _read(Path(__file__).with_name("taxonomy.toml"), Taxonomy({}, (), {}))


def _read(path: Path, base: Taxonomy | None) -> Taxonomy:
    """A file laid over `base`; None: over the shipped one, unless it says otherwise."""
    given = read_config(path, _File, "the taxonomy")
    if base is None:
        base = _shipped() if given.extends else Taxonomy({}, (), {})

    wrong = partial(invalid_value, "invalid taxonomy", path)

    def entry(kind: type[T], content: dict[str, Any], place: str) -> T:
        try:
            return read_config(content, kind, "the taxonomy")
        except InputError as error:
            raise wrong(f"{place}.{error.place}", error.found, error.expected or "") from error

    own = {n: entry(Symptom, each, f"symptoms.{n}") for n, each in given.symptoms.items()}
    symptoms = {**base.symptoms, **own}
    rules = given.checks.rules
    named: dict[str, CheckRule | Xid] = {f"checks.rules[{n}]": rule for n, rule in enumerate(rules)}
    xids = {}
    for number, each in given.xids.items():
        if not number.isdecimal():
            raise wrong(f"xids.{number}", number, "an XID number")
        xids[int(number)] = named[f"xids.{number}"] = entry(Xid, each, f"xids.{number}")
    for needed in (UNKNOWN, GPU_EXCEPTION):
        if needed not in symptoms:
            raise wrong(f"symptoms.{needed}", "nothing", "a symptom of this name")
    for place, shown in {**{f"symptoms.{n}": s for n, s in own.items()}, **named}.items():
        if getattr(shown, "domains", True) == ():
            raise wrong(f"{place}.domains", "none", ", ".join(DOMAINS))
    for place, rule in named.items():
        if rule.symptom not in symptoms:
            raise wrong(
                f"{place}.symptom", repr(rule.symptom), "one of " + ", ".join(sorted(symptoms))
            )
        try:
            re.compile(getattr(rule, "pattern", ""))
        except re.error as error:
            raise wrong(
                f"{place}.pattern", repr(error.pattern), f"a regular expression ({error})"
            ) from error
    return Taxonomy(symptoms, (*rules, *base.checks), {**base.xids, **xids})
