"""Whether a field's type became narrower, wider or another."""

from __future__ import annotations

from typing import Literal

Relation = Literal["same", "wider", "narrower", "other", "meaning"]

# Each type -> the next wider ones: every value of it equals a value of them.
_WIDER: dict[str, tuple[str, ...]] = {
    "cr:Int8": ("cr:Int16",),
    "cr:Int16": ("cr:Int32",),
    "cr:Int32": ("cr:Int64", "cr:Float64"),
    "cr:Int64": ("sc:Integer",),
    "cr:UInt8": ("cr:UInt16", "cr:Int16"),
    "cr:UInt16": ("cr:UInt32", "cr:Int32"),
    "cr:UInt32": ("cr:UInt64", "cr:Int64"),
    "cr:UInt64": ("sc:Integer",),
    "sc:Integer": ("sc:Float",),
    "cr:Float16": ("cr:Float32",),
    "cr:Float32": ("cr:Float64",),
    "cr:Float64": ("sc:Float",),
    "sc:Float": ("cr:Float64", "sc:Number"),  # both names mean a double
    "sc:URL": ("sc:Text",),
    "cr:BoundingBox": (),
    "sc:Boolean": (),
    "sc:Date": (),
    "sc:DateTime": (),
    "sc:Time": (),
    "sc:Number": (),
    "sc:Text": (),
    "sc:ImageObject": (),
    "sc:AudioObject": (),
    "sc:VideoObject": (),
}


def atomic(types: tuple[str, ...]) -> frozenset[str]:
    """The types that say how values are stored; the others say what they mean."""
    return frozenset(types) & _WIDER.keys()


def compare_types(old: tuple[str, ...], new: tuple[str, ...]) -> Relation:
    """How the newer types stand to the older ones.

    Returns:
        "meaning" where only types that say what values mean were added or removed.
    """
    if set(old) == set(new):
        return "same"
    left, right = atomic(old), atomic(new)
    if left == right:
        return "meaning"
    up, down = _within(left, right), _within(right, left)
    if up and down:
        return "meaning"
    return "wider" if up else "narrower" if down else "other"


def _within(narrow: frozenset[str], wide: frozenset[str]) -> bool:
    """Whether every value of the one is a value of the other; no type at all admits everything."""
    if not wide:
        return True
    return bool(narrow) and all(_above(one) & wide for one in narrow)


def _above(one: str) -> set[str]:
    found, pending = {one}, [one]
    while pending:
        fresh = set(_WIDER[pending.pop()]) - found
        found |= fresh
        pending += fresh
    return found
