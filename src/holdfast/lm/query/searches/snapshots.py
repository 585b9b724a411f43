"""Save the state of a search to a file, to resume it later."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.results import MassStep
from holdfast.lm.query.searches.conditioning import Scale
from holdfast.lm.query.searches.evaluating import Evaluator
from holdfast.lm.query.searches.tree import Tree

FORMAT = 1
GROWTH = 1.25
"""A tree is written again when it has grown so much: all writing together costs a few times the last."""
FIRST = 256  # nodes

COLUMNS = ("prompt", "parent", "token", "depth", "spelled", "under", "log")


class Keeper:
    """The file of a question: a NumPy archive without pickled objects.

    It holds the nodes in columns, the chances of children end to end, and a line of JSON with what the
    question was and where it stands. States of automata are not kept: they follow from the tokens.

    Args:
        path: the file; None keeps nothing.
        purpose: ``mass`` or ``search``.
        model: the model that is asked.
        compiled: the query.

    Raises:
        InputError: if the file is of another question, cannot be read, or could not be written.
    """

    def __init__(
        self,
        path: Path | None,
        purpose: Literal["mass", "search"],
        model: LanguageModel,
        compiled: CompiledQuery,
    ) -> None:
        self.path = path
        self.question = {
            "purpose": purpose,
            "query": asdict(compiled.query),
            "model": model.name,
            "files": getattr(model, "fingerprint", None),
            "context": model.context,
            "tokenizer": _digest(compiled),
        }
        self._saved = FIRST / GROWTH
        self._arrays: dict[str, Any] = {}
        self._said: dict[str, Any] = {}
        if path is not None:
            if path.exists():
                self._read(path)
            self._try(path)

    @property
    def spent(self) -> tuple[int, int]:
        """(evaluations, nodes) so far."""
        evaluations, nodes = self._said.get("spent", (0, 0))
        return evaluations, nodes

    @property
    def steps(self) -> list[list[Any]]:
        """Recorded steps of a mass, as lists."""
        return list(self._said.get("steps", []))

    @property
    def scales(self) -> list[Scale]:
        """The scales of the prompts; empty when they are not settled."""
        return [Scale(*scale) for scale in self._said.get("scales", [])]

    @property
    def found(self) -> list[Any]:
        """What a search found: as it gave it to `save`."""
        return list(self._said.get("found", []))

    def due(self, tree: Tree) -> bool:
        """Whether the tree has grown enough since it was saved."""
        return self.path is not None and len(tree.log) >= self._saved * GROWTH

    def save(
        self,
        tree: Tree,
        evaluator: Evaluator,
        scales: list[Scale],
        steps: list[MassStep] | None = None,
        found: list[Any] | None = None,
    ) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        self._saved = len(tree.log)
        size = len(tree.log)
        # What is given was not settled: the next session starts with it.
        settled = scales if evaluator.stopped is None or tree.expanded else []
        said = {
            "format": FORMAT,
            "question": self.question,
            "spent": (evaluator.evaluations, evaluator.nodes),
            "scales": [tuple(vars(scale).values()) for scale in settled],
            "steps": [tuple(vars(step).values()) for step in steps or []],
            "found": found or [],
            "accepted": tree.accepted,
            "limits": sorted(tree.limits),
            "expanded": tree.expanded,
        }
        opened = [(node, held) for node, held in enumerate(tree.chances) if held is not None]
        columns = [held for node, _ in opened if (held := tree.columns[node]) is not None]
        arrays: dict[str, Any] = {name: np.array(getattr(tree, name)) for name in COLUMNS}
        arrays |= {
            "said": np.frombuffer(json.dumps(said).encode(), np.uint8),
            "waiting": np.array(sorted(tree.waiting), np.int64),
            "log_stuck": tree.log_stuck[:size],
            "opened": np.array([node for node, _ in opened], np.int64),
            "sizes": np.array([len(held) for _, held in opened], np.int64),
            "whole": np.array([tree.columns[node] is None for node, _ in opened], np.bool_),
            "chances": np.concatenate([np.empty(0), *(held for _, held in opened)]),
            "columns": np.concatenate([np.empty(0, np.int32), *columns]),
        }
        beside = _beside(self.path)
        try:
            with beside.open("wb") as file:
                np.savez(file, **arrays)
            beside.replace(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            beside.unlink(missing_ok=True)

    @staticmethod
    def _try(path: Path) -> None:
        """Report a file that cannot be written before the model runs."""
        try:
            _beside(path).touch()
        except OSError as error:
            raise _unwritable(path, error) from error
        _beside(path).unlink()

    def restore(self, tree: Tree) -> None:
        """Put what was kept in the place of a new tree's roots."""
        if self._said.get("scales"):
            tree.restore(self._arrays, self._said)
            self._saved = len(tree.log)
        self._arrays = {}

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                self._arrays = {name: archive[name] for name in archive.files}
            self._said = json.loads(self._arrays["said"].tobytes())
            format_, question = self._said["format"], self._said["question"]
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, EOFError) as error:
            raise InputError(
                "not a saved search, or damaged",
                code="damaged",
                path=path,
                found="not a NumPy archive" if isinstance(error, ValueError) else str(error),
                remedy="name a file that does not exist yet, to start anew",
            ) from error
        asked = json.loads(json.dumps(self.question))
        if format_ != FORMAT or question != asked:
            differs = [key for key in asked if question.get(key) != asked[key]]
            raise InputError(
                "the file keeps another question",
                code="conflict",
                path=path,
                found=f"another {', '.join(differs) or 'format'}",
                expected="the query, model and tokenizer with which it was started",
                remedy="name a file that does not exist yet, to start anew",
            )


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.new")


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        "the state file cannot be written",
        code="unwritable",
        path=path,
        found=error.strerror,
        remedy="name a file in a folder that exists and may be written to",
    )


def _digest(compiled: CompiledQuery) -> str:
    """What identifies the vocabulary and the prompts."""
    digest = hashlib.sha256(repr(compiled.tokenizer.pieces).encode())
    for prompt in compiled.prompts:
        digest.update(repr((prompt.text, prompt.tokens, prompt.remainder, prompt.share)).encode())
    return digest.hexdigest()
