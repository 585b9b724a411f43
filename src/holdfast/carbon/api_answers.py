"""Answers of the APIs of grid signals: WattTime, Electricity Maps, carbonintensity.org.uk (JSON)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.carbon.samples import Samples, kind_of
from holdfast.carbon.signals import HOUR_S, refused
from holdfast.numbers import counted


def _watttime(rows: list[Any], content: Any) -> Samples:
    """WattTime's answer of version 3: {"data": [...], "meta": {...}}."""
    meta = content["meta"]
    kind = str(meta["signal_type"])
    return Samples(
        [row["point_time"] for row in rows],
        [row["value"] for row in rows],
        kind={"co2_moer": "marginal", "co2_aoer": "average"}.get(kind, kind),  # type: ignore[arg-type]
        unit=str(meta["units"]).replace("lbs_co2_per_mwh", "lbs/MWh"),
        zone=str(meta.get("region", "")),
        scope="direct",
        step_s=int(meta.get("data_point_period_seconds") or HOUR_S),
    )


def _electricity_maps_json(rows: list[Any], content: Any) -> Samples:
    """Electricity Maps' answers: a history, a range of the past, a forecast, or one hour."""
    zones = {str(row.get("zone", content.get("zone", ""))) for row in rows}
    scopes = {row.get("emissionFactorType", "") for row in rows}
    if len(scopes) > 1:
        raise ValueError(f"rows of different emissionFactorType: {sorted(scopes)}")
    samples = Samples(
        [row["datetime"] for row in rows],
        [row["carbonIntensity"] for row in rows],
        zone=zones.pop() if len(zones) == 1 else "",
        basis="consumption",
        scope=str(scopes.pop()),
    )
    if rows := [row for row in rows if row.get("isEstimated")]:
        samples.notes.append(f"{counted(len(rows), 'value')} estimated by Electricity Maps.")
    return samples


def _uk(rows: list[Any], _content: Any) -> Samples:
    """carbonintensity.org.uk: half hours of Great Britain, measured, else forecast."""
    found = [row["intensity"] for row in rows]
    missing = [each.get("actual") is None for each in found]
    pairs = zip(found, missing, strict=True)
    samples = Samples(
        [row["from"] for row in rows],
        [each["forecast" if none else "actual"] for each, none in pairs],
        zone="GB",
        basis="consumption",
        scope="direct",
        step_s=HOUR_S // 2,
    )
    if any(missing):
        samples.notes.append(f"{counted(sum(missing), 'half hour')} of forecast, not measured.")
    return samples


# What an answer of an API has in its rows -> how it is read.
ANSWERS: dict[str, tuple[str, Callable[[list[Any], Any], Samples]]] = {
    "WattTime": ("point_time", _watttime),
    "Electricity Maps": ("carbonIntensity", _electricity_maps_json),
    "carbonintensity.org.uk": ("intensity", _uk),
}


def of_json(path: Path, text: str) -> Samples:
    """The answer of one of `ANSWERS`."""
    try:
        content = json.loads(text)
        keys = (key for key in ("data", "history", "forecast") if key in content)
        rows = content if isinstance(content, list) else content.get(next(keys, ""), [content])
        _, read = next(each for each in ANSWERS.values() if each[0] in rows[0])
        samples = read(rows, content)
        values = [float("nan" if value is None else value) for value in samples.values]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        found = f"{type(error).__name__}: {error}"
        problem, expected = "not an answer of a known API", f"of {', '.join(ANSWERS)}"
        raise refused(problem, "unknown-format", path, None, found, expected) from error
    samples.kind = kind_of(path, "meta.signal_type", samples.kind)
    return replace(samples, values=values, places=[f"row {n}" for n in range(len(rows))])
