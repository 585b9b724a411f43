"""Reading named arrays from NumPy archives; nothing in them is executed."""

from __future__ import annotations

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
