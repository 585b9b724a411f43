"""Names of the classes in a file or folder of examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holdfast.arrays import read_arrays
from holdfast.federated.datasets import IMAGES


def label_names(path: Path) -> list[str]:
    """Labels in the order of the numbers that `holdfast.federated.read_examples` gives them."""
    if path.is_dir():
        files = (each for each in path.glob("[!.]*/[!.]*") if each.suffix.lower() in IMAGES)
        return sorted({file.parent.name for file in files})
    labels = read_arrays(path, ["x", "y"], "x [n, ...], y [n]")["y"]
    return [str(label) for label in np.unique(labels)]
