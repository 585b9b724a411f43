"""Reading named arrays from NumPy archives and safetensors files; nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from holdfast.errors import InputError


def read_arrays(
    path: Path, names: Sequence[str] | None = None, expected: str | None = None
) -> dict[str, Any]:
    """Arrays of an ``.npz`` file.

    Args:
        path: the file.
        names: the arrays that it must have; None: all that it has.
        expected: their shapes, for the message where one is missing.

    Raises:
        InputError: no such file, not an archive, or an array is missing.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files if names is None else names
            missing = set(names) - set(archive.files)
            if missing:
                raise InputError(
                    "an array is missing",
                    code="missing-key",
                    path=path,
                    place=", ".join(sorted(missing)),
                    found=", ".join(archive.files),
                    expected=expected,
                )
            return {name: archive[name] for name in names}
    except FileNotFoundError as error:
        raise InputError("no such file", code="not-found", path=path) from error
    except (OSError, ValueError, EOFError, BadZipFile, TypeError) as error:
        raise InputError(
            "not a NumPy archive", code="unknown-format", path=path, found=str(error)
        ) from error


def read_tensors(
    path: Path, key: str = "", remedy: str | None = None
) -> tuple[dict[str, Any], Any]:
    """Arrays and metadata of a safetensors file.

    Args:
        path: the file.
        key: of the metadata that holds JSON, whose value is returned, None where it is missing; empty: all
            of the metadata are returned, as text.
        remedy: what to do where the file is damaged, for the message.

    Raises:
        InputError: ``not-found``; ``damaged``, also for numbers that NumPy lacks.
    """
    import safetensors

    try:
        with safetensors.safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            noted = file.metadata() or {}
        return arrays, json.loads(noted.get(key, "null")) if key else noted
    except FileNotFoundError as error:
        raise InputError("file not found", code="not-found", path=path) from error
    except (safetensors.SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
        problem, found = "damaged safetensors file", str(error)
        raise InputError(problem, code="damaged", path=path, found=found, remedy=remedy) from error
