"""Makes ``demosaic.npz`` by colour-demosaicing 0.2.7, in an environment that has it and Pillow.

    pip install colour-demosaicing==0.2.7 pillow
    python tests/federated/demosaic_vectors.py examples/signs/photos tests/federated/demosaic.npz

Of each Bayer pattern: the mosaic of a random image and its bilinear demosaicing; and the mean squared error
of bilinear, Malvar's and Menon's demosaicing, edges left out, on the first photo of each digit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

PATTERNS = ("RGGB", "BGGR", "GRBG", "GBRG")
INSIDE = np.s_[8:-8, 8:-8]


def photos(folder: Path) -> Any:
    """The first photo of each digit, [10, 100, 100, 3] in [0, 1]."""
    from PIL import Image

    files = [min(each.glob("*.jpg")) for each in sorted(folder.iterdir())]
    return np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files]) / 255


def main(folder: str, path: str) -> None:
    """Write what colour-demosaicing makes."""
    import colour_demosaicing as cd

    made: dict[str, Any] = {}
    image = np.random.default_rng(0).random((12, 16, 3))
    for pattern in PATTERNS:
        mosaic = cd.mosaicing_CFA_Bayer(image, pattern)
        made[f"mosaic/{pattern}"] = mosaic
        made[f"bilinear/{pattern}"] = cd.demosaicing_CFA_Bayer_bilinear(mosaic, pattern)
    for name, function in {
        "bilinear": cd.demosaicing_CFA_Bayer_bilinear,
        "malvar": cd.demosaicing_CFA_Bayer_Malvar2004,
        "menon": cd.demosaicing_CFA_Bayer_Menon2007,
    }.items():
        errors = [
            np.mean((function(cd.mosaicing_CFA_Bayer(photo, "RGGB"), "RGGB") - photo)[INSIDE] ** 2)
            for photo in photos(Path(folder))
        ]
        made[f"error/{name}"] = np.array(errors)
        print(name, float(np.mean(errors)))
    np.savez_compressed(path, **made)


if __name__ == "__main__":
    main(*sys.argv[1:])
