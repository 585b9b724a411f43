"""The rooms of the house, in one list: help, `why`, the README, docs/ and its navigation follow it.

A test holds them to it. A room that is not here does not exist for a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import MissingExtraError

OPERATOR = "You run a cluster"
RUN_OWNER = "You own a training run"
MODEL_OWNER = "You own a model and its data"


@dataclass(frozen=True)
class Room:
    """What a user works with, and where it is found."""

    name: str
    """Words on the command line: ``"data records"``."""
    title: str
    """In the documentation and its navigation."""
    person: str
    """Who needs it first."""
    page: str
    """In docs/."""
    extra: str
    """The extra of pyproject.toml with its libraries."""
    about: str
    """One sentence."""
    commands: tuple[str, ...] = ()
    """Names of its commands that do not start with its own."""

    @property
    def word(self) -> str:
        """The first word on the command line."""
        return self.name.partition(" ")[0]


ROOMS = (
    Room(
        name="fleet",
        title="Fleet",
        person=OPERATOR,
        page="fleet.md",
        extra="sim",
        about="What failures cost a GPU cluster, why, and what would win it back.",
    ),
    Room(
        name="carbon",
        title="Carbon",
        person=OPERATOR,
        page="carbon.md",
        extra="carbon",
        about="CO2 of machine time, and when to spend power.",
    ),
    Room(
        name="runs",
        title="Runs",
        person=RUN_OWNER,
        page="runs.md",
        extra="runs",
        about="What one training run did with its time, and what stopped it.",
    ),
    Room(
        name="profile",
        title="Operator profiles",
        person=RUN_OWNER,
        page="profile.md",
        extra="profile",
        about="FLOPs, bytes and time of a model by operator.",
    ),
    Room(
        name="profile numerics",
        title="Numeric deviation",
        person=RUN_OWNER,
        page="numerics.md",
        extra="profile",
        about="How far an operator deviates from exact numbers, and why; loss spikes.",
    ),
    Room(
        name="data pipeline",
        title="Input pipelines",
        person=RUN_OWNER,
        page="pipeline.md",
        extra="pipeline",
        about="Which stage of an input pipeline limits it, and faster settings.",
    ),
    Room(
        name="data croissant",
        title="Croissant descriptions",
        person=MODEL_OWNER,
        page="data-croissant.md",
        extra="croissant",
        about="Descriptions of datasets: check, load, write them.",
    ),
    Room(
        name="data records",
        title="Progressive records",
        person=MODEL_OWNER,
        page="data-records.md",
        extra="records",
        about="JPEG datasets stored at every fidelity at once.",
    ),
    Room(
        name="data curation",
        title="Data curation",
        person=MODEL_OWNER,
        page="curation.md",
        extra="curation",
        about="What to augment, prune and buy, and whether random is as good.",
    ),
    Room(
        name="lm query",
        title="Regex queries",
        person=MODEL_OWNER,
        page="lm-query.md",
        extra="lm",
        about="Regular expressions over language models.",
    ),
    Room(
        name="lm audit",
        title="Audits",
        person=MODEL_OWNER,
        page="lm-audits.md",
        extra="lm",
        about="Memorization, bias, toxicity and cloze accuracy of a language model.",
    ),
    Room(
        name="lm safety",
        title="Safety benchmark",
        person=MODEL_OWNER,
        page="lm-safety.md",
        extra="lm",
        about="Hazards, grades, and how certain they are.",
    ),
    Room(
        name="lm generate",
        title="Generation",
        person=MODEL_OWNER,
        page="generate.md",
        extra="hf",
        about="Text equal to plain decoding, faster.",
        commands=("lm train-exits", "lm calibrate-heads"),
    ),
    Room(
        name="sparse",
        title="Sparse networks",
        person=MODEL_OWNER,
        page="sparse.md",
        extra="sparse",
        about="Pruned networks that are smaller and faster: schedules, packing, kernels.",
    ),
    Room(
        name="private",
        title="Private computation",
        person=MODEL_OWNER,
        page="private.md",
        extra="private",
        about="Computing on secrets: parties that see only their own input.",
    ),
    Room(
        name="federated",
        title="Federated learning",
        person=MODEL_OWNER,
        page="federated.md",
        extra="federated",
        about="Learning on devices that differ: rules, device simulation, failing clients.",
    ),
    Room(
        name="speech",
        title="Speech",
        person=MODEL_OWNER,
        page="speech.md",
        extra="speech",
        about="Recognizing, aligning and speaking: train, decode, serve, score.",
    ),
    Room(
        name="go",
        title="Go",
        person=MODEL_OWNER,
        page="go.md",
        extra="go",
        about="Go: a GTP engine, matches with Elo, training by self-play, ladders.",
    ),
    Room(
        name="fst",
        title="Automata (fst)",
        person=MODEL_OWNER,
        page="automata.md",
        extra="automata",
        about="Automata: weighted finite-state transducers, OpenFST's operations and files.",
    ),
)
"""In the order in which everything lists them."""


def lacking(error: ImportError, words: Sequence[str]) -> MissingExtraError | None:
    """What says which extra to install; None where a library of holdfast's own is missing.

    Args:
        error: of a library that is not installed, or of a room raised from it.
        words: of the command line, from the room's name on.
    """
    cause = error.__cause__ or error
    library = (getattr(cause, "name", None) or "").partition(".")[0]
    line = f"{' '.join(words)} "
    named = [
        room
        for room in ROOMS
        if any(line.startswith(f"{name} ") for name in (room.name, *room.commands))
    ]
    # Several rooms share a first word: the first of them has what they have in common.
    named += [room for room in ROOMS if line.startswith(f"{room.word} ")]
    if not isinstance(cause, ModuleNotFoundError) or library in ("", "holdfast") or not named:
        return None
    return MissingExtraError(library, named[0].extra)


def members(word: str) -> list[Room]:
    """The rooms whose name goes on after a first word."""
    return [room for room in ROOMS if room.word == word and room.name != word]
